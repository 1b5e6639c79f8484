"""Which brokers hold which partitions: new partitions, existing ones that are rebalanced, whole topics."""
