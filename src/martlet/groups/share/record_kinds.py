"""The records of share groups as keys and values of `__consumer_offsets`, byte for byte as Kafka writes them.

Every value has one version, flexible; what newer brokers add to it in tagged fields is skipped.

Proved by: tests/unit/groups/share/test_record_kinds.py
"""

from typing import Final

from martlet.groups.record_codec import GROUP, MEMBER, record_kind
from martlet.groups.record_values import TOPIC_PARTITIONS, dump_partitions, load_partitions, member_state
from martlet.groups.share.records import (
    ShareCurrentAssigned,
    ShareCurrentRemoved,
    ShareGroupRemoved,
    ShareGroupStored,
    ShareMemberRemoved,
    ShareMemberStored,
    ShareTargetAssigned,
    ShareTargetEpochRemoved,
    ShareTargetEpochStored,
    ShareTargetRemoved,
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

SHARE_KINDS: Final = (
    record_kind(10, (GROUP, MEMBER), _MEMBER, ShareMemberRemoved),
    record_kind(11, (GROUP,), _GROUP, ShareGroupRemoved),
    record_kind(12, (GROUP,), _TARGET_EPOCH, ShareTargetEpochRemoved),
    record_kind(13, (GROUP, MEMBER), _TARGET, ShareTargetRemoved),
    record_kind(14, (GROUP, MEMBER), _CURRENT, ShareCurrentRemoved),
)
