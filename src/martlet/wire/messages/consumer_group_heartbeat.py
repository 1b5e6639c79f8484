"""ConsumerGroupHeartbeat (key 68): all that a member of a consumer group sends and gets.

Versions 0–1, all flexible. v1 adds subscribing by a regular expression, and makes the member choose its own id.
"""

from dataclasses import field

from martlet.wire.message import message


@message
class TopicPartitions:
    """Partitions of one topic; in both directions."""

    topic_id: bytes = bytes(16)
    partitions: list[int] = field(default_factory=list)


@message
class ConsumerGroupHeartbeatRequest:
    """One heartbeat; None and -1 stand for "unchanged since the last one".

    An epoch of 0 joins, -1 leaves, -2 is a static member that will be back. `topic_partitions` is what it owns.
    """

    group_id: str = ""
    member_id: str = ""
    member_epoch: int = 0
    instance_id: str | None = None
    rack_id: str | None = None
    rebalance_timeout_ms: int = -1
    subscribed_topic_names: list[str] | None = None
    subscribed_topic_regex: str | None = None  # v1+
    server_assignor: str | None = None
    topic_partitions: list[TopicPartitions] | None = None


@message
class Assignment:
    """The partitions a member may own."""

    topic_partitions: list[TopicPartitions] = field(default_factory=list)


@message
class ConsumerGroupHeartbeatResponse:
    """The epoch the member is in and, when there is something new, its assignment (None: as before)."""

    throttle_time_ms: int = 0
    error_code: int = 0
    error_message: str | None = None
    member_id: str | None = None
    member_epoch: int = 0
    heartbeat_interval_ms: int = 0
    assignment: Assignment | None = None
