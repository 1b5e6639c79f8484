"""From a socket to a handler and back: connections, their limits, and the table of APIs.

Nothing here knows what an API does; that is in `handlers/`.
"""
