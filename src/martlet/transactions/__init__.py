"""Transactions: a pure machine replayed from `__transaction_state`.

It gives producers their ids and epochs, knows which partitions a transaction has written to, decides how it ends and
has the markers written, as effects. The bytes of its records are Kafka's. Groups and partitions are not known here:
a group's offsets are in a transaction as one partition of `__consumer_offsets` like any other.
"""
