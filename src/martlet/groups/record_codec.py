"""The groups machine's records as keys and values of `__consumer_offsets`, byte for byte as Kafka writes them.

A key is a version of 16 bits that says what kind of record it is, then the fields that name the thing; it is never
flexible. A value of None is a tombstone. The values themselves are `record_values.py`'s. Kinds we do not know (a
newer Kafka's) read as None and are left alone; bytes of a kind we do know that cannot be read are a
ProtocolViolation that names the record, and nothing else is ever raised for bytes.

Offsets in a transaction look like others; that they are is said by their batch, and how it ended by a control batch.

Proved by: tests/unit/groups/test_record_codec.py, tests/properties/test_group_record_codec.py
"""

from collections.abc import Mapping, Sequence
from struct import Struct, error
from typing import Any, Final, NamedTuple

from martlet.base.errors import ApiError, ErrorCode, ProtocolViolation
from martlet.coordinator.result import OfProducer
from martlet.groups import record_values as values
from martlet.groups.records import (
    ClassicGroupRemoved,
    ConsumerGroupRemoved,
    ConsumerMemberRemoved,
    CurrentRemoved,
    OffsetCommitted,
    OffsetPending,
    OffsetRemoved,
    OffsetsDecided,
    RegexRemoved,
    TargetEpochRemoved,
    TargetRemoved,
    TransactionalRecord,
)
from martlet.wire.batch import TransactionMarker, encode_marker, parse_marker
from martlet.wire.field_table import NEVER, Field, Table
from martlet.wire.primitives import STRING_BYTES_MAX

_VERSION: Final = Struct(">h")
_INT32: Final = Struct(">i")
_INT64: Final = Struct(">q")
_OFFSET_AND_EPOCH: Final = Struct(">qi")
_VERSION_OF_EXPIRY: Final = 1
"""Of an offset that says itself when it expires."""


class RecordKind(NamedTuple):
    """One kind of record: version and fields of its key, fields of its value, its tombstone."""

    key_version: int
    key: Table
    value: Table
    removed: type[Any]
    written_version: int = 0


def record_kind(
    key_version: int, key_fields: tuple[Field, ...], value: Table, removed: type[Any], version: int = 0
) -> RecordKind:
    """A kind whose value is written in this version."""
    return RecordKind(key_version, Table(value.record, *key_fields, flexible_since=NEVER), value, removed, version)


GROUP: Final = Field("group_id", "string")
MEMBER: Final = Field("member_id", "string")
_OFFSET: Final = record_kind(
    1, (GROUP, Field("topic", "string"), Field("partition", "i")), values.OFFSET, OffsetRemoved, 3
)
KINDS: Final = (
    _OFFSET,
    record_kind(2, (GROUP,), values.CLASSIC_GROUP, ClassicGroupRemoved, 3),
    record_kind(3, (GROUP,), values.CONSUMER_GROUP, ConsumerGroupRemoved),
    record_kind(5, (GROUP, MEMBER), values.CONSUMER_MEMBER, ConsumerMemberRemoved),
    record_kind(6, (GROUP,), values.TARGET_EPOCH, TargetEpochRemoved),
    record_kind(7, (GROUP, MEMBER), values.TARGET, TargetRemoved),
    record_kind(8, (GROUP, MEMBER), values.CURRENT, CurrentRemoved),
    record_kind(16, (GROUP, Field("regex", "string")), values.REGEX, RegexRemoved),
)


class GroupRecordCodec:
    """The form of group records in the log."""

    __slots__ = ("_by_key_version", "_by_removed", "_by_stored")

    def __init__(self, kinds: Sequence[RecordKind] = KINDS) -> None:
        self._by_key_version: Mapping[int, RecordKind] = {
            # Version 0 of the offset's key has the same fields.
            0: _OFFSET,
            **{kind.key_version: kind for kind in kinds},
        }
        self._by_stored: Mapping[type[Any], RecordKind] = {kind.value.record: kind for kind in kinds}
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
            key = _VERSION.pack(kind.key_version) + kind.key.encode(record)
            return key, _value_of(kind, record) if stored else None
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
        kind = self._by_key_version.get(_version_of(key, "key"))
        if kind is None:
            return None
        name = kind.value.record.__name__
        try:
            fields = kind.key.decode(key)
        except ProtocolViolation as violation:
            raise ProtocolViolation(f"the key of a {name} record: {violation}") from None
        if value is None:
            removed: object = kind.removed(*fields)
            return removed
        try:
            version = _version_of(value, "value")
            if not 0 <= version <= kind.value.newest:
                raise ProtocolViolation(f"the value has version {version}, and we read 0 to {kind.value.newest}")
            stored: object = kind.value.record(*fields, *kind.value.decode(value, version))
            return stored
        except ProtocolViolation as violation:
            of = ", ".join(repr(field) for field in fields)
            raise ProtocolViolation(f"{name} record of {of}: {violation}") from None


def _usual_offset(key: bytes, value: bytes | None) -> OffsetCommitted | None:
    """An offset in version 3, which nearly every record of a log is, read at half the general way's cost.

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


def _value_of(kind: RecordKind, record: Any) -> bytes:
    version = kind.written_version
    if kind is _OFFSET and record.expires_at_ms >= 0:
        version = _VERSION_OF_EXPIRY
    return _VERSION.pack(version) + kind.value.encode(record, version)


def _version_of(data: bytes, what: str) -> int:
    if len(data) < _VERSION.size:
        raise ProtocolViolation(f"a group record with a {what} of {len(data)} bytes")
    version: int = _VERSION.unpack_from(data)[0]
    return version
