"""Hosts log-backed state machines: what they answer with, how their records are stored, when a caller is answered.

Groups, transactions and queues are machines of this kind. A machine's handlers read its state and return a `Result`;
`replay` alone changes the state, live and at loading alike. No clock, socket, file or task in here: the broker's
shell hands in a log and the time.
"""
