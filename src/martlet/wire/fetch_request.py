"""Fetch requests, versions 4-18, both directions; `wire/fetch.py` says what each version holds.

Proved by: tests/unit/wire/test_fetch_codec.py, tests/properties/test_produce_fetch_codec.py
"""

from collections.abc import Callable, Sequence
from functools import partial
from struct import Struct, error
from typing import Final, NamedTuple, cast

from martlet.base.errors import ProtocolViolation
from martlet.base.ids import NO_TOPIC_ID
from martlet.wire.primitives import (
    Buffer,
    read_compact_nullable_string,
    read_compact_string,
    read_string,
    read_tag,
    read_tagged_count,
    skip_tagged_fields,
    underflow,
    write_compact_nullable_string,
    write_compact_string,
    write_string,
    write_uvarint,
)
from martlet.wire.topic_fields import (
    ELEMENTS_MAX,
    check_value_end,
    read_count,
    read_tagged_pair,
    read_topic,
    spend,
    write_count,
    write_tagged_pair,
    write_topic,
)

VERSIONS: Final = range(4, 19)
UNKNOWN_HIGH_WATERMARK: Final = (1 << 63) - 1
"""What a follower's high watermark reads as when the request does not carry one."""

_FIRST_FLEXIBLE: Final = 12
_FIRST_WITH_LOG_START: Final = 5
_FIRST_WITH_SESSION: Final = 7
_FIRST_WITH_LEADER_EPOCH: Final = 9
_FIRST_WITH_RACK: Final = 11
_FIRST_WITH_TOPIC_ID: Final = 13
_FIRST_WITH_REPLICA_STATE: Final = 15
_FIRST_WITH_DIRECTORY: Final = 17
_FIRST_WITH_HIGH_WATERMARK: Final = 18

_INT32: Final = Struct(">i")
_INT64: Final = Struct(">q")
_LIMITS: Final = Struct(">iiib")
"""max_wait_ms, min_bytes, max_bytes, isolation_level."""
_SESSION: Final = Struct(">ii")
_REPLICA_STATE: Final = Struct(">iq")
_PARTITION_4: Final = Struct(">iqi")
_PARTITION_5: Final = Struct(">iqqi")
_PARTITION_9: Final = Struct(">iiqqi")
_PARTITION_12: Final = Struct(">iiqiqi")


class FetchPartition(NamedTuple):
    """What is wanted of one partition; the last two are a follower's."""

    partition: int
    current_leader_epoch: int = -1
    fetch_offset: int = 0
    last_fetched_epoch: int = -1
    log_start_offset: int = -1
    partition_max_bytes: int = 1 << 20
    replica_directory_id: bytes = NO_TOPIC_ID
    high_watermark: int = UNKNOWN_HIGH_WATERMARK


class FetchTopic(NamedTuple):
    """Named by `name` before v13 and by `topic_id` from v13 on."""

    name: str | None
    topic_id: bytes | None
    partitions: Sequence[FetchPartition]


class ForgottenTopic(NamedTuple):
    """Partitions that leave the fetch session."""

    name: str | None
    topic_id: bytes | None
    partitions: Sequence[int]


class FetchRequest(NamedTuple):
    replica_id: int = -1
    max_wait_ms: int = 500
    min_bytes: int = 1
    max_bytes: int = (1 << 31) - 1
    isolation_level: int = 0
    session_id: int = 0
    session_epoch: int = -1
    topics: Sequence[FetchTopic] = ()
    forgotten: Sequence[ForgottenTopic] = ()
    rack_id: str = ""
    cluster_id: str | None = None
    replica_epoch: int = -1


# Struct's tuple becomes the named one without passing its fields one by one: this runs for each partition polled.
_partition_of_fields = cast(Callable[[tuple[object, ...]], FetchPartition], partial(tuple.__new__, FetchPartition))
_NO_FOLLOWER_FIELDS: Final = (NO_TOPIC_ID, UNKNOWN_HIGH_WATERMARK)


def parse_fetch_request(body: Buffer, version: int) -> FetchRequest:
    """The request in `body`; what follows it there is ignored, as Kafka does."""
    _check_version(version)
    view = memoryview(body)
    try:
        request, _ = _parse_request(view, version)
    except (error, IndexError):
        underflow(len(view))
    return request


def _parse_request(view: memoryview, version: int) -> tuple[FetchRequest, int]:
    flexible = version >= _FIRST_FLEXIBLE
    position = 0
    replica_id, replica_epoch, session_id, session_epoch = -1, -1, 0, -1
    if version < _FIRST_WITH_REPLICA_STATE:
        (replica_id,) = _INT32.unpack_from(view, position)
        position += 4
    max_wait_ms, min_bytes, max_bytes, isolation_level = _LIMITS.unpack_from(view, position)
    position += _LIMITS.size
    if version >= _FIRST_WITH_SESSION:
        session_id, session_epoch = _SESSION.unpack_from(view, position)
        position += _SESSION.size
    topics, position, budget = _read_topics(view, position, version)
    forgotten: list[ForgottenTopic] = []
    if version >= _FIRST_WITH_SESSION:
        forgotten, position = _read_forgotten(view, position, version, budget)
    rack_id, cluster_id = "", None
    if version >= _FIRST_WITH_RACK:
        rack_id, position = (read_compact_string if flexible else read_string)(view, position)
    if flexible:
        count, position = read_tagged_count(view, position)
        tag = -1
        for _ in range(count):
            tag, end, position = read_tag(view, position, tag)
            if tag == 0:
                cluster_id, position = read_compact_nullable_string(view[:end], position)
                check_value_end(position, end)
            elif tag == 1 and version >= _FIRST_WITH_REPLICA_STATE:
                replica_id, replica_epoch = read_tagged_pair(view, position, end, _REPLICA_STATE)
            position = end
    request = FetchRequest(
        replica_id,
        max_wait_ms,
        min_bytes,
        max_bytes,
        isolation_level,
        session_id,
        session_epoch,
        topics,
        forgotten,
        rack_id,
        cluster_id,
        replica_epoch,
    )
    return request, position


def _read_topics(view: memoryview, position: int, version: int) -> tuple[list[FetchTopic], int, int]:
    flexible = version >= _FIRST_FLEXIBLE
    by_id = version >= _FIRST_WITH_TOPIC_ID
    topic_count, position = read_count(view, position, flexible, 3)
    budget = spend(ELEMENTS_MAX, topic_count)
    topics = []
    for _ in range(topic_count):
        name, topic_id, position = read_topic(view, position, flexible, by_id)
        partition_count, position = read_count(view, position, flexible, _PARTITION_4.size)
        budget = spend(budget, partition_count)
        if flexible:
            partitions, position = _read_flexible_partitions(view, position, version, partition_count)
            position = skip_tagged_fields(view, position)
        else:
            partitions, position = _read_old_partitions(view, position, version, partition_count)
        topics.append(FetchTopic(name, topic_id, partitions))
    return topics, position, budget


def _read_old_partitions(view: memoryview, position: int, version: int, count: int) -> tuple[list[FetchPartition], int]:
    layout = _PARTITION_4
    if version >= _FIRST_WITH_LOG_START:
        layout = _PARTITION_9 if version >= _FIRST_WITH_LEADER_EPOCH else _PARTITION_5
    end = position + count * layout.size
    if end > len(view):
        underflow(position)
    rows = layout.iter_unpack(view[position:end])
    if version >= _FIRST_WITH_LEADER_EPOCH:
        return [FetchPartition(p, epoch, offset, -1, start, limit) for p, epoch, offset, start, limit in rows], end
    if version >= _FIRST_WITH_LOG_START:
        return [FetchPartition(p, -1, offset, -1, start, limit) for p, offset, start, limit in rows], end
    return [FetchPartition(p, -1, offset, -1, -1, limit) for p, offset, limit in rows], end


def _read_flexible_partitions(
    view: memoryview, position: int, version: int, count: int
) -> tuple[list[FetchPartition], int]:
    unpack_from = _PARTITION_12.unpack_from
    size = _PARTITION_12.size
    partitions = []
    for _ in range(count):
        fields = unpack_from(view, position)
        position += size
        if view[position] == 0:
            partitions.append(_partition_of_fields(fields + _NO_FOLLOWER_FIELDS))
            position += 1
        else:
            directory_id, high_watermark, position = _read_follower_fields(view, position, version)
            partitions.append(_partition_of_fields((*fields, directory_id, high_watermark)))
    return partitions, position


def _read_follower_fields(view: memoryview, position: int, version: int) -> tuple[bytes, int, int]:
    directory_id: bytes = NO_TOPIC_ID
    high_watermark = UNKNOWN_HIGH_WATERMARK
    count, position = read_tagged_count(view, position)
    tag = -1
    for _ in range(count):
        tag, end, position = read_tag(view, position, tag)
        if tag == 0 and version >= _FIRST_WITH_DIRECTORY:
            check_value_end(position + 16, end)
            directory_id = bytes(view[position:end])
        elif tag == 1 and version >= _FIRST_WITH_HIGH_WATERMARK:
            check_value_end(position + 8, end)
            (high_watermark,) = _INT64.unpack_from(view, position)
        position = end
    return directory_id, high_watermark, position


def _read_forgotten(view: memoryview, position: int, version: int, budget: int) -> tuple[list[ForgottenTopic], int]:
    flexible = version >= _FIRST_FLEXIBLE
    by_id = version >= _FIRST_WITH_TOPIC_ID
    topic_count, position = read_count(view, position, flexible, 3)
    budget = spend(budget, topic_count)
    forgotten = []
    for _ in range(topic_count):
        name, topic_id, position = read_topic(view, position, flexible, by_id)
        count, position = read_count(view, position, flexible, 4)
        budget = spend(budget, count)
        end = position + 4 * count
        partitions = [row[0] for row in _INT32.iter_unpack(view[position:end])]
        position = skip_tagged_fields(view, end) if flexible else end
        forgotten.append(ForgottenTopic(name, topic_id, partitions))
    return forgotten, position


def encode_fetch_request(version: int, request: FetchRequest) -> bytes:
    """The request's body."""
    _check_version(version)
    flexible = version >= _FIRST_FLEXIBLE
    by_id = version >= _FIRST_WITH_TOPIC_ID
    out = bytearray()
    if version < _FIRST_WITH_REPLICA_STATE:
        out += _INT32.pack(request.replica_id)
    out += _LIMITS.pack(request.max_wait_ms, request.min_bytes, request.max_bytes, request.isolation_level)
    if version >= _FIRST_WITH_SESSION:
        out += _SESSION.pack(request.session_id, request.session_epoch)
    write_count(out, flexible, len(request.topics))
    for name, topic_id, partitions in request.topics:
        write_topic(out, flexible, by_id, name, topic_id)
        write_count(out, flexible, len(partitions))
        for wanted in partitions:
            _write_partition(out, version, wanted)
        if flexible:
            out.append(0)
    if version >= _FIRST_WITH_SESSION:
        write_count(out, flexible, len(request.forgotten))
        for name, topic_id, indexes in request.forgotten:
            write_topic(out, flexible, by_id, name, topic_id)
            write_count(out, flexible, len(indexes))
            for index in indexes:
                out += _INT32.pack(index)
            if flexible:
                out.append(0)
    if version >= _FIRST_WITH_RACK:
        (write_compact_string if flexible else write_string)(out, request.rack_id)
    if flexible:
        _write_request_tags(out, version, request)
    return bytes(out)


def _write_partition(out: bytearray, version: int, wanted: FetchPartition) -> None:
    index, leader_epoch, offset, last_epoch, log_start, limit, directory_id, high_watermark = wanted
    if version < _FIRST_WITH_LOG_START:
        out += _PARTITION_4.pack(index, offset, limit)
    elif version < _FIRST_WITH_LEADER_EPOCH:
        out += _PARTITION_5.pack(index, offset, log_start, limit)
    elif version < _FIRST_FLEXIBLE:
        out += _PARTITION_9.pack(index, leader_epoch, offset, log_start, limit)
    else:
        out += _PARTITION_12.pack(index, leader_epoch, offset, last_epoch, log_start, limit)
        has_directory = version >= _FIRST_WITH_DIRECTORY and directory_id != NO_TOPIC_ID
        has_watermark = version >= _FIRST_WITH_HIGH_WATERMARK and high_watermark != UNKNOWN_HIGH_WATERMARK
        out.append(has_directory + has_watermark)
        if has_directory:
            out += b"\x00\x10" + directory_id
        if has_watermark:
            out += b"\x01\x08" + _INT64.pack(high_watermark)


def _write_request_tags(out: bytearray, version: int, request: FetchRequest) -> None:
    replica = (request.replica_id, request.replica_epoch)
    has_cluster = request.cluster_id is not None
    has_replica = version >= _FIRST_WITH_REPLICA_STATE and replica != (-1, -1)
    out.append(has_cluster + has_replica)
    if has_cluster:
        value = bytearray()
        write_compact_nullable_string(value, request.cluster_id)
        out.append(0)
        write_uvarint(out, len(value))
        out += value
    if has_replica:
        write_tagged_pair(out, 1, _REPLICA_STATE, replica)


def _check_version(version: int) -> None:
    if version not in VERSIONS:
        raise ProtocolViolation(f"Fetch has no version {version} here")
