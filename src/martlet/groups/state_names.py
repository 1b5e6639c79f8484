"""The words in which groups are listed: kinds and states, as clients see and filter by them. Only names live here."""

CLASSIC = "classic"
CONSUMER = "consumer"

EMPTY = "Empty"
STABLE = "Stable"
DEAD = "Dead"
STATES = frozenset(("empty", "stable", "dead", "preparingrebalance", "completingrebalance", "assigning", "reconciling"))
"""What filters by state can find, in small letters."""
TYPES = frozenset((CLASSIC, CONSUMER))
