"""Moving replicas to other brokers: one move, the emptying of whole brokers, and the throttle on copying."""
