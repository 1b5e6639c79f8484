"""DescribeProducers (key 61): the idempotent and transactional producers a partition remembers.

Version 0 only, flexible.
"""

from dataclasses import field

from martlet.wire.message import message


@message
class TopicRequest:
    """The partitions of one topic."""

    name: str = ""
    partition_indexes: list[int] = field(default_factory=list)


@message
class DescribeProducersRequest:
    """The partitions asked for."""

    topics: list[TopicRequest] = field(default_factory=list)


@message
class ProducerState:
    """One producer as the partition remembers it; -1 where there is nothing to say."""

    producer_id: int = 0
    producer_epoch: int = 0
    last_sequence: int = -1
    last_timestamp: int = -1
    coordinator_epoch: int = 0
    current_txn_start_offset: int = -1


@message
class PartitionResponse:
    """The producers of one partition."""

    partition_index: int = 0
    error_code: int = 0
    error_message: str | None = None
    active_producers: list[ProducerState] = field(default_factory=list)


@message
class TopicResponse:
    """The answers for one topic."""

    name: str = ""
    partitions: list[PartitionResponse] = field(default_factory=list)


@message
class DescribeProducersResponse:
    """The answers."""

    throttle_time_ms: int = 0
    topics: list[TopicResponse] = field(default_factory=list)
