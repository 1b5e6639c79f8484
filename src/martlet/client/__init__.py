"""A lean asyncio client of the Kafka protocol, for the command line, gateway, SDK, Spark and between brokers.

One subject per file: `connection` moves frames on one socket, `cluster` knows which broker leads what,
`producer`, `fetcher`, `offsets`, `admin`, `groups`, `lag` and `consumer` (a member of a group) are what callers use.
Nothing here starts a task or opens a socket in a constructor: what owns either has `start()` and `aclose()` and is an
async context manager.
"""
