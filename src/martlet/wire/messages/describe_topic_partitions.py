"""DescribeTopicPartitions (key 75): topics in pages, sorted by name, with a cursor.

Version 0 only, flexible. The empty list of topics is all topics.
"""

from dataclasses import field

from martlet.wire.message import message
from martlet.wire.messages.authorized_operations import OPERATIONS_NOT_REQUESTED


@message
class TopicRequest:
    """One topic by name."""

    name: str = ""


@message
class Cursor:
    """The first partition of the page: sent back in the next request."""

    topic_name: str = ""
    partition_index: int = 0


@message
class DescribeTopicPartitionsRequest:
    """The topics wanted and where to go on."""

    topics: list[TopicRequest] = field(default_factory=list)
    response_partition_limit: int = 2000
    cursor: Cursor | None = None


@message
class DescribeTopicPartitionsResponsePartition:
    """Who leads one partition, who holds copies and who may lead."""

    error_code: int = 0
    partition_index: int = 0
    leader_id: int = 0
    leader_epoch: int = -1
    replica_nodes: list[int] = field(default_factory=list)
    isr_nodes: list[int] = field(default_factory=list)
    eligible_leader_replicas: list[int] | None = None
    last_known_elr: list[int] | None = None
    offline_replicas: list[int] = field(default_factory=list)


@message
class DescribeTopicPartitionsResponseTopic:
    """One topic, possibly with only some of its partitions."""

    error_code: int = 0
    name: str | None = None
    topic_id: bytes = bytes(16)
    is_internal: bool = False
    partitions: list[DescribeTopicPartitionsResponsePartition] = field(default_factory=list)
    topic_authorized_operations: int = OPERATIONS_NOT_REQUESTED


@message
class DescribeTopicPartitionsResponse:
    """One page; `next_cursor` is None on the last."""

    throttle_time_ms: int = 0
    topics: list[DescribeTopicPartitionsResponseTopic] = field(default_factory=list)
    next_cursor: Cursor | None = None
