"""Copying between brokers: what followers ask, what leaders prove by it, and the in-sync sets that come of it."""
