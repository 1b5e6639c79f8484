"""How a running broker behaves, seen through raw sockets."""
