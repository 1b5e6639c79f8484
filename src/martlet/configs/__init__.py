"""Settings of topics, brokers and groups under Kafka's names: definitions, which value is in force, how they change."""
