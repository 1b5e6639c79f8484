"""Produce (key 0), versions 3-13, written by hand because every batch passes here: both sides, both directions.

Rules: pure bytes to values and back. The records of a partition are never read and never copied: parsing gives
views into the caller's buffer, encoding a request gives a list of chunks among which are the caller's buffers.

How it works: two layouts, the old one (3-8) and the flexible one (9-13).
v5 adds log_start_offset to responses, v8 record errors and a message, v9 is flexible, v10 adds the leader hints
(tagged), v13 names topics by id instead of by name. v4, 6, 7, 11 and 12 change meaning only.

Invariants:
PRODUCE-1 Only ProtocolViolation leaves a parser, whatever the bytes.
PRODUCE-2 No array is longer than the bytes that are left allow, and all arrays of a message together hold at most
   `ELEMENTS_MAX` elements, so that a small frame cannot become a large heap.

Proved by: tests/unit/wire/test_produce_codec.py, tests/properties/test_produce_fetch_codec.py
"""

from collections.abc import Sequence
from struct import Struct, error
from typing import Final, NamedTuple, TypeAlias

from martlet.base.errors import ProtocolViolation
from martlet.wire.leader_hints import (
    CurrentLeader,
    NodeEndpoint,
    read_leader,
    read_response_tags,
    write_endpoints_tag,
    write_leader_tag,
)
from martlet.wire.primitives import (
    Buffer,
    read_array_count,
    read_compact_array_count,
    read_compact_nullable_string,
    read_nullable_string,
    read_string,
    read_tag,
    read_tagged_count,
    read_uvarint,
    skip_tagged_fields,
    underflow,
    write_compact_nullable_string,
    write_nullable_string,
    write_string,
    write_uvarint,
)
from martlet.wire.topic_fields import ELEMENTS_MAX, check_end, read_count, read_topic, spend, write_count, write_topic

VERSIONS: Final = range(3, 14)

_FIRST_FLEXIBLE: Final = 9
_FIRST_WITH_LOG_START: Final = 5
_FIRST_WITH_RECORD_ERRORS: Final = 8
_FIRST_WITH_LEADER_HINTS: Final = 10
_FIRST_WITH_TOPIC_ID: Final = 13

_INT32: Final = Struct(">i")
_ACKS_TIMEOUT: Final = Struct(">hi")
_OLD_PARTITION: Final = Struct(">ii")
_RESULT_3: Final = Struct(">ihqq")
_RESULT_5: Final = Struct(">ihqqq")
_PLAIN_RESULT_8: Final = Struct(">ihqqqih")
"""A result without record errors (count 0) and message (length -1)."""
_PLAIN_RESULT_9: Final = Struct(">ihqqqBBB")
"""The same, flexible: no record errors (1), no message (0), no tags (0)."""

ProducePartition: TypeAlias = tuple[int, memoryview | None]
"""Partition index and records."""


class ProduceTopic(NamedTuple):
    """The batches for one topic, which is named by `name` before v13 and by `topic_id` from v13 on."""

    name: str | None
    topic_id: bytes | None
    partitions: list[ProducePartition]


class ProduceRequest(NamedTuple):
    transactional_id: str | None
    acks: int
    timeout_ms: int
    topics: list[ProduceTopic]


class RecordError(NamedTuple):
    """Which record of the batch was refused, and why."""

    batch_index: int
    message: str | None = None


class ProducePartitionResult(NamedTuple):
    """What became of one batch; with an error, base_offset is -1."""

    index: int  # type: ignore[assignment]  # the protocol's name; a result is never searched by value
    error_code: int = 0
    base_offset: int = -1
    log_append_time_ms: int = -1
    log_start_offset: int = -1
    record_errors: Sequence[RecordError] = ()
    error_message: str | None = None
    current_leader: CurrentLeader | None = None


class ProduceTopicResult(NamedTuple):
    name: str | None
    topic_id: bytes | None
    partitions: Sequence[ProducePartitionResult]


class ProduceResponse(NamedTuple):
    topics: list[ProduceTopicResult]
    throttle_time_ms: int = 0
    node_endpoints: Sequence[NodeEndpoint] = ()


def parse_produce_request(body: Buffer, version: int) -> ProduceRequest:
    """The request in `body`, with the records as views into it; what follows it there is ignored, as Kafka does."""
    _check_version(version)
    view = memoryview(body)
    try:
        if version < _FIRST_FLEXIBLE:
            request, _ = _parse_old_request(view)
        else:
            request, _ = _parse_flexible_request(view, version)
    except (error, IndexError):
        underflow(len(view))
    return request


def _parse_old_request(view: memoryview) -> tuple[ProduceRequest, int]:
    size = len(view)
    transactional_id, position = read_nullable_string(view, 0)
    acks, timeout_ms = _ACKS_TIMEOUT.unpack_from(view, position)
    topic_count, position = read_array_count(view, position + 6, 6)
    budget = spend(ELEMENTS_MAX, topic_count)
    topics = []
    for _ in range(topic_count):
        name, position = read_string(view, position)
        partition_count, position = read_array_count(view, position, 8)
        budget = spend(budget, partition_count)
        partitions: list[ProducePartition] = []
        for _ in range(partition_count):
            index, length = _OLD_PARTITION.unpack_from(view, position)
            position += 8
            end = position + length
            if length >= 0 and end <= size:
                partitions.append((index, view[position:end]))
                position = end
            elif length == -1:
                partitions.append((index, None))
            else:
                raise ProtocolViolation(f"records of {length} bytes at byte {position} of {size}")
        topics.append(ProduceTopic(name, None, partitions))
    return ProduceRequest(transactional_id, acks, timeout_ms, topics), position


def _parse_flexible_request(view: memoryview, version: int) -> tuple[ProduceRequest, int]:
    size = len(view)
    by_id = version >= _FIRST_WITH_TOPIC_ID
    transactional_id, position = read_compact_nullable_string(view, 0)
    acks, timeout_ms = _ACKS_TIMEOUT.unpack_from(view, position)
    topic_count, position = read_compact_array_count(view, position + 6, 3)
    budget = spend(ELEMENTS_MAX, topic_count)
    topics = []
    for _ in range(topic_count):
        name, topic_id, position = read_topic(view, position, True, by_id)
        partition_count, position = read_compact_array_count(view, position, 6)
        budget = spend(budget, partition_count)
        partitions: list[ProducePartition] = []
        for _ in range(partition_count):
            (index,) = _INT32.unpack_from(view, position)
            length, position = read_uvarint(view, position + 4)
            if length == 0:
                partitions.append((index, None))
            else:
                end = position + length - 1
                if end > size:
                    underflow(position)
                partitions.append((index, view[position:end]))
                position = end
            position = position + 1 if view[position] == 0 else skip_tagged_fields(view, position)
        position = skip_tagged_fields(view, position)
        topics.append(ProduceTopic(name, topic_id, partitions))
    position = skip_tagged_fields(view, position)
    return ProduceRequest(transactional_id, acks, timeout_ms, topics), position


def encode_produce_response(
    version: int,
    topics: Sequence[tuple[str | None, bytes | None, Sequence[ProducePartitionResult]]],
    throttle_time_ms: int = 0,
    node_endpoints: Sequence[NodeEndpoint] = (),
) -> bytes:
    """The response's body; `topics` may be ProduceTopicResults or plain tuples of the same."""
    _check_version(version)
    out = bytearray()
    if version < _FIRST_FLEXIBLE:
        out += _INT32.pack(len(topics))
        for name, _, results in topics:
            write_string(out, name or "")
            out += _INT32.pack(len(results))
            for result in results:
                _write_old_result(out, version, result)
        out += _INT32.pack(throttle_time_ms)
        return bytes(out)
    by_id = version >= _FIRST_WITH_TOPIC_ID
    write_uvarint(out, len(topics) + 1)
    for name, topic_id, results in topics:
        write_topic(out, True, by_id, name, topic_id)
        write_uvarint(out, len(results) + 1)
        for result in results:
            _write_flexible_result(out, version, result)
        out.append(0)
    out += _INT32.pack(throttle_time_ms)
    if node_endpoints and version >= _FIRST_WITH_LEADER_HINTS:
        out.append(1)
        write_endpoints_tag(out, 0, node_endpoints)
    else:
        out.append(0)
    return bytes(out)


def _write_old_result(out: bytearray, version: int, result: ProducePartitionResult) -> None:
    if version < _FIRST_WITH_LOG_START:
        out += _RESULT_3.pack(*result[:4])
    elif version < _FIRST_WITH_RECORD_ERRORS:
        out += _RESULT_5.pack(*result[:5])
    elif not result.record_errors and result.error_message is None:
        out += _PLAIN_RESULT_8.pack(*result[:5], 0, -1)
    else:
        out += _RESULT_5.pack(*result[:5])
        out += _INT32.pack(len(result.record_errors))
        for record_error in result.record_errors:
            out += _INT32.pack(record_error.batch_index)
            write_nullable_string(out, record_error.message)
        write_nullable_string(out, result.error_message)


def _write_flexible_result(out: bytearray, version: int, result: ProducePartitionResult) -> None:
    leader = result.current_leader if version >= _FIRST_WITH_LEADER_HINTS else None
    if not result.record_errors and result.error_message is None and leader is None:
        out += _PLAIN_RESULT_9.pack(*result[:5], 1, 0, 0)
        return
    out += _RESULT_5.pack(*result[:5])
    write_uvarint(out, len(result.record_errors) + 1)
    for record_error in result.record_errors:
        out += _INT32.pack(record_error.batch_index)
        write_compact_nullable_string(out, record_error.message)
        out.append(0)
    write_compact_nullable_string(out, result.error_message)
    if leader is None or leader == CurrentLeader():
        out.append(0)
    else:
        out.append(1)
        write_leader_tag(out, 0, leader)


def encode_produce_request(
    version: int,
    *,
    topics: Sequence[tuple[str | None, bytes | None, Sequence[tuple[int, Buffer | None]]]],
    acks: int,
    timeout_ms: int,
    transactional_id: str | None = None,
) -> list[Buffer]:
    """The request's body in chunks, the records being the caller's own buffers."""
    _check_version(version)
    flexible = version >= _FIRST_FLEXIBLE
    by_id = version >= _FIRST_WITH_TOPIC_ID
    chunks: list[Buffer] = []
    out = bytearray()
    (write_compact_nullable_string if flexible else write_nullable_string)(out, transactional_id)
    out += _ACKS_TIMEOUT.pack(acks, timeout_ms)
    write_count(out, flexible, len(topics))
    for name, topic_id, partitions in topics:
        write_topic(out, flexible, by_id, name, topic_id)
        write_count(out, flexible, len(partitions))
        for index, records in partitions:
            out += _INT32.pack(index)
            write_count(out, flexible, -1 if records is None else len(records))
            if records:
                chunks += (bytes(out), records)
                out = bytearray()
            if flexible:
                out.append(0)
        if flexible:
            out.append(0)
    if flexible:
        out.append(0)
    chunks.append(bytes(out))
    return chunks


def parse_produce_response(body: Buffer, version: int) -> ProduceResponse:
    """The response in `body`, which must hold nothing else."""
    _check_version(version)
    view = memoryview(body)
    flexible = version >= _FIRST_FLEXIBLE
    by_id = version >= _FIRST_WITH_TOPIC_ID
    topics: list[ProduceTopicResult] = []
    endpoints: list[NodeEndpoint] = []
    try:
        topic_count, position = read_count(view, 0, flexible, 3)
        budget = spend(ELEMENTS_MAX, topic_count)
        for _ in range(topic_count):
            name, topic_id, position = read_topic(view, position, flexible, by_id)
            result_count, position = read_count(view, position, flexible, _RESULT_3.size)
            budget = spend(budget, result_count)
            results = []
            for _ in range(result_count):
                result, position, budget = _read_result(view, position, version, budget)
                results.append(result)
            if flexible:
                position = skip_tagged_fields(view, position)
            topics.append(ProduceTopicResult(name, topic_id, results))
        (throttle_time_ms,) = _INT32.unpack_from(view, position)
        position += 4
        if flexible:
            endpoints, position = read_response_tags(view, position, has_endpoints=version >= _FIRST_WITH_LEADER_HINTS)
    except (error, IndexError):
        underflow(len(view))
    check_end(position, len(view))
    return ProduceResponse(topics, throttle_time_ms, endpoints)


def _read_result(view: memoryview, position: int, version: int, budget: int) -> tuple[ProducePartitionResult, int, int]:
    if version < _FIRST_WITH_LOG_START:
        return ProducePartitionResult(*_RESULT_3.unpack_from(view, position)), position + _RESULT_3.size, budget
    fields = _RESULT_5.unpack_from(view, position)
    position += _RESULT_5.size
    if version < _FIRST_WITH_RECORD_ERRORS:
        return ProducePartitionResult(*fields), position, budget
    flexible = version >= _FIRST_FLEXIBLE
    read_text = read_compact_nullable_string if flexible else read_nullable_string
    error_count, position = read_count(view, position, flexible, 6)
    budget = spend(budget, error_count)
    record_errors = []
    for _ in range(error_count):
        (batch_index,) = _INT32.unpack_from(view, position)
        message, position = read_text(view, position + 4)
        if flexible:
            position = skip_tagged_fields(view, position)
        record_errors.append(RecordError(batch_index, message))
    error_message, position = read_text(view, position)
    leader = None
    if flexible:
        count, position = read_tagged_count(view, position)
        tag = -1
        for _ in range(count):
            tag, end, position = read_tag(view, position, tag)
            if tag == 0 and version >= _FIRST_WITH_LEADER_HINTS:
                leader = read_leader(view, position, end)
            position = end
    result = ProducePartitionResult._make((*fields, record_errors, error_message, leader))
    return result, position, budget


def _check_version(version: int) -> None:
    if version not in VERSIONS:
        raise ProtocolViolation(f"Produce has no version {version} here")
