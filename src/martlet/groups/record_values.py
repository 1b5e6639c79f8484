"""The values of the groups machine's records as bytes: Kafka's fields in Kafka's order, behind a version of 16 bits.

Only values are known here; keys, tombstones and which table belongs to which key are `record_codec.py`'s.

Offsets and classic groups are written in version 3 (offsets that expire by themselves in version 1, the only one that
can say so) and read in every version there is; the values of consumer groups have one version, flexible, and what newer
brokers add to it in tagged fields is skipped. Sets of partitions are sorted: equal sets are equal bytes.
"""

from collections.abc import Iterable
from typing import Any, Final, NamedTuple

from martlet.base.ids import TopicId
from martlet.groups.records import (
    ClassicGroupStored,
    ClassicMemberStored,
    ClassicProtocolStored,
    ConsumerGroupStored,
    ConsumerMemberStored,
    CurrentAssigned,
    MemberState,
    OffsetCommitted,
    Partitions,
    RegexResolved,
    TargetAssigned,
    TargetEpochStored,
)
from martlet.wire.field_table import Field, Table


def load_partitions(topics: Iterable[tuple[TopicId, list[int]]]) -> Partitions:
    return frozenset((topic_id, number) for topic_id, numbers in topics for number in numbers)


def dump_partitions(partitions: Partitions) -> list[tuple[TopicId, list[int]]]:
    by_topic: dict[TopicId, list[int]] = {}
    for topic_id, partition in sorted(partitions):
        by_topic.setdefault(topic_id, []).append(partition)
    return list(by_topic.items())


def member_state(number: int) -> MemberState:
    try:
        return MemberState(number)
    except ValueError:
        return MemberState.UNKNOWN


def _classic_member(value: Any) -> ClassicMemberStored:
    # Version 0 knows one timeout for both.
    session_timeout_ms = value.rebalance_timeout_ms if value.session_timeout_ms is None else value.session_timeout_ms
    return ClassicMemberStored(*value._replace(session_timeout_ms=session_timeout_ms))


def _classic_protocol(value: Any) -> ClassicProtocolStored | None:
    if value is None:
        return None
    return ClassicProtocolStored(value.session_timeout_ms, tuple(map(tuple, value.protocols)))


OFFSET: Final = Table(
    OffsetCommitted,
    Field("offset", "q"),
    Field("leader_epoch", "i", since=3, default=-1),
    Field("metadata", "string"),
    Field("committed_at_ms", "q"),
    Field("expires_at_ms", "q", since=1, until=1, default=-1),
    # Any negative number stands for "not chosen"; one form of it keeps equal records equal.
    loads={"expires_at_ms": lambda expires_at_ms: max(expires_at_ms, -1)},
    newest=4,
    flexible_since=4,
)
_CLASSIC_MEMBER: Final = Table(
    ClassicMemberStored,
    Field("member_id", "string"),
    Field("instance_id", "string", is_nullable=True, since=3),
    Field("client_id", "string"),
    Field("client_host", "string"),
    Field("rebalance_timeout_ms", "i"),
    Field("session_timeout_ms", "i", since=1),
    Field("subscription", "bytes"),
    Field("assignment", "bytes"),
    flexible_since=4,
)
CLASSIC_GROUP: Final = Table(
    ClassicGroupStored,
    Field("protocol_type", "string"),
    Field("generation", "i"),
    Field("protocol_name", "string", is_nullable=True),
    Field("leader", "string", is_nullable=True),
    Field("changed_at_ms", "q", since=2, default=-1),
    Field("members", _CLASSIC_MEMBER, is_array=True),
    loads={"members": lambda members: tuple(map(_classic_member, members))},
    newest=4,
    flexible_since=4,
)
CONSUMER_GROUP: Final = Table(
    ConsumerGroupStored, Field("epoch", "i"), Field("metadata_hash", "q", default=0, is_tagged=True)
)


class _Protocol(NamedTuple):
    name: str
    metadata: bytes


_PROTOCOL: Final = Table(_Protocol, Field("name", "string"), Field("metadata", "bytes"))
_CLASSIC_PROTOCOL: Final = Table(
    ClassicProtocolStored,
    Field("session_timeout_ms", "i"),
    Field("protocols", _PROTOCOL, is_array=True),
)
CONSUMER_MEMBER: Final = Table(
    ConsumerMemberStored,
    Field("instance_id", "string", is_nullable=True),
    Field("rack_id", "string", is_nullable=True),
    Field("client_id", "string"),
    Field("client_host", "string"),
    Field("topic_names", "string", is_array=True),
    Field("topic_regex", "string", is_nullable=True),
    Field("rebalance_timeout_ms", "i"),
    Field("assignor", "string", is_nullable=True),
    Field("classic", _CLASSIC_PROTOCOL, is_nullable=True, is_tagged=True),
    loads={"topic_names": tuple, "classic": _classic_protocol},
)


class _TopicPartitions(NamedTuple):
    topic_id: TopicId
    partitions: list[int]


TOPIC_PARTITIONS: Final = Table(_TopicPartitions, Field("topic_id", "16s"), Field("partitions", "i", is_array=True))
TARGET_EPOCH: Final = Table(TargetEpochStored, Field("epoch", "i"))
TARGET: Final = Table(
    TargetAssigned,
    Field("partitions", TOPIC_PARTITIONS, is_array=True),
    loads={"partitions": load_partitions},
    dumps={"partitions": dump_partitions},
)
CURRENT: Final = Table(
    CurrentAssigned,
    Field("epoch", "i"),
    Field("previous_epoch", "i"),
    Field("state", "b"),
    Field("assigned", TOPIC_PARTITIONS, is_array=True),
    Field("pending_revocation", TOPIC_PARTITIONS, is_array=True),
    loads={"state": member_state, "assigned": load_partitions, "pending_revocation": load_partitions},
    dumps={"assigned": dump_partitions, "pending_revocation": dump_partitions},
)
REGEX: Final = Table(
    RegexResolved,
    Field("topics", "string", is_array=True),
    Field("version", "q"),
    Field("resolved_at_ms", "q"),
    loads={"topics": tuple},
)
