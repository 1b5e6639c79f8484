"""ListOffsets (key 2): the offset that goes with a timestamp, or the first or last one.

Versions 1–11. v2 adds the isolation level and throttling; v4 leader epochs in both directions; v10 a timeout for
lookups in tiered storage. v7, v8, v9 and v11 each add a special timestamp: -3 the record with the largest timestamp, -4
the earliest offset held locally, -5 the latest tiered offset, -6 the earliest offset not yet tiered.
"""

from dataclasses import field

from martlet.wire.message import message


@message
class ListOffsetsPartition:
    """One partition; a timestamp of -1 asks for the end, -2 for the start, other negatives see above."""

    partition_index: int = 0
    current_leader_epoch: int = -1  # v4+
    timestamp: int = 0


@message
class ListOffsetsTopic:
    """The partitions of one topic."""

    name: str = ""
    partitions: list[ListOffsetsPartition] = field(default_factory=list)


@message
class ListOffsetsRequest:
    """What is asked, by whom: a replica id of -1 is a client."""

    replica_id: int = 0
    isolation_level: int = 0  # v2+
    topics: list[ListOffsetsTopic] = field(default_factory=list)
    timeout_ms: int = 0  # v10+


@message
class ListOffsetsPartitionResponse:
    """The offset found, or -1."""

    partition_index: int = 0
    error_code: int = 0
    timestamp: int = -1
    offset: int = -1
    leader_epoch: int = -1  # v4+


@message
class ListOffsetsTopicResponse:
    """The answers for one topic."""

    name: str = ""
    partitions: list[ListOffsetsPartitionResponse] = field(default_factory=list)


@message
class ListOffsetsResponse:
    """The answers."""

    throttle_time_ms: int = 0  # v2+
    topics: list[ListOffsetsTopicResponse] = field(default_factory=list)
