"""Groups on their way between the two protocols: members of both kinds in one group, and the change of its kind.

`migration.py` is the way in. A classic group that a KIP-848 member joins becomes a consumer group (`upgrade.py`); its
classic members go on with JoinGroup, SyncGroup and Heartbeat, which are played on it (`classic_members.py`); when no
KIP-848 member is left it becomes a classic group again (`downgrade.py`). That is Kafka's policy "bidirectional".
"""
