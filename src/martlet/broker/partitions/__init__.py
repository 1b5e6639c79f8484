"""The replicas on this broker: their logs, roles and settings, who waits for them, and how they reach the disk."""
