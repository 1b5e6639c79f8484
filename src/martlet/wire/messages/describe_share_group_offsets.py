"""DescribeShareGroupOffsets (key 90): where share groups stand in the partitions they consume.

Versions 0–1, flexible. v1 adds the lag.
"""

from dataclasses import field

from martlet.wire.message import message


@message
class DescribeShareGroupOffsetsRequestTopic:
    """Partitions of one topic."""

    topic_name: str = ""
    partitions: list[int] = field(default_factory=list)


@message
class DescribeShareGroupOffsetsRequestGroup:
    """One group; without topics all partitions are meant."""

    group_id: str = ""
    topics: list[DescribeShareGroupOffsetsRequestTopic] | None = field(default_factory=list)


@message
class DescribeShareGroupOffsetsRequest:
    """The groups wanted."""

    groups: list[DescribeShareGroupOffsetsRequestGroup] = field(default_factory=list)


@message
class DescribeShareGroupOffsetsResponsePartition:
    """Everything before the start offset is finished; -1 where nothing is known."""

    partition_index: int = 0
    start_offset: int = 0
    leader_epoch: int = 0
    lag: int = -1  # v1+
    error_code: int = 0
    error_message: str | None = None


@message
class DescribeShareGroupOffsetsResponseTopic:
    """One topic of the answer."""

    topic_name: str = ""
    topic_id: bytes = bytes(16)
    partitions: list[DescribeShareGroupOffsetsResponsePartition] = field(default_factory=list)


@message
class DescribeShareGroupOffsetsResponseGroup:
    """One group of the answer."""

    group_id: str = ""
    topics: list[DescribeShareGroupOffsetsResponseTopic] = field(default_factory=list)
    error_code: int = 0
    error_message: str | None = None


@message
class DescribeShareGroupOffsetsResponse:
    """The answers, one per group."""

    throttle_time_ms: int = 0
    groups: list[DescribeShareGroupOffsetsResponseGroup] = field(default_factory=list)
