"""Requests that wait: a publish for its replicas, a consumer's fetch for data, a follower's fetch for appends."""
