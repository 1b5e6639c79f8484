"""This process in its cluster: its data directory, its lease, and its image of the metadata."""
