"""The machine's records as keys and values of `__transaction_state`, byte for byte as Kafka writes them.

A key is the version 0 in 16 bits and the transactional id; another version is a kind we do not know and is left alone.
Values are written in version 1, which is flexible, and read in versions 0 and 1. Topics stand by name, in sorted order,
so that equal records have equal bytes. Bytes that cannot be read are a ProtocolViolation that names the id, and nothing
else is raised for bytes.

Proved by: tests/unit/transactions/test_record_codec.py, tests/properties/test_transaction_record_codec.py
"""

from collections.abc import Callable
from struct import Struct, error
from typing import Any, Final

from martlet.base.errors import ApiError, ErrorCode, ProtocolViolation
from martlet.base.ids import TopicPartition, by_topic
from martlet.transactions.records import (
    NO_PARTITIONS,
    RUN_BYTES,
    GroupProgress,
    TransactionRecord,
    TransactionRemoved,
    TransactionStored,
)
from martlet.transactions.states import TransactionState
from martlet.wire.cursor import Cursor
from martlet.wire.primitives import write_compact_string, write_string, write_uvarint

_KEY_VERSION: Final = 0
_WRITTEN_VERSION: Final = 1
_FIRST_FLEXIBLE: Final = 1
_NEWEST: Final = 1

_INT16: Final = Struct(">h")
_INT32: Final = Struct(">i")
_INT64: Final = Struct(">q")
_START: Final = Struct(">hqhib")
_TIMES: Final = Struct(">qq")

_LAST_SEQUENCE: Final = 10_000
_RUNS: Final = 10_001
_NOTE: Final = 10_002
_PLACE: Final = 10_003
_DECIDED_BY: Final = 10_004
_LAST_EPOCH: Final = 10_010


class TransactionRecordCodec:
    """The form of the records in the log; has no state."""

    def encode(self, record: object) -> tuple[bytes, bytes | None] | None:
        """Key and value, None as value for a tombstone. Raises ApiError for what the format cannot hold."""
        try:
            if isinstance(record, TransactionStored):
                return _key(record.transactional_id), write_value(record)
            if isinstance(record, TransactionRemoved):
                return _key(record.transactional_id), None
        except (error, ValueError) as problem:
            title = f"{type(record).__name__} cannot be stored"
            raise ApiError(ErrorCode.INVALID_REQUEST, f"{title}: {problem}") from problem
        return None

    def decode(self, key: bytes, value: bytes | None) -> TransactionRecord | None:
        """The record with this key and value; None for a kind this version does not know."""
        cursor = Cursor(key)
        if cursor.int16() != _KEY_VERSION:
            return None
        transactional_id = cursor.string()
        cursor.expect_end()
        if value is None:
            return TransactionRemoved(transactional_id)
        try:
            return read_value(transactional_id, value)
        except ProtocolViolation as violation:
            raise ProtocolViolation(f"the record of transactional id {transactional_id!r}: {violation}") from None


def _key(transactional_id: str) -> bytes:
    out = bytearray(_INT16.pack(_KEY_VERSION))
    write_string(out, transactional_id)
    return bytes(out)


# --- writing


def write_value(record: TransactionStored) -> bytes:
    """The value in version 1."""
    out = bytearray(
        _START.pack(_WRITTEN_VERSION, record.producer_id, record.producer_epoch, record.timeout_ms, record.state.value)
    )
    _write_partitions(out, record)
    out += _TIMES.pack(record.updated_at_ms, record.started_at_ms)
    fields = _tagged(record)
    write_uvarint(out, len(fields))
    for tag, content in fields:
        write_uvarint(out, tag)
        write_uvarint(out, len(content))
        out += content
    return bytes(out)


def _write_partitions(out: bytearray, record: TransactionStored) -> None:
    if record.state is TransactionState.EMPTY:
        out.append(0)  # null
        return
    topics = by_topic(record.partitions)
    write_uvarint(out, len(topics) + 1)
    for topic, partitions in topics.items():
        write_compact_string(out, topic)
        write_uvarint(out, len(partitions) + 1)
        for partition in partitions:
            out += _INT32.pack(partition)
        out.append(0)


def _tagged(record: TransactionStored) -> list[tuple[int, bytes]]:
    """The fields that are not at their default, by rising tag."""
    fields: list[tuple[int, bytes]] = []
    if record.previous_producer_id != -1:
        fields.append((0, _INT64.pack(record.previous_producer_id)))
    if record.next_producer_id != -1:
        fields.append((1, _INT64.pack(record.next_producer_id)))
    if record.client_version:
        fields.append((2, _INT16.pack(record.client_version)))
    if record.next_producer_epoch != -1:
        fields.append((3, _INT16.pack(record.next_producer_epoch)))
    group = record.group
    if group is not None:
        fields += [
            (_LAST_SEQUENCE, _INT64.pack(group.last_sequence)),
            (_RUNS, b"".join(group.runs)),
            (_NOTE, group.note),
            (_PLACE, group.place.encode()),
            (_DECIDED_BY, group.decided_by),
        ]
    if record.last_producer_epoch != -1:
        fields.append((_LAST_EPOCH, _INT16.pack(record.last_producer_epoch)))
    return fields


# --- reading


def read_value(transactional_id: str, value: bytes) -> TransactionStored:
    """The value in any version there is."""
    cursor = Cursor(value)
    version = cursor.int16()
    if not 0 <= version <= _NEWEST:
        raise ProtocolViolation(f"version {version} of a value is not known")
    is_flexible = version >= _FIRST_FLEXIBLE
    producer_id, epoch, timeout_ms = cursor.int64(), cursor.int16(), cursor.int32()
    state = _state(cursor.int8())
    partitions = _read_partitions(cursor, is_flexible)
    updated_at_ms, started_at_ms = cursor.int64(), cursor.int64()
    tagged = cursor.tagged_fields() if is_flexible else {}
    cursor.expect_end()
    return TransactionStored(
        transactional_id,
        producer_id,
        epoch,
        timeout_ms,
        state,
        partitions,
        updated_at_ms,
        started_at_ms,
        previous_producer_id=_number(tagged, 0, Cursor.int64),
        next_producer_id=_number(tagged, 1, Cursor.int64),
        next_producer_epoch=_number(tagged, 3, Cursor.int16),
        client_version=_number(tagged, 2, Cursor.int16, 0),
        last_producer_epoch=_number(tagged, _LAST_EPOCH, Cursor.int16),
        group=_read_group(tagged),
    )


def _state(number: int) -> TransactionState:
    try:
        return TransactionState(number)
    except ValueError:
        raise ProtocolViolation(f"{number} is no state of a transaction") from None


def _read_partitions(cursor: Cursor, is_flexible: bool) -> frozenset[TopicPartition]:
    topic_count = cursor.nullable_count(3 if is_flexible else 6, compact=is_flexible)
    if topic_count <= 0:
        return NO_PARTITIONS
    partitions: list[TopicPartition] = []
    for _ in range(topic_count):
        topic = cursor.string(compact=is_flexible)
        partition_count = cursor.count(4, compact=is_flexible)
        partitions += [TopicPartition(topic, cursor.int32()) for _ in range(partition_count)]
        if is_flexible:
            cursor.skip_tagged_fields()
    return frozenset(partitions)


def _number(tagged: dict[int, Cursor], tag: int, read: Callable[[Cursor], int], default: int = -1) -> int:
    cursor = tagged.get(tag)
    if cursor is None:
        return default
    number = read(cursor)
    cursor.expect_end()
    return number


def _read_group(tagged: dict[int, Cursor]) -> GroupProgress | None:
    if _LAST_SEQUENCE not in tagged:
        return None
    return GroupProgress(
        _number(tagged, _LAST_SEQUENCE, Cursor.int64),
        _runs(_content(tagged, _RUNS)),
        _content(tagged, _NOTE),
        _text(_content(tagged, _PLACE)),
        _content(tagged, _DECIDED_BY),
    )


def _content(tagged: dict[int, Cursor], tag: int) -> bytes:
    cursor: Any = tagged.get(tag)
    return b"" if cursor is None else bytes(cursor.data)


def _runs(content: bytes) -> tuple[bytes, ...]:
    if len(content) % RUN_BYTES:
        raise ProtocolViolation(f"{len(content)} bytes of run ids, which take {RUN_BYTES} each")
    return tuple(content[start : start + RUN_BYTES] for start in range(0, len(content), RUN_BYTES))


def _text(content: bytes) -> str:
    try:
        return content.decode()
    except UnicodeDecodeError:
        raise ProtocolViolation("a place that is not UTF-8") from None
