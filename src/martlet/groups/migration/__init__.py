"""Groups between the two protocols: members of both kinds in one group, and the conversion of a group.

A classic group that a KIP-848 member joins becomes a consumer group; when no KIP-848 member is left it becomes a
classic group again (`conversion.py`). Meanwhile `classic_members.py` serves JoinGroup, SyncGroup and Heartbeat of its
classic members. That is Kafka's policy "bidirectional".
"""
