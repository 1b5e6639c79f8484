"""Which broker a client should talk to: the cluster as it sees it, and hints for one that came to the wrong place."""
