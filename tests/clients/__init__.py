"""Real Kafka clients, as people install them, against a real broker."""
