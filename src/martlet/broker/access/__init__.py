"""Who the clients of a broker are and what they may do: the machines of `martlet.security` at work in a process."""
