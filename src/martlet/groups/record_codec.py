"""The groups machine's records as keys and values of `__consumer_offsets`, byte for byte as Kafka writes them.

A key is a version of 16 bits that says what kind of record it is, then the fields that name the thing; it is never
flexible. A value of None is a tombstone. The values themselves are `record_values.py`'s. Kinds we do not know (share
groups, a newer Kafka's) read as None and are left alone; bytes of a kind we do know that cannot be read are a
ProtocolViolation that names the record, and nothing else is ever raised for bytes.

Offsets in a transaction look like others; that they are is said by their batch, and how it ended by a control batch.

Proved by: tests/unit/groups/test_record_codec.py, tests/properties/test_group_record_codec.py
"""

from collections.abc import Callable, Mapping, Sequence
from struct import Struct, error
from typing import Any, Final, NamedTuple, TypeAlias

from martlet.base.errors import ApiError, ErrorCode, ProtocolViolation
from martlet.coordinator.result import OfProducer
from martlet.groups import record_values as values
from martlet.groups.records import (
    ClassicGroupRemoved,
    ClassicGroupStored,
    ConsumerGroupRemoved,
    ConsumerGroupStored,
    ConsumerMemberRemoved,
    ConsumerMemberStored,
    CurrentAssigned,
    CurrentRemoved,
    OffsetCommitted,
    OffsetPending,
    OffsetRemoved,
    OffsetsDecided,
    RegexRemoved,
    RegexResolved,
    TargetAssigned,
    TargetEpochRemoved,
    TargetEpochStored,
    TargetRemoved,
    TransactionalRecord,
)
from martlet.wire.batch import TransactionMarker, encode_marker, parse_marker
from martlet.wire.cursor import Cursor
from martlet.wire.primitives import STRING_BYTES_MAX, write_string

_INT16: Final = Struct(">h")
_INT32: Final = Struct(">i")
_INT64: Final = Struct(">q")
_OFFSET_AND_EPOCH: Final = Struct(">qi")

KeyFields: TypeAlias = tuple[Any, ...]


class RecordKind(NamedTuple):
    """One kind of record: the version and fields of its key, its two records, and how its value is written and read."""

    key_version: int
    key_fields: tuple[str, ...]
    stored: type[Any]
    removed: type[Any]
    write: Callable[[Any], bytes]
    read: Callable[..., Any]


KINDS: Final = (
    RecordKind(
        1, ("group_id", "topic", "partition"), OffsetCommitted, OffsetRemoved, values.write_offset, values.read_offset
    ),
    RecordKind(
        2, ("group_id",), ClassicGroupStored, ClassicGroupRemoved, values.write_classic_group, values.read_classic_group
    ),
    RecordKind(
        3,
        ("group_id",),
        ConsumerGroupStored,
        ConsumerGroupRemoved,
        values.write_consumer_group,
        values.read_consumer_group,
    ),
    RecordKind(
        5,
        ("group_id", "member_id"),
        ConsumerMemberStored,
        ConsumerMemberRemoved,
        values.write_member,
        values.read_member,
    ),
    RecordKind(
        6, ("group_id",), TargetEpochStored, TargetEpochRemoved, values.write_target_epoch, values.read_target_epoch
    ),
    RecordKind(7, ("group_id", "member_id"), TargetAssigned, TargetRemoved, values.write_target, values.read_target),
    RecordKind(
        8, ("group_id", "member_id"), CurrentAssigned, CurrentRemoved, values.write_current, values.read_current
    ),
    RecordKind(16, ("group_id", "regex"), RegexResolved, RegexRemoved, values.write_regex, values.read_regex),
)


class GroupRecordCodec:
    """The form of group records in the log."""

    __slots__ = ("_by_key_version", "_by_removed", "_by_stored")

    def __init__(self, kinds: Sequence[RecordKind] = KINDS) -> None:
        self._by_key_version: Mapping[int, RecordKind] = {
            # Version 0 of the offset's key has the same fields.
            0: KINDS[0],
            **{kind.key_version: kind for kind in kinds},
        }
        self._by_stored: Mapping[type[Any], RecordKind] = {kind.stored: kind for kind in kinds}
        self._by_removed: Mapping[type[Any], RecordKind] = {kind.removed: kind for kind in kinds}

    def encode(self, record: object) -> tuple[bytes, bytes | None] | None:
        """Key and value, None as value for a tombstone; None for a record that lives in this process only.

        Raises ApiError for a record that the format cannot hold, such as a name of more than 32,767 bytes.
        """
        if isinstance(record, OffsetPending):
            return self.encode(record.commit)
        if isinstance(record, OffsetsDecided):
            return encode_marker(TransactionMarker(record.is_commit, record.coordinator_epoch))
        stored = self._by_stored.get(type(record))
        kind = stored or self._by_removed.get(type(record))
        if kind is None:
            return None
        try:
            return _write_key(kind, record), kind.write(record) if stored else None
        except (error, ValueError) as problem:
            title = f"{type(record).__name__} cannot be stored"
            raise ApiError(ErrorCode.INVALID_REQUEST, f"{title}: {problem}") from problem

    def decode_of_producer(self, of: OfProducer, key: bytes, value: bytes | None) -> TransactionalRecord | None:
        """The record in a producer's batch: an offset, or how the transaction has ended; None for another kind."""
        if of.is_control:
            marker = parse_marker(key, value)
            if marker is None:
                return None
            return OffsetsDecided(of.producer_id, of.producer_epoch, marker.is_commit, marker.coordinator_epoch)
        record: object = self.decode(key, value)
        if not isinstance(record, OffsetCommitted):
            return None
        return OffsetPending(of.producer_id, of.producer_epoch, record)

    def decode(self, key: bytes, value: bytes | None) -> Any:
        """The record with this key and value; None for a kind this version does not know."""
        usual = _usual_offset(key, value)
        if usual is not None:
            return usual
        cursor = Cursor(key)
        kind = self._by_key_version.get(_key_version(cursor))
        if kind is None:
            return None
        try:
            fields = _read_key(kind, cursor)
        except ProtocolViolation as violation:
            raise ProtocolViolation(f"the key of a {kind.stored.__name__} record: {violation}") from None
        if value is None:
            removed: object = kind.removed(*fields)
            return removed
        try:
            return _read_value(kind, fields, value)
        except ProtocolViolation as violation:
            name = ", ".join(repr(field) for field in fields)
            raise ProtocolViolation(f"{kind.stored.__name__} record of {name}: {violation}") from None


def _usual_offset(key: bytes, value: bytes | None) -> OffsetCommitted | None:
    """An offset in version 3, which nearly every record of a log is, read at a quarter of the general way's cost.

    None for anything else, and for bytes that are wrong; the general way then finds out what.
    """
    if value is None or key[:2] != b"\x00\x01" or value[:2] != b"\x00\x03":
        return None
    group_bytes = int.from_bytes(key[2:4], "big")
    group_end = 4 + group_bytes
    topic_start = group_end + 2
    topic_bytes = int.from_bytes(key[group_end:topic_start], "big")
    topic_end = topic_start + topic_bytes
    metadata_bytes = int.from_bytes(value[14:16], "big")
    metadata_end = 16 + metadata_bytes
    if len(key) != topic_end + 4 or len(value) != metadata_end + 8:
        return None
    if max(group_bytes, topic_bytes, metadata_bytes) > STRING_BYTES_MAX:
        return None
    offset, leader_epoch = _OFFSET_AND_EPOCH.unpack_from(value, 2)
    try:
        return OffsetCommitted(
            key[4:group_end].decode(),
            key[topic_start:topic_end].decode(),
            _INT32.unpack_from(key, topic_end)[0],
            offset,
            leader_epoch,
            value[16:metadata_end].decode(),
            _INT64.unpack_from(value, metadata_end)[0],
        )
    except UnicodeDecodeError:
        return None


def _write_key(kind: RecordKind, record: object) -> bytes:
    out = bytearray(_INT16.pack(kind.key_version))
    for name in kind.key_fields:
        field = getattr(record, name)
        if isinstance(field, int):
            out += _INT32.pack(field)
        else:
            write_string(out, field)
    return bytes(out)


def _key_version(cursor: Cursor) -> int:
    try:
        return cursor.int16()
    except ProtocolViolation:
        raise ProtocolViolation(f"a group record with a key of {len(cursor.data)} bytes") from None


def _read_key(kind: RecordKind, cursor: Cursor) -> KeyFields:
    fields = tuple(cursor.int32() if name == "partition" else cursor.string() for name in kind.key_fields)
    cursor.expect_end()
    return fields


def _read_value(kind: RecordKind, fields: KeyFields, value: bytes) -> object:
    cursor = Cursor(value)
    version = cursor.int16()
    record: object = kind.read(cursor, version, *fields)
    cursor.expect_end()
    return record
