"""The KIP-848 protocol: members say what they subscribe to and what they own, and the broker assigns partitions.

`consumer_group_protocol.py` is the way in. State is in `consumer_group.py` and changes by replay only; `assignors/`
distribute partitions over members, `reconciliation.py` leads one member from what it owns to its target.
"""
