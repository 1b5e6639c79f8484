"""The records of share groups as keys and values of `__consumer_offsets`, byte for byte as Kafka writes them.

Every value has one version, flexible; what newer brokers add to it in tagged fields is skipped.

Proved by: tests/unit/groups/share/test_record_kinds.py
"""

from collections.abc import Iterable
from typing import Any, Final, NamedTuple

from martlet.base.ids import TopicId
from martlet.groups.record_codec import GROUP, MEMBER, record_kind
from martlet.groups.record_values import TOPIC_PARTITIONS, dump_partitions, load_partitions, member_state
from martlet.groups.share.records import (
    ShareCurrentAssigned,
    ShareCurrentRemoved,
    ShareGroupRemoved,
    ShareGroupStored,
    ShareMemberRemoved,
    ShareMemberStored,
    SharePartitionsRemoved,
    SharePartitionsStored,
    ShareTargetAssigned,
    ShareTargetEpochRemoved,
    ShareTargetEpochStored,
    ShareTargetRemoved,
    TopicPartitions,
)
from martlet.wire.field_table import Field, Table

_MEMBER: Final = Table(
    ShareMemberStored,
    Field("rack_id", "string", is_nullable=True),
    Field("client_id", "string"),
    Field("client_host", "string"),
    Field("topic_names", "string", is_array=True),
    loads={"topic_names": tuple},
)
_GROUP: Final = Table(ShareGroupStored, Field("epoch", "i"), Field("metadata_hash", "q"))
_TARGET_EPOCH: Final = Table(ShareTargetEpochStored, Field("epoch", "i"))
_TARGET: Final = Table(
    ShareTargetAssigned,
    Field("partitions", TOPIC_PARTITIONS, is_array=True),
    loads={"partitions": load_partitions},
    dumps={"partitions": dump_partitions},
)
_CURRENT: Final = Table(
    ShareCurrentAssigned,
    Field("epoch", "i"),
    Field("previous_epoch", "i"),
    Field("state", "b"),
    Field("assigned", TOPIC_PARTITIONS, is_array=True),
    loads={"state": member_state, "assigned": load_partitions},
    dumps={"assigned": dump_partitions},
)


class _Topic(NamedTuple):
    topic_id: TopicId
    name: str


def _topics(read: Iterable[Any]) -> tuple[TopicPartitions, ...]:
    return tuple(TopicPartitions(topic_id, name, tuple(numbers)) for topic_id, name, numbers in read)


_PARTITIONS_OF_TOPIC: Final = Table(
    TopicPartitions, Field("topic_id", "16s"), Field("name", "string"), Field("partitions", "i", is_array=True)
)
_PARTITIONS: Final = Table(
    SharePartitionsStored,
    Field("initializing", _PARTITIONS_OF_TOPIC, is_array=True),
    Field("initialized", _PARTITIONS_OF_TOPIC, is_array=True),
    Field("deleting", Table(_Topic, Field("topic_id", "16s"), Field("name", "string")), is_array=True),
    loads={"initializing": _topics, "initialized": _topics, "deleting": tuple},
)

SHARE_KINDS: Final = (
    record_kind(10, (GROUP, MEMBER), _MEMBER, ShareMemberRemoved),
    record_kind(11, (GROUP,), _GROUP, ShareGroupRemoved),
    record_kind(12, (GROUP,), _TARGET_EPOCH, ShareTargetEpochRemoved),
    record_kind(13, (GROUP, MEMBER), _TARGET, ShareTargetRemoved),
    record_kind(14, (GROUP, MEMBER), _CURRENT, ShareCurrentRemoved),
    record_kind(15, (GROUP,), _PARTITIONS, SharePartitionsRemoved),
)
