"""TxnOffsetCommit (key 28): a transaction stores how far a group has read; it counts when the transaction is committed.

Versions 0–5. v2 adds leader epochs; v3 is the first flexible one and names the member that commits; v4 allows
TRANSACTION_ABORTABLE; v5 is the second generation: the offsets become part of the transaction by this request itself.
"""

from dataclasses import field

from martlet.wire.message import message


@message
class TxnOffsetCommitRequestPartition:
    """The offset of the next message to read in one partition, and a note of the client's."""

    partition_index: int = 0
    committed_offset: int = 0
    committed_leader_epoch: int = -1  # v2+
    committed_metadata: str | None = None


@message
class TxnOffsetCommitRequestTopic:
    """The partitions of one topic."""

    name: str = ""
    partitions: list[TxnOffsetCommitRequestPartition] = field(default_factory=list)


@message
class TxnOffsetCommitRequest:
    """What is committed, in whose transaction, for which group and by which member of it."""

    transactional_id: str = ""
    group_id: str = ""
    producer_id: int = 0
    producer_epoch: int = 0
    generation_id: int = -1  # v3+
    member_id: str = ""  # v3+
    group_instance_id: str | None = None  # v3+
    topics: list[TxnOffsetCommitRequestTopic] = field(default_factory=list)


@message
class TxnOffsetCommitResponsePartition:
    """Whether the offset of one partition was stored."""

    partition_index: int = 0
    error_code: int = 0


@message
class TxnOffsetCommitResponseTopic:
    """The answers for one topic."""

    name: str = ""
    partitions: list[TxnOffsetCommitResponsePartition] = field(default_factory=list)


@message
class TxnOffsetCommitResponse:
    """The answers; an error that concerns the group or the transaction stands in every partition."""

    throttle_time_ms: int = 0
    topics: list[TxnOffsetCommitResponseTopic] = field(default_factory=list)
