"""OffsetCommit (key 8): a group remembers how far it has read.

Versions 2–10. v2–v4 carry a retention time; v3 adds throttling; v6 leader epochs; v7 static members; v8 is the first
flexible one; v9 is the first that members of consumer groups may use, with their epoch as the generation, and allows
GROUP_ID_NOT_FOUND and STALE_MEMBER_EPOCH; v10 names topics by id instead of by name.
"""

from dataclasses import field

from martlet.wire.message import message


@message
class OffsetCommitRequestPartition:
    """The offset of the next message to read in one partition, and a note of the client's."""

    partition_index: int = 0
    committed_offset: int = 0
    committed_leader_epoch: int = -1  # v6+
    committed_metadata: str | None = None


@message
class OffsetCommitRequestTopic:
    """The partitions of one topic."""

    name: str = ""  # until v9
    topic_id: bytes = bytes(16)  # v10+
    partitions: list[OffsetCommitRequestPartition] = field(default_factory=list)


@message
class OffsetCommitRequest:
    """What is committed, by whom: generation -1 and an empty member id is a consumer that is in no group."""

    group_id: str = ""
    generation_id_or_member_epoch: int = -1
    member_id: str = ""
    group_instance_id: str | None = None  # v7+
    retention_time_ms: int = -1  # until v4
    topics: list[OffsetCommitRequestTopic] = field(default_factory=list)


@message
class OffsetCommitResponsePartition:
    """Whether the offset of one partition was committed."""

    partition_index: int = 0
    error_code: int = 0


@message
class OffsetCommitResponseTopic:
    """The answers for one topic."""

    name: str = ""  # until v9
    topic_id: bytes = bytes(16)  # v10+
    partitions: list[OffsetCommitResponsePartition] = field(default_factory=list)


@message
class OffsetCommitResponse:
    """The answers; an error that concerns the group stands in every partition."""

    throttle_time_ms: int = 0  # v3+
    topics: list[OffsetCommitResponseTopic] = field(default_factory=list)
