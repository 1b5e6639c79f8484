"""ShareGroupDescribe (key 77): members, epochs and assignments of share groups. Version 1, flexible."""

from dataclasses import field

from martlet.wire.message import message
from martlet.wire.messages.authorized_operations import OPERATIONS_NOT_REQUESTED


@message
class ShareGroupDescribeRequest:
    """The groups wanted."""

    group_ids: list[str] = field(default_factory=list)
    include_authorized_operations: bool = False


@message
class TopicPartitions:
    """Partitions of one topic."""

    topic_id: bytes = bytes(16)
    topic_name: str = ""
    partitions: list[int] = field(default_factory=list)


@message
class Assignment:
    """Partitions of a member."""

    topic_partitions: list[TopicPartitions] = field(default_factory=list)


@message
class Member:
    """One member and what it may fetch from."""

    member_id: str = ""
    rack_id: str | None = None
    member_epoch: int = 0
    client_id: str = ""
    client_host: str = ""
    subscribed_topic_names: list[str] = field(default_factory=list)
    assignment: Assignment = field(default_factory=Assignment)


@message
class DescribedGroup:
    """One group."""

    error_code: int = 0
    error_message: str | None = None
    group_id: str = ""
    group_state: str = ""
    group_epoch: int = 0
    assignment_epoch: int = 0
    assignor_name: str = ""
    members: list[Member] = field(default_factory=list)
    authorized_operations: int = OPERATIONS_NOT_REQUESTED


@message
class ShareGroupDescribeResponse:
    """The answers, one per group."""

    throttle_time_ms: int = 0
    groups: list[DescribedGroup] = field(default_factory=list)
