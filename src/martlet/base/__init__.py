"""Ids, the error table and the ports (clock, randomness, disk, ids) that every other package stands on.

Imports nothing of ours. The real implementation of each port stands next to its protocol; the deterministic
twins live in `martlet.testing`.
"""
