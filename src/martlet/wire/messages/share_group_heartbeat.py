"""ShareGroupHeartbeat (key 76): all a member of a share group says and all it is told.

Version 1, flexible. There is no revoking and no static membership: what is assigned holds at once.
"""

from dataclasses import field

from martlet.wire.message import message


@message
class ShareGroupHeartbeatRequest:
    """One heartbeat; None stands for "unchanged since the last one". An epoch of 0 joins, -1 leaves."""

    group_id: str = ""
    member_id: str = ""
    member_epoch: int = 0
    rack_id: str | None = None
    subscribed_topic_names: list[str] | None = None


@message
class TopicPartitions:
    """Partitions of one topic."""

    topic_id: bytes = bytes(16)
    partitions: list[int] = field(default_factory=list)


@message
class Assignment:
    """The partitions a member may fetch from."""

    topic_partitions: list[TopicPartitions] = field(default_factory=list)


@message
class ShareGroupHeartbeatResponse:
    """The epoch the member is in and, when there is something new, its assignment (None: as before)."""

    throttle_time_ms: int = 0
    error_code: int = 0
    error_message: str | None = None
    member_id: str | None = None
    member_epoch: int = 0
    heartbeat_interval_ms: int = 0
    assignment: Assignment | None = None
