"""The coordinators this broker hosts: the shards of `__consumer_offsets`, their logs, what handlers need of them."""
