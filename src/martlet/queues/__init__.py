"""Pure: work queues over one partition. A message is leased to one holder, settled on its own, retried, or put aside.

Nothing in here knows a connection, a clock or a file. Holders, not connections, have leases; the time comes in as an
argument; what must survive comes out as records, and what must be done elsewhere as effects.
"""
