"""Who a client is and what it may do: authentication, access rules and rates, as pure machines.

Nothing here opens a socket, reads a clock or starts a thread; the broker and the client do.
"""
