"""DeleteRecords (key 21): move the start of partitions forward.

Versions 0–2; v2 is the first flexible one.
"""

from dataclasses import field

from martlet.wire.message import message


@message
class DeleteRecordsPartition:
    """One partition and its wanted first offset; -1 is the high watermark."""

    partition_index: int = 0
    offset: int = 0


@message
class DeleteRecordsTopic:
    """The partitions of one topic."""

    name: str = ""
    partitions: list[DeleteRecordsPartition] = field(default_factory=list)


@message
class DeleteRecordsRequest:
    """What to delete."""

    topics: list[DeleteRecordsTopic] = field(default_factory=list)
    timeout_ms: int = 60_000  # the schema has no default; this is that of CreateTopics


@message
class DeleteRecordsPartitionResult:
    """The partition's first offset now."""

    partition_index: int = 0
    low_watermark: int = 0
    error_code: int = 0


@message
class DeleteRecordsTopicResult:
    """The results for one topic."""

    name: str = ""
    partitions: list[DeleteRecordsPartitionResult] = field(default_factory=list)


@message
class DeleteRecordsResponse:
    """The results."""

    throttle_time_ms: int = 0
    topics: list[DeleteRecordsTopicResult] = field(default_factory=list)
