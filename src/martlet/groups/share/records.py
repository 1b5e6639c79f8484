"""The durable records of share groups, as their machine sees them; `record_kinds.py` knows their bytes.

A `…Removed` is the tombstone of the record it is named after; keys and values are Kafka's.
"""

from dataclasses import dataclass
from typing import NamedTuple, TypeAlias

from martlet.base.ids import TopicId
from martlet.groups.records import NO_PARTITIONS, MemberState, Partitions


@dataclass(frozen=True, slots=True)
class ShareMemberStored:
    """Key version 10: what a member has subscribed to."""

    group_id: str
    member_id: str
    rack_id: str | None = None
    client_id: str = ""
    client_host: str = ""
    topic_names: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class ShareMemberRemoved:
    """The member is gone."""

    group_id: str
    member_id: str


@dataclass(frozen=True, slots=True)
class ShareGroupStored:
    """Key version 11: the group epoch, which grows with every change of members, subscriptions or topics."""

    group_id: str
    epoch: int
    metadata_hash: int = 0
    """Fingerprint of the subscribed topics as the epoch saw them; 0: not known."""


@dataclass(frozen=True, slots=True)
class ShareGroupRemoved:
    """The share group is gone."""

    group_id: str


@dataclass(frozen=True, slots=True)
class ShareTargetEpochStored:
    """Key version 12: the group epoch for which the assignment was made; written after its members' parts."""

    group_id: str
    epoch: int


@dataclass(frozen=True, slots=True)
class ShareTargetEpochRemoved:
    group_id: str


@dataclass(frozen=True, slots=True)
class ShareTargetAssigned:
    """Key version 13: what a member may fetch from, as the newest assignment says."""

    group_id: str
    member_id: str
    partitions: Partitions


@dataclass(frozen=True, slots=True)
class ShareTargetRemoved:
    group_id: str
    member_id: str


@dataclass(frozen=True, slots=True)
class ShareCurrentAssigned:
    """Key version 14: what a member was given, and in which epoch."""

    group_id: str
    member_id: str
    epoch: int
    previous_epoch: int
    state: MemberState = MemberState.STABLE
    """Always that: members of share groups give nothing back before others get it."""
    assigned: Partitions = NO_PARTITIONS


@dataclass(frozen=True, slots=True)
class ShareCurrentRemoved:
    group_id: str
    member_id: str


class TopicPartitions(NamedTuple):
    """Partitions of one topic, under its name and its id."""

    topic_id: TopicId
    name: str
    partitions: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class SharePartitionsStored:
    """Key version 15: the partitions in which the group may stand somewhere; it keeps them when members leave."""

    group_id: str
    initializing: tuple[TopicPartitions, ...] = ()
    """Kafka's, whose coordinators write state elsewhere first; read as if that had been done."""
    initialized: tuple[TopicPartitions, ...] = ()
    deleting: tuple[tuple[TopicId, str], ...] = ()
    """Topics that Kafka is about to forget; read as if that had been done."""


@dataclass(frozen=True, slots=True)
class SharePartitionsRemoved:
    group_id: str


ShareRecord: TypeAlias = (
    ShareMemberStored
    | ShareMemberRemoved
    | ShareGroupStored
    | ShareGroupRemoved
    | ShareTargetEpochStored
    | ShareTargetEpochRemoved
    | ShareTargetAssigned
    | ShareTargetRemoved
    | ShareCurrentAssigned
    | ShareCurrentRemoved
    | SharePartitionsStored
    | SharePartitionsRemoved
)
