"""What a leader does for its followers: who may fetch as a replica, and which replicas are in sync."""
