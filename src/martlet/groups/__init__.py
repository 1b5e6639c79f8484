"""Consumer groups and their offsets: a pure state machine, replayed from `__consumer_offsets`.

`machine.py` is the way in. `classic/` is the protocol in which clients assign partitions among themselves, `consumer/`
the one in which the broker does (KIP-848), `offsets/` what groups have committed. Time and topics come in from outside.
"""
