"""The deterministic simulator: `Sim…` twins of every port, whole brokers and clusters on them, faults and checkers.

One seed is one run: time is virtual, and the network, the disks and the metadata store are simulated, so a failure can
be repeated exactly. Tests and benchmarks use it; it is no part of the product and nothing under `src/` imports it.
"""
