"""A member of a consumer group (KIP-848): `membership` decides, `group_consumer` moves bytes and calls the reader back.

Rules: `membership` is pure; time and answers are given to it. Rebalances are executed inside `poll`, by the task that
reads, so nothing is revoked while a batch is being handled; heartbeats go on in a task of their own meanwhile.
"""
