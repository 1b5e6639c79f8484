"""OffsetDelete (key 47): forget what a group has committed for some partitions.

Version 0, which is not flexible.
"""

from dataclasses import field

from martlet.wire.message import message


@message
class OffsetDeleteRequestPartition:
    """One partition."""

    partition_index: int = 0


@message
class OffsetDeleteRequestTopic:
    """The partitions of one topic."""

    name: str = ""
    partitions: list[OffsetDeleteRequestPartition] = field(default_factory=list)


@message
class OffsetDeleteRequest:
    """What to forget."""

    group_id: str = ""
    topics: list[OffsetDeleteRequestTopic] = field(default_factory=list)


@message
class OffsetDeleteResponsePartition:
    """Whether the offset of one partition is gone."""

    partition_index: int = 0
    error_code: int = 0


@message
class OffsetDeleteResponseTopic:
    """The answers for one topic."""

    name: str = ""
    partitions: list[OffsetDeleteResponsePartition] = field(default_factory=list)


@message
class OffsetDeleteResponse:
    """The answers; with an error of the whole request the topics are empty."""

    error_code: int = 0
    throttle_time_ms: int = 0
    topics: list[OffsetDeleteResponseTopic] = field(default_factory=list)
