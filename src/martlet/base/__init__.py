"""Ids, the error table and the ports (clock, randomness, disk, ids) that every other room stands on.

Imports nothing of ours. The real implementation of each port sits beside its protocol; the deterministic
twins live in `martlet.testing`.
"""
