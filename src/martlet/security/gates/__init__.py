"""What each API needs: a gate for every API stands before its handler and takes away what the client may not do.

A gate reads the decoded request, leaves out of it what is refused, and adds the refusals to what the handler answers:
handlers know nothing of access rules. `table.py` has the gate of every API; an API without one is refused.
"""
