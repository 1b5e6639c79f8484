"""Every durable record of the groups machine, as the machine sees it; `record_codec.py` knows its bytes.

A `…Removed` is the tombstone of the record it is named after. The set of records is Kafka's: the same keys say the
same things in `__consumer_offsets`, so tools that read that topic understand ours.
"""

from dataclasses import dataclass
from enum import IntEnum
from typing import TypeAlias

from martlet.base.ids import TopicId

Partitions: TypeAlias = frozenset[tuple[TopicId, int]]
"""A set of partitions by topic id."""

NO_PARTITIONS: Partitions = frozenset()


@dataclass(frozen=True, slots=True)
class OffsetCommitted:
    """Key version 1: how far a group has come in one partition."""

    group_id: str
    topic: str
    partition: int
    offset: int
    leader_epoch: int = -1
    metadata: str = ""
    committed_at_ms: int = 0
    expires_at_ms: int = -1
    """Set by clients of old that choose a retention themselves; -1: the broker's retention counts."""


@dataclass(frozen=True, slots=True)
class OffsetRemoved:
    """The group has no offset in this partition any more."""

    group_id: str
    topic: str
    partition: int


@dataclass(frozen=True, slots=True)
class OffsetPending:
    """An offset in a producer's transaction, which counts when the transaction is committed."""

    producer_id: int
    producer_epoch: int
    commit: OffsetCommitted


@dataclass(frozen=True, slots=True)
class OffsetsDecided:
    """How the producer's transaction has ended, for all its offsets."""

    producer_id: int
    producer_epoch: int
    is_commit: bool
    coordinator_epoch: int = 0


@dataclass(frozen=True, slots=True)
class ClassicMemberStored:
    """One member as the last completed rebalance left it; its metadata is opaque."""

    member_id: str
    instance_id: str | None
    client_id: str
    client_host: str
    rebalance_timeout_ms: int
    session_timeout_ms: int
    subscription: bytes
    assignment: bytes


@dataclass(frozen=True, slots=True)
class ClassicGroupStored:
    """Key version 2: a classic group after a completed rebalance, or empty."""

    group_id: str
    protocol_type: str
    generation: int
    protocol_name: str | None
    leader: str | None
    changed_at_ms: int
    members: tuple[ClassicMemberStored, ...] = ()


@dataclass(frozen=True, slots=True)
class ClassicGroupRemoved:
    """The classic group is gone, or has become a consumer group."""

    group_id: str


@dataclass(frozen=True, slots=True)
class ConsumerGroupStored:
    """Key version 3: the group epoch, which grows with every change of members, subscriptions or topics."""

    group_id: str
    epoch: int
    metadata_hash: int = 0
    """Fingerprint of the subscribed topics as the epoch saw them; 0: not known."""


@dataclass(frozen=True, slots=True)
class ConsumerGroupRemoved:
    """The consumer group is gone, or has become a classic group."""

    group_id: str


@dataclass(frozen=True, slots=True)
class ClassicProtocolStored:
    """What a member that speaks the classic protocol has said about itself when it joined a consumer group."""

    session_timeout_ms: int
    protocols: tuple[tuple[str, bytes], ...]


@dataclass(frozen=True, slots=True)
class ConsumerMemberStored:
    """Key version 5: what a member has subscribed to."""

    group_id: str
    member_id: str
    instance_id: str | None = None
    rack_id: str | None = None
    client_id: str = ""
    client_host: str = ""
    topic_names: tuple[str, ...] = ()
    topic_regex: str | None = None
    rebalance_timeout_ms: int = -1
    assignor: str | None = None
    classic: ClassicProtocolStored | None = None


@dataclass(frozen=True, slots=True)
class ConsumerMemberRemoved:
    """The member is gone."""

    group_id: str
    member_id: str


@dataclass(frozen=True, slots=True)
class TargetEpochStored:
    """Key version 6: the group epoch for which the target assignment was made; written after its members' parts."""

    group_id: str
    epoch: int


@dataclass(frozen=True, slots=True)
class TargetEpochRemoved:
    group_id: str


@dataclass(frozen=True, slots=True)
class TargetAssigned:
    """Key version 7: what a member shall own."""

    group_id: str
    member_id: str
    partitions: Partitions


@dataclass(frozen=True, slots=True)
class TargetRemoved:
    group_id: str
    member_id: str


class MemberState(IntEnum):
    """Where a member stands on its way to its target; the numbers are Kafka's, in the log."""

    STABLE = 1
    UNREVOKED_PARTITIONS = 2
    UNRELEASED_PARTITIONS = 3
    UNKNOWN = 127


@dataclass(frozen=True, slots=True)
class CurrentAssigned:
    """Key version 8: what a member owns, and what it still has to give back."""

    group_id: str
    member_id: str
    epoch: int
    previous_epoch: int
    state: MemberState
    assigned: Partitions = NO_PARTITIONS
    pending_revocation: Partitions = NO_PARTITIONS


@dataclass(frozen=True, slots=True)
class CurrentRemoved:
    group_id: str
    member_id: str


@dataclass(frozen=True, slots=True)
class RegexResolved:
    """Key version 16: the topics a regular expression matched when it was last resolved."""

    group_id: str
    regex: str
    topics: tuple[str, ...]
    resolved_at_ms: int
    version: int = 0


@dataclass(frozen=True, slots=True)
class RegexRemoved:
    group_id: str
    regex: str


DurableRecord: TypeAlias = (
    OffsetCommitted
    | OffsetRemoved
    | ClassicGroupStored
    | ClassicGroupRemoved
    | ConsumerGroupStored
    | ConsumerGroupRemoved
    | ConsumerMemberStored
    | ConsumerMemberRemoved
    | TargetEpochStored
    | TargetEpochRemoved
    | TargetAssigned
    | TargetRemoved
    | CurrentAssigned
    | CurrentRemoved
    | RegexResolved
    | RegexRemoved
)

TransactionalRecord: TypeAlias = OffsetPending | OffsetsDecided
"""What stands in the batches of producers' transactions."""
