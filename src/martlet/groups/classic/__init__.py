"""The classic group protocol: members meet in Join, the leader hands out partitions in Sync, heartbeats keep it so.

`classic_protocol.py` is the way in: it holds the groups, turns requests and timers into results, and replays records.
A handler works on a draft of the group (`classic_group.py`), notes what happens as events (`classic_events.py`) and
durable records, and leaves the group itself alone; replaying the same records then changes it.
"""
