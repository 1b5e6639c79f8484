"""The records of share groups as keys and values of `__consumer_offsets`, byte for byte as Kafka writes them.

Every value has one version, flexible; what newer brokers add to it in tagged fields is skipped.

Proved by: tests/unit/groups/share/test_record_kinds.py
"""

from struct import Struct
from typing import Final

from martlet.groups.record_codec import RecordKind
from martlet.groups.record_values import (
    check_version,
    member_state,
    read_partitions,
    read_strings,
    write_nullable_text,
    write_partitions,
    write_strings,
    write_text,
)
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
from martlet.wire.cursor import Cursor

_VERSION: Final = b"\x00\x00"
_NO_TAGGED_FIELDS: Final = b"\x00"
_EPOCH: Final = Struct(">i")
_EPOCH_AND_HASH: Final = Struct(">iq")
_CURRENT: Final = Struct(">iib")


def _write_member(record: ShareMemberStored) -> bytes:
    out = bytearray(_VERSION)
    write_nullable_text(out, record.rack_id)
    write_text(out, record.client_id)
    write_text(out, record.client_host)
    write_strings(out, record.topic_names)
    return bytes(out + _NO_TAGGED_FIELDS)


def _read_member(cursor: Cursor, version: int, group_id: str, member_id: str) -> ShareMemberStored:
    check_version(version, 0)
    rack_id = cursor.nullable_string(compact=True)
    client_id, client_host = cursor.string(compact=True), cursor.string(compact=True)
    topic_names = read_strings(cursor)
    cursor.skip_tagged_fields()
    return ShareMemberStored(group_id, member_id, rack_id, client_id, client_host, topic_names)


def _write_group(record: ShareGroupStored) -> bytes:
    return _VERSION + _EPOCH_AND_HASH.pack(record.epoch, record.metadata_hash) + _NO_TAGGED_FIELDS


def _read_group(cursor: Cursor, version: int, group_id: str) -> ShareGroupStored:
    check_version(version, 0)
    record = ShareGroupStored(group_id, cursor.int32(), cursor.int64())
    cursor.skip_tagged_fields()
    return record


def _write_target_epoch(record: ShareTargetEpochStored) -> bytes:
    return _VERSION + _EPOCH.pack(record.epoch) + _NO_TAGGED_FIELDS


def _read_target_epoch(cursor: Cursor, version: int, group_id: str) -> ShareTargetEpochStored:
    check_version(version, 0)
    record = ShareTargetEpochStored(group_id, cursor.int32())
    cursor.skip_tagged_fields()
    return record


def _write_target(record: ShareTargetAssigned) -> bytes:
    out = bytearray(_VERSION)
    write_partitions(out, record.partitions)
    return bytes(out + _NO_TAGGED_FIELDS)


def _read_target(cursor: Cursor, version: int, group_id: str, member_id: str) -> ShareTargetAssigned:
    check_version(version, 0)
    record = ShareTargetAssigned(group_id, member_id, read_partitions(cursor))
    cursor.skip_tagged_fields()
    return record


def _write_current(record: ShareCurrentAssigned) -> bytes:
    out = bytearray(_VERSION)
    out += _CURRENT.pack(record.epoch, record.previous_epoch, record.state)
    write_partitions(out, record.assigned)
    return bytes(out + _NO_TAGGED_FIELDS)


def _read_current(cursor: Cursor, version: int, group_id: str, member_id: str) -> ShareCurrentAssigned:
    check_version(version, 0)
    epoch, previous_epoch = cursor.int32(), cursor.int32()
    state = member_state(cursor.int8())
    assigned = read_partitions(cursor)
    cursor.skip_tagged_fields()
    return ShareCurrentAssigned(group_id, member_id, epoch, previous_epoch, state, assigned)


SHARE_KINDS: Final = (
    RecordKind(10, ("group_id", "member_id"), ShareMemberStored, ShareMemberRemoved, _write_member, _read_member),
    RecordKind(11, ("group_id",), ShareGroupStored, ShareGroupRemoved, _write_group, _read_group),
    RecordKind(
        12, ("group_id",), ShareTargetEpochStored, ShareTargetEpochRemoved, _write_target_epoch, _read_target_epoch
    ),
    RecordKind(13, ("group_id", "member_id"), ShareTargetAssigned, ShareTargetRemoved, _write_target, _read_target),
    RecordKind(14, ("group_id", "member_id"), ShareCurrentAssigned, ShareCurrentRemoved, _write_current, _read_current),
)
