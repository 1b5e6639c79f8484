"""What every layer of the broker stands on: its settings, ports and workers, the request and its reply."""
