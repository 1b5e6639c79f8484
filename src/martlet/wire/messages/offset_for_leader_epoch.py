"""OffsetForLeaderEpoch (key 23): where a leader epoch ended, so that a follower or client can find its divergence.

Versions 2–4. v3 adds the asking replica's id; v4 is the first flexible one.
"""

from dataclasses import field

from martlet.wire.message import message


@message
class OffsetForLeaderPartition:
    """One partition and the epoch asked about."""

    partition: int = 0
    current_leader_epoch: int = -1
    leader_epoch: int = 0


@message
class OffsetForLeaderTopic:
    """The partitions of one topic."""

    topic: str = ""
    partitions: list[OffsetForLeaderPartition] = field(default_factory=list)


@message
class OffsetForLeaderEpochRequest:
    """What is asked; a client says replica -1, and -2 is Kafka's word for a debugging client."""

    replica_id: int = -2  # v3+
    topics: list[OffsetForLeaderTopic] = field(default_factory=list)


@message
class EpochEndOffset:
    """The end of the largest epoch that is not larger than the one asked for."""

    error_code: int = 0
    partition: int = 0
    leader_epoch: int = -1
    end_offset: int = -1


@message
class OffsetForLeaderTopicResult:
    """The answers for one topic."""

    topic: str = ""
    partitions: list[EpochEndOffset] = field(default_factory=list)


@message
class OffsetForLeaderEpochResponse:
    """The answers."""

    throttle_time_ms: int = 0
    topics: list[OffsetForLeaderTopicResult] = field(default_factory=list)
