"""The values of the groups machine's records as bytes: Kafka's fields in Kafka's order, behind a version of 16 bits.

Only values are known here; keys, tombstones and which reader belongs to which key are `record_codec.py`'s. Offsets and
classic groups are written in version 3 (offsets that expire by themselves in version 1, the only one that can say so)
and read in every version there is; the values of consumer groups have one version, flexible, and what newer brokers add
to it in tagged fields is skipped.

A reader takes the value from after its version on and raises ProtocolViolation for bytes that are none.
"""

from collections.abc import Iterable
from struct import Struct
from typing import Final

from martlet.base.errors import ProtocolViolation
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
from martlet.wire.cursor import Cursor
from martlet.wire.primitives import (
    STRING_BYTES_MAX,
    write_bytes,
    write_compact_bytes,
    write_nullable_string,
    write_string,
    write_uvarint,
)

_INT8: Final = Struct(">b")
_INT16: Final = Struct(">h")
_INT32: Final = Struct(">i")
_INT64: Final = Struct(">q")

_NO_TAGGED_FIELDS: Final = b"\x00"
_FIRST_FLEXIBLE: Final = 4
"""Of the offset's and the classic group's values."""


def write_offset(record: OffsetCommitted) -> bytes:
    version = 3 if record.expires_at_ms < 0 else 1
    out = bytearray(_INT16.pack(version))
    out += _INT64.pack(record.offset)
    if version >= 3:
        out += _INT32.pack(record.leader_epoch)
    write_string(out, record.metadata)
    out += _INT64.pack(record.committed_at_ms)
    if version == 1:
        out += _INT64.pack(record.expires_at_ms)
    return bytes(out)


def read_offset(cursor: Cursor, version: int, group_id: str, topic: str, partition: int) -> OffsetCommitted:
    check_version(version, 4)
    compact = version >= _FIRST_FLEXIBLE
    offset = cursor.int64()
    leader_epoch = cursor.int32() if version >= 3 else -1
    metadata = cursor.string(compact=compact)
    committed_at_ms = cursor.int64()
    expires_at_ms = cursor.int64() if version == 1 else -1
    if compact:
        cursor.skip_tagged_fields()
    # Any negative number stands for "not chosen"; one form of it keeps equal records equal.
    return OffsetCommitted(
        group_id, topic, partition, offset, leader_epoch, metadata, committed_at_ms, max(expires_at_ms, -1)
    )


def write_classic_group(record: ClassicGroupStored) -> bytes:
    out = bytearray(_INT16.pack(3))
    write_string(out, record.protocol_type)
    out += _INT32.pack(record.generation)
    write_nullable_string(out, record.protocol_name)
    write_nullable_string(out, record.leader)
    out += _INT64.pack(record.changed_at_ms)
    out += _INT32.pack(len(record.members))
    for member in record.members:
        write_string(out, member.member_id)
        write_nullable_string(out, member.instance_id)
        write_string(out, member.client_id)
        write_string(out, member.client_host)
        out += _INT32.pack(member.rebalance_timeout_ms)
        out += _INT32.pack(member.session_timeout_ms)
        write_bytes(out, member.subscription)
        write_bytes(out, member.assignment)
    return bytes(out)


def read_classic_group(cursor: Cursor, version: int, group_id: str) -> ClassicGroupStored:
    check_version(version, 4)
    compact = version >= _FIRST_FLEXIBLE
    protocol_type = cursor.string(compact=compact)
    generation = cursor.int32()
    protocol_name = cursor.nullable_string(compact=compact)
    leader = cursor.nullable_string(compact=compact)
    changed_at_ms = cursor.int64() if version >= 2 else -1
    count = cursor.count(9 if compact else 18, compact=compact)
    members = tuple(_read_classic_member(cursor, version, compact) for _ in range(count))
    if compact:
        cursor.skip_tagged_fields()
    return ClassicGroupStored(group_id, protocol_type, generation, protocol_name, leader, changed_at_ms, members)


def _read_classic_member(cursor: Cursor, version: int, compact: bool) -> ClassicMemberStored:
    member_id = cursor.string(compact=compact)
    instance_id = cursor.nullable_string(compact=compact) if version >= 3 else None
    client_id = cursor.string(compact=compact)
    client_host = cursor.string(compact=compact)
    first_timeout_ms = cursor.int32()
    # Version 0 knows one timeout for both.
    session_timeout_ms = cursor.int32() if version >= 1 else first_timeout_ms
    subscription = cursor.blob(compact=compact)
    assignment = cursor.blob(compact=compact)
    if compact:
        cursor.skip_tagged_fields()
    return ClassicMemberStored(
        member_id, instance_id, client_id, client_host, first_timeout_ms, session_timeout_ms, subscription, assignment
    )


def write_consumer_group(record: ConsumerGroupStored) -> bytes:
    out = bytearray(_INT16.pack(0))
    out += _INT32.pack(record.epoch)
    _write_tagged(out, None if record.metadata_hash == 0 else _INT64.pack(record.metadata_hash))
    return bytes(out)


def read_consumer_group(cursor: Cursor, version: int, group_id: str) -> ConsumerGroupStored:
    check_version(version, 0)
    epoch = cursor.int32()
    field = cursor.tagged_fields().get(0)
    return ConsumerGroupStored(group_id, epoch, 0 if field is None else field.int64())


def write_member(record: ConsumerMemberStored) -> bytes:
    out = bytearray(_INT16.pack(0))
    write_nullable_text(out, record.instance_id)
    write_nullable_text(out, record.rack_id)
    write_text(out, record.client_id)
    write_text(out, record.client_host)
    write_strings(out, record.topic_names)
    write_nullable_text(out, record.topic_regex)
    out += _INT32.pack(record.rebalance_timeout_ms)
    write_nullable_text(out, record.assignor)
    _write_tagged(out, None if record.classic is None else _classic_protocol(record.classic))
    return bytes(out)


def read_member(cursor: Cursor, version: int, group_id: str, member_id: str) -> ConsumerMemberStored:
    check_version(version, 0)
    return ConsumerMemberStored(
        group_id,
        member_id,
        instance_id=cursor.nullable_string(compact=True),
        rack_id=cursor.nullable_string(compact=True),
        client_id=cursor.string(compact=True),
        client_host=cursor.string(compact=True),
        topic_names=read_strings(cursor),
        topic_regex=cursor.nullable_string(compact=True),
        rebalance_timeout_ms=cursor.int32(),
        assignor=cursor.nullable_string(compact=True),
        classic=_read_classic_protocol(cursor.tagged_fields().get(0)),
    )


def _classic_protocol(classic: ClassicProtocolStored) -> bytes:
    out = bytearray(b"\x01")  # The struct may be null, and it is not.
    out += _INT32.pack(classic.session_timeout_ms)
    write_uvarint(out, len(classic.protocols) + 1)
    for name, metadata in classic.protocols:
        write_text(out, name)
        write_compact_bytes(out, metadata)
        out += _NO_TAGGED_FIELDS
    out += _NO_TAGGED_FIELDS
    return bytes(out)


def _read_classic_protocol(cursor: Cursor | None) -> ClassicProtocolStored | None:
    if cursor is None or cursor.int8() <= 0:
        return None
    session_timeout_ms = cursor.int32()
    protocols: list[tuple[str, bytes]] = []
    for _ in range(cursor.count(3, compact=True)):
        protocols.append((cursor.string(compact=True), cursor.blob(compact=True)))
        cursor.skip_tagged_fields()
    cursor.skip_tagged_fields()
    return ClassicProtocolStored(session_timeout_ms, tuple(protocols))


def write_target_epoch(record: TargetEpochStored) -> bytes:
    return _INT16.pack(0) + _INT32.pack(record.epoch) + _NO_TAGGED_FIELDS


def read_target_epoch(cursor: Cursor, version: int, group_id: str) -> TargetEpochStored:
    check_version(version, 0)
    epoch = cursor.int32()
    cursor.skip_tagged_fields()
    return TargetEpochStored(group_id, epoch)


def write_target(record: TargetAssigned) -> bytes:
    out = bytearray(_INT16.pack(0))
    write_partitions(out, record.partitions)
    return bytes(out + _NO_TAGGED_FIELDS)


def read_target(cursor: Cursor, version: int, group_id: str, member_id: str) -> TargetAssigned:
    check_version(version, 0)
    partitions = read_partitions(cursor)
    cursor.skip_tagged_fields()
    return TargetAssigned(group_id, member_id, partitions)


def write_current(record: CurrentAssigned) -> bytes:
    out = bytearray(_INT16.pack(0))
    out += _INT32.pack(record.epoch)
    out += _INT32.pack(record.previous_epoch)
    out += _INT8.pack(record.state)
    write_partitions(out, record.assigned)
    write_partitions(out, record.pending_revocation)
    return bytes(out + _NO_TAGGED_FIELDS)


def read_current(cursor: Cursor, version: int, group_id: str, member_id: str) -> CurrentAssigned:
    check_version(version, 0)
    epoch = cursor.int32()
    previous_epoch = cursor.int32()
    state = member_state(cursor.int8())
    assigned = read_partitions(cursor)
    pending_revocation = read_partitions(cursor)
    cursor.skip_tagged_fields()
    return CurrentAssigned(group_id, member_id, epoch, previous_epoch, state, assigned, pending_revocation)


def member_state(number: int) -> MemberState:
    try:
        return MemberState(number)
    except ValueError:
        return MemberState.UNKNOWN


def write_regex(record: RegexResolved) -> bytes:
    out = bytearray(_INT16.pack(0))
    write_strings(out, record.topics)
    out += _INT64.pack(record.version)
    out += _INT64.pack(record.resolved_at_ms)
    return bytes(out + _NO_TAGGED_FIELDS)


def read_regex(cursor: Cursor, version: int, group_id: str, regex: str) -> RegexResolved:
    check_version(version, 0)
    topics = read_strings(cursor)
    metadata_version = cursor.int64()
    resolved_at_ms = cursor.int64()
    cursor.skip_tagged_fields()
    return RegexResolved(group_id, regex, topics, resolved_at_ms, metadata_version)


def check_version(version: int, newest: int) -> None:
    """A ProtocolViolation for a version of a value that we cannot read."""
    if not 0 <= version <= newest:
        raise ProtocolViolation(f"the value has version {version}, and we read 0 to {newest}")


def _write_tagged(out: bytearray, field: bytes | None) -> None:
    """A tagged section of no field, or of one with tag 0."""
    if field is None:
        out += _NO_TAGGED_FIELDS
        return
    out += b"\x01\x00"
    write_uvarint(out, len(field))
    out += field


def write_nullable_text(out: bytearray, value: str | None) -> None:
    if value is None:
        out.append(0)
    else:
        write_text(out, value)


def write_text(out: bytearray, value: str) -> None:
    """A compact string; ValueError for one that could not be read back."""
    raw = value.encode()
    if len(raw) > STRING_BYTES_MAX:
        raise ValueError(f"a string of {len(raw)} bytes")
    write_compact_bytes(out, raw)


def write_strings(out: bytearray, values: Iterable[str]) -> None:
    strings = list(values)
    write_uvarint(out, len(strings) + 1)
    for value in strings:
        write_text(out, value)


def read_strings(cursor: Cursor) -> tuple[str, ...]:
    return tuple(cursor.string(compact=True) for _ in range(cursor.count(1, compact=True)))


def write_partitions(out: bytearray, partitions: Partitions) -> None:
    """Partitions by topic, both sorted, so that equal sets are equal bytes."""
    by_topic: dict[TopicId, list[int]] = {}
    for topic_id, partition in sorted(partitions):
        by_topic.setdefault(topic_id, []).append(partition)
    write_uvarint(out, len(by_topic) + 1)
    for topic_id, numbers in by_topic.items():
        out += topic_id
        write_uvarint(out, len(numbers) + 1)
        for number in numbers:
            out += _INT32.pack(number)
        out += _NO_TAGGED_FIELDS


def read_partitions(cursor: Cursor) -> Partitions:
    found: set[tuple[TopicId, int]] = set()
    for _ in range(cursor.count(18, compact=True)):
        topic_id = TopicId(cursor.uuid())
        found.update((topic_id, cursor.int32()) for _ in range(cursor.count(4, compact=True)))
        cursor.skip_tagged_fields()
    return frozenset(found)
