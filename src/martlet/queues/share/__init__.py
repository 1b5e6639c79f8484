"""Pure: Kafka's share protocol over the queue engine: sessions of fetches, and acknowledgements as settlements."""
