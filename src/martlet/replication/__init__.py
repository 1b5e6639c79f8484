"""How the copies of a partition stay the same: the leader's and the follower's rules, as pure machines.

`leader.py` keeps the in-sync set and the high watermark; `follower.py` decides what a copy fetches, appends and cuts
off. No clock, socket, file or metadata store in here: the broker says what happened and carries out what they say.
"""
