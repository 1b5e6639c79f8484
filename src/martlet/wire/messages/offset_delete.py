"""OffsetDelete (key 47): forget what a group has committed for some partitions.

Version 0, which is not flexible.
"""

from dataclasses import dataclass, field


@dataclass(slots=True)
class OffsetDeleteRequestPartition:
    """One partition."""

    partition_index: int = 0


@dataclass(slots=True)
class OffsetDeleteRequestTopic:
    """The partitions of one topic."""

    name: str = ""
    partitions: list[OffsetDeleteRequestPartition] = field(default_factory=list)


@dataclass(slots=True)
class OffsetDeleteRequest:
    """What to forget."""

    group_id: str = ""
    topics: list[OffsetDeleteRequestTopic] = field(default_factory=list)


@dataclass(slots=True)
class OffsetDeleteResponsePartition:
    """Whether the offset of one partition is gone."""

    partition_index: int = 0
    error_code: int = 0


@dataclass(slots=True)
class OffsetDeleteResponseTopic:
    """The answers for one topic."""

    name: str = ""
    partitions: list[OffsetDeleteResponsePartition] = field(default_factory=list)


@dataclass(slots=True)
class OffsetDeleteResponse:
    """The answers; with an error of the whole request the topics are empty."""

    error_code: int = 0
    throttle_time_ms: int = 0
    topics: list[OffsetDeleteResponseTopic] = field(default_factory=list)
