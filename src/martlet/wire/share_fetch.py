"""ShareFetch and ShareAcknowledge (keys 78 and 79), versions 1-2: their requests, and the response with records.

Written by hand because a request of the generic codec costs a millisecond when it acknowledges a thousand messages one
by one: here acknowledgements are *runs* (first, last, type) from the first byte on, neighbours of one type in one run
however the client has cut them. The records of a response are the caller's buffers, not copied.

Rules: pure bytes to values and back. What types mean is not known here; a batch whose types are neither one nor one for
each offset is a run of type `MISCOUNTED`, for its partition to be refused. A topic may stand several times in one
request, and so may its partitions.

Invariants:
SHAREFETCH-1 Only ProtocolViolation leaves a parser, whatever the bytes.
SHAREFETCH-2 Arrays are bounded by the bytes left and, all together, by `ELEMENTS_MAX`; runs by the bytes of the types.
SHAREFETCH-3 A response's records are never null, or librdkafka cannot read it.

Proved by: tests/unit/wire/test_share_fetch_codec.py, tests/properties/test_share_fetch_codec.py
"""

import re
from collections.abc import Sequence
from struct import Struct, error
from typing import Final, NamedTuple, TypeAlias

from martlet.base.errors import ProtocolViolation
from martlet.wire.leader_hints import CurrentLeader, NodeEndpoint
from martlet.wire.primitives import (
    Buffer,
    read_compact_array_count,
    read_compact_nullable_string,
    read_uuid,
    skip_tagged_fields,
    underflow,
    write_compact_nullable_string,
    write_compact_string,
    write_uvarint,
)
from martlet.wire.topic_fields import ELEMENTS_MAX, spend

VERSIONS: Final = range(1, 3)
MISCOUNTED: Final = -129
"""Stands for a type that no byte can hold: the batch had too few types, or too many."""

_FIRST_WITH_MODES: Final = 2
_INT32: Final = Struct(">i")
_LIMITS: Final = Struct(">iiiiii")
"""Session epoch, longest wait, fewest bytes, most bytes, most records, size of a batch."""
_MODES: Final = Struct(">b?")
_RENEWING: Final = Struct(">?")
_RANGE: Final = Struct(">qq")
_SINGLE: Final = Struct(">qqxbx")
"""A batch of one type: first, last, a count of one, the type, no tags."""
_SINGLE_BYTES: Final = _SINGLE.size
_NEIGHBOURS: Final = re.compile(rb"(.)\1*", re.DOTALL)
"""Bytes that are alike."""
_BATCH_BYTES_MIN: Final = 18
_PARTITION_BYTES_MIN: Final = 6
_TOPIC_BYTES_MIN: Final = 18
_RESULT_HEAD: Final = Struct(">ih")
_INT16: Final = Struct(">h")
_LEADER: Final = Struct(">iix")
_ACQUIRED: Final = Struct(">qqhx")

Run: TypeAlias = tuple[int, int, int]
"""First offset, last offset, type of acknowledgement."""


class SharePartitionAsked(NamedTuple):
    """One partition of a request, with what is said of the messages leased there."""

    topic_id: bytes
    partition: int
    acknowledgements: list[Run]


class ShareFetchRequest(NamedTuple):
    """One step of a session. An epoch of 0 opens it, -1 closes it."""

    group_id: str | None
    member_id: str | None
    session_epoch: int
    max_wait_ms: int
    min_bytes: int
    max_bytes: int
    max_records: int
    batch_size: int
    acquire_mode: int
    """0: whole batches may exceed `max_records`; 1: nothing may."""
    is_renewing: bool
    partitions: list[SharePartitionAsked]
    forgotten: list[tuple[bytes, int]]


class ShareAcknowledgeRequest(NamedTuple):
    """The same without fetching."""

    group_id: str | None
    member_id: str | None
    session_epoch: int
    is_renewing: bool
    partitions: list[SharePartitionAsked]


class SharePartitionResult(NamedTuple):
    """The answer for one partition; `acquired` are runs of first offset, last offset, number of deliveries."""

    partition: int
    error_code: int = 0
    error_message: str | None = None
    acknowledge_error_code: int = 0
    acknowledge_error_message: str | None = None
    current_leader: CurrentLeader = CurrentLeader()
    records: Sequence[Buffer] = ()
    acquired: Sequence[tuple[int, int, int]] = ()


def parse_share_fetch_request(body: Buffer, version: int) -> ShareFetchRequest:
    """The request in `body`; what follows it there is ignored, as Kafka does."""
    _check_version(version)
    data = bytes(body)  # there are no records in it, and what is cut out of bytes is cheaper than views
    acquire_mode, is_renewing = 0, False
    try:
        group_id, position = read_compact_nullable_string(data, 0)
        member_id, position = read_compact_nullable_string(data, position)
        limits = _LIMITS.unpack_from(data, position)
        position += _LIMITS.size
        if version >= _FIRST_WITH_MODES:
            acquire_mode, is_renewing = _MODES.unpack_from(data, position)
            position += _MODES.size
        partitions, position, budget = _read_partitions(data, position)
        forgotten, position = _read_forgotten(data, position, budget)
        skip_tagged_fields(data, position)
    except (error, IndexError):
        underflow(len(data))
    return ShareFetchRequest._make((group_id, member_id, *limits, acquire_mode, is_renewing, partitions, forgotten))


def parse_share_acknowledge_request(body: Buffer, version: int) -> ShareAcknowledgeRequest:
    """The request in `body`; what follows it there is ignored, as Kafka does."""
    _check_version(version)
    data = bytes(body)  # there are no records in it, and what is cut out of bytes is cheaper than views
    is_renewing = False
    try:
        group_id, position = read_compact_nullable_string(data, 0)
        member_id, position = read_compact_nullable_string(data, position)
        (session_epoch,) = _INT32.unpack_from(data, position)
        position += _INT32.size
        if version >= _FIRST_WITH_MODES:
            (is_renewing,) = _RENEWING.unpack_from(data, position)
            position += _RENEWING.size
        partitions, position, _ = _read_partitions(data, position)
        skip_tagged_fields(data, position)
    except (error, IndexError):
        underflow(len(data))
    return ShareAcknowledgeRequest(group_id, member_id, session_epoch, is_renewing, partitions)


def _read_partitions(data: bytes, position: int) -> tuple[list[SharePartitionAsked], int, int]:
    topic_count, position = read_compact_array_count(data, position, _TOPIC_BYTES_MIN)
    budget = spend(ELEMENTS_MAX, topic_count)
    partitions: list[SharePartitionAsked] = []
    for _ in range(topic_count):
        topic_id, position = read_uuid(data, position)
        count, position = read_compact_array_count(data, position, _PARTITION_BYTES_MIN)
        budget = spend(budget, count)
        for _ in range(count):
            (index,) = _INT32.unpack_from(data, position)
            batch_count, position = read_compact_array_count(data, position + _INT32.size, _BATCH_BYTES_MIN)
            budget = spend(budget, batch_count)
            runs: list[Run] = []
            if batch_count:
                position = _read_runs(data, position, batch_count, runs)
            position = skip_tagged_fields(data, position)
            partitions.append(SharePartitionAsked(topic_id, index, runs))
        position = skip_tagged_fields(data, position)
    return partitions, position, budget


def _read_runs(data: bytes, position: int, batch_count: int, runs: list[Run]) -> int:
    """Append the runs of a partition's batches; the position after them."""
    while batch_count > 0:
        singles = _count_of_singles(data, position, batch_count)
        if singles:
            end = position + singles * _SINGLE_BYTES
            _join_singles(data[position:end], runs)
            position, batch_count = end, batch_count - singles
            continue
        first, last = _RANGE.unpack_from(data, position)
        length, position = read_compact_array_count(data, position + _RANGE.size, 1)
        if length < 0:
            raise ProtocolViolation("null instead of the types of acknowledgements")
        types = data[position : position + length]
        if length == 1:
            _append(runs, first, last, _signed(types[0]))
        elif length != last - first + 1:
            runs.append((first, last, MISCOUNTED))
        else:
            for neighbours in _NEIGHBOURS.finditer(types):
                begin, end = neighbours.span()
                _append(runs, first + begin, first + end - 1, _signed(types[begin]))
        position = skip_tagged_fields(data, position + length)
        batch_count -= 1
    return position


def _count_of_singles(data: bytes, position: int, batch_count: int) -> int:
    """How many of the next batches are of one type without tags: all, if the first looks so and all do; else 0 or 1."""
    if len(data) < position + _SINGLE_BYTES or data[position + 16] != 2 or data[position + 18]:
        return 0
    if batch_count == 1:
        return 1
    piece = data[position : position + batch_count * _SINGLE_BYTES]
    are_all = len(piece) == batch_count * _SINGLE_BYTES and (
        piece[16::_SINGLE_BYTES].count(2) == batch_count == piece[18::_SINGLE_BYTES].count(0)
    )
    return batch_count if are_all else 1


def _signed(byte: int) -> int:
    return byte - 256 if byte > 127 else byte


def _join_singles(piece: bytes, runs: list[Run]) -> None:
    batches = _SINGLE.iter_unpack(piece)
    begin, end, type_ = next(batches)
    if runs:
        runs_begin, runs_end, runs_type = runs[-1]
        if runs_end + 1 == begin and runs_type == type_ and end >= begin and runs_begin <= runs_end:
            runs.pop()
            begin = runs_begin
    for first, last, of_type in batches:
        if first == end + 1 and of_type == type_ and last >= first and end >= begin:
            end = last
        else:
            runs.append((begin, end, type_))
            begin, end, type_ = first, last, of_type
    runs.append((begin, end, type_))


def _append(runs: list[Run], first: int, last: int, type_: int) -> None:
    """Add a run, or make the last one longer where they are neighbours of one type; nonsense stays as it is."""
    if runs and first <= last:
        begin, end, known = runs[-1]
        if end + 1 == first and known == type_ and begin <= end:
            runs[-1] = (begin, last, type_)
            return
    runs.append((first, last, type_))


def _read_forgotten(data: bytes, position: int, budget: int) -> tuple[list[tuple[bytes, int]], int]:
    topic_count, position = read_compact_array_count(data, position, _TOPIC_BYTES_MIN)
    budget = spend(budget, topic_count)
    forgotten: list[tuple[bytes, int]] = []
    for _ in range(topic_count):
        topic_id, position = read_uuid(data, position)
        count, position = read_compact_array_count(data, position, _INT32.size)
        budget = spend(budget, count)
        for _ in range(count):
            (index,) = _INT32.unpack_from(data, position)
            position += _INT32.size
            forgotten.append((topic_id, index))
        position = skip_tagged_fields(data, position)
    return forgotten, position


def encode_share_fetch_response(
    version: int,
    topics: Sequence[tuple[bytes, Sequence[SharePartitionResult]]],
    *,
    error_code: int = 0,
    error_message: str | None = None,
    lease_ms: int = 0,
    throttle_time_ms: int = 0,
    node_endpoints: Sequence[NodeEndpoint] = (),
) -> list[Buffer]:
    """The response's body in chunks, the records being the caller's own buffers."""
    _check_version(version)
    chunks: list[Buffer] = []
    out = bytearray(_INT32.pack(throttle_time_ms))
    out += _INT16.pack(error_code)
    write_compact_nullable_string(out, error_message)
    out += _INT32.pack(lease_ms)
    write_uvarint(out, len(topics) + 1)
    for topic_id, results in topics:
        out += topic_id
        write_uvarint(out, len(results) + 1)
        for result in results:
            _write_result_head(out, result)
            write_uvarint(out, sum(map(len, result.records)) + 1)
            if result.records:
                chunks += (bytes(out), *result.records)
                out = bytearray()
            write_uvarint(out, len(result.acquired) + 1)
            for run in result.acquired:
                out += _ACQUIRED.pack(*run)
            out.append(0)
        out.append(0)
    _write_endpoints(out, node_endpoints)
    out.append(0)
    chunks.append(bytes(out))
    return chunks


def _write_result_head(out: bytearray, result: SharePartitionResult) -> None:
    """Everything before the records."""
    out += _RESULT_HEAD.pack(result.partition, result.error_code)
    write_compact_nullable_string(out, result.error_message)
    out += _INT16.pack(result.acknowledge_error_code)
    write_compact_nullable_string(out, result.acknowledge_error_message)
    out += _LEADER.pack(*result.current_leader)


def _write_endpoints(out: bytearray, endpoints: Sequence[NodeEndpoint]) -> None:
    write_uvarint(out, len(endpoints) + 1)
    for endpoint in endpoints:
        out += _INT32.pack(endpoint.node_id)
        write_compact_string(out, endpoint.host)
        out += _INT32.pack(endpoint.port)
        write_compact_nullable_string(out, endpoint.rack)
        out.append(0)


def _check_version(version: int) -> None:
    if version not in VERSIONS:
        raise ProtocolViolation(f"share groups' fetches and acknowledgements have no version {version} here")
