"""A lean asyncio client of the Kafka protocol, for the command line, gateway, SDK, Spark and between brokers.

One subject per file: `connection` moves frames on one socket, `cluster` knows which broker leads what,
`producer`, `fetcher`, `offsets`, `admin`, `groups` and `lag` are what callers use. Nothing here starts a task or opens
a socket in a constructor: what owns either has `start()` and `aclose()` and is an async context manager. It looks at
groups and moves their offsets, but is no member of any.
"""
