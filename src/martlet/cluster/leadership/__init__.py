"""Who leads a partition and who is in sync: the rule for one record, and the decisions of those who apply it."""
