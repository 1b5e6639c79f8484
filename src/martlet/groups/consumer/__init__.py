"""The KIP-848 protocol: members say what they want and own, the broker decides who gets what.

`protocol.py` is the way in. State is in `group.py` and changes by replay only; `assignors/` spread partitions over
members, `reconciliation.py` leads one member from what it owns to what it shall own.
"""
