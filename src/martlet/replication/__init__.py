"""How the replicas of a partition stay the same: the leader's and the follower's rules, as pure machines.

`leader.py` keeps the in-sync set and says what is committed; `follower.py` decides what a replica fetches, appends and
truncates. No clock, socket, file or metadata store in here: the broker reports what happened and applies the answers.
"""
