"""Martlet: a distributed message queue that speaks the Kafka wire protocol.

Nothing is imported here, so `import martlet` costs nothing; each package (see README.md beside this
file) is imported where it is used.
"""

__version__ = "0.1.0.dev0"
