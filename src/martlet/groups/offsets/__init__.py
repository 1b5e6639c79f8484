"""What groups have committed: the table of offsets and the rules for writing, reading, deleting and expiring them.

Who may commit is not decided here: that is a matter of the group's protocol, asked by `machine.py` beforehand.
"""
