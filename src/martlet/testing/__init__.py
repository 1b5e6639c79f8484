"""The shipped test kit: a real broker in the test's own process, and the deterministic twin of every port.

`RunningBroker` and the pytest plugin are for people who test programs that use Martlet; the `Sim…` classes are what
Martlet's own tests and simulator stand on.
"""
