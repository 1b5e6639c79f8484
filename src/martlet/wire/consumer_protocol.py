"""What consumers of a classic group tell each other: the subscription of a member and its assignment, as bytes.

The broker carries these bytes without understanding them; it opens them only where that helps (which topics a group
reads, moving members between the two protocols), so the readers are lenient: they never raise, and answer None for what
is no such message. A version newer than ours is read as ours, as Kafka does, since new versions only append fields.

Subscription: version int16, topics, user data, v1+ owned partitions, v2+ generation, v3+ rack. Assignment: version
int16, partitions by topic, user data. None of it is flexible.

Proved by: tests/unit/wire/test_consumer_protocol.py, tests/properties/test_consumer_protocol.py
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from struct import Struct
from typing import Final

from martlet.base.errors import ProtocolViolation
from martlet.wire.cursor import Cursor
from martlet.wire.primitives import Buffer, write_nullable_bytes, write_nullable_string, write_string

NEWEST_VERSION: Final = 3

_INT16: Final = Struct(">h")
_INT32: Final = Struct(">i")


@dataclass(frozen=True, slots=True)
class Subscription:
    """What a member wants, and what it owned when it said so."""

    topics: tuple[str, ...] = ()
    user_data: bytes | None = None
    owned: Mapping[str, tuple[int, ...]] = field(default_factory=dict)  # v1+
    generation: int = -1  # v2+
    rack: str | None = None  # v3+
    version: int = NEWEST_VERSION


@dataclass(frozen=True, slots=True)
class Assignment:
    """The partitions a member got."""

    partitions: Mapping[str, tuple[int, ...]] = field(default_factory=dict)
    user_data: bytes | None = None
    version: int = NEWEST_VERSION


def read_subscription(data: Buffer) -> Subscription | None:
    """The subscription in these bytes; None when there is none.

    Fields that a version should have but that are missing at the end take their defaults: some clients claim version 1
    and send version 0.
    """
    try:
        cursor = Cursor(data)
        version = _read_version(cursor)
        topics = tuple(cursor.string() for _ in range(cursor.count(2)))
        user_data = cursor.nullable_blob()
        owned = _read_partitions(cursor) if version >= 1 and not cursor.at_end else {}
        generation = cursor.int32() if version >= 2 and not cursor.at_end else -1
        rack = cursor.nullable_string() if version >= 3 and not cursor.at_end else None
    except ProtocolViolation:
        return None
    return Subscription(topics, user_data, owned, generation, rack, version)


def read_assignment(data: Buffer) -> Assignment | None:
    """The assignment in these bytes; None when there is none. No bytes at all are an assignment of nothing."""
    if not data:
        return Assignment()
    try:
        cursor = Cursor(data)
        version = _read_version(cursor)
        partitions = _read_partitions(cursor)
        user_data = None if cursor.at_end else cursor.nullable_blob()
    except ProtocolViolation:
        return None
    return Assignment(partitions, user_data, version)


def write_subscription(subscription: Subscription) -> bytes:
    """The subscription in its version; fields that version lacks are left out."""
    out = bytearray(_INT16.pack(subscription.version))
    out += _INT32.pack(len(subscription.topics))
    for topic in subscription.topics:
        write_string(out, topic)
    write_nullable_bytes(out, subscription.user_data)
    if subscription.version >= 1:
        _write_partitions(out, subscription.owned)
    if subscription.version >= 2:
        out += _INT32.pack(subscription.generation)
    if subscription.version >= 3:
        write_nullable_string(out, subscription.rack)
    return bytes(out)


def write_assignment(version: int, partitions: Mapping[str, Sequence[int]], user_data: bytes | None = None) -> bytes:
    """The assignment; all versions are alike."""
    out = bytearray(_INT16.pack(version))
    _write_partitions(out, partitions)
    write_nullable_bytes(out, user_data)
    return bytes(out)


def _read_version(cursor: Cursor) -> int:
    version = cursor.int16()
    if version < 0:
        raise ProtocolViolation(f"version {version}")
    return min(version, NEWEST_VERSION)


def _read_partitions(cursor: Cursor) -> dict[str, tuple[int, ...]]:
    """Partitions by topic; a topic that comes twice has the partitions of both."""
    partitions: dict[str, list[int]] = {}
    for _ in range(cursor.count(6)):
        numbers = partitions.setdefault(cursor.string(), [])
        numbers.extend(cursor.int32() for _ in range(cursor.count(4)))
    return {topic: tuple(numbers) for topic, numbers in partitions.items()}


def _write_partitions(out: bytearray, partitions: Mapping[str, Sequence[int]]) -> None:
    out += _INT32.pack(len(partitions))
    for topic, numbers in partitions.items():
        write_string(out, topic)
        out += _INT32.pack(len(numbers))
        for number in numbers:
            out += _INT32.pack(number)
