"""Fetch (key 1), versions 4-18: both sides, both directions.

Rules: pure bytes to values and back. The codec of requests is generated (`message_codec`). That of responses is written
by hand, because every batch leaves here and is neither read nor copied: encoding a response gives a list of chunks
among which are the caller's buffers, parsing one gives views into the caller's buffer.

    requests    v5 log_start_offset · v7 sessions and forgotten topics · v9 current_leader_epoch · v11 rack_id
                v12 flexible, last_fetched_epoch, cluster_id (tagged) · v13 topics by id · v15 replica_id moves
                into the tagged replica_state · v17 replica_directory_id · v18 high_watermark (both tagged)
    responses   v5 log_start_offset · v7 error_code and session_id · v11 preferred_read_replica
                v12 flexible, diverging epoch, leader and snapshot (tagged) · v13 topics by id
                v16 node_endpoints (tagged)

v6, 8, 10 and 14 change meaning only.

Invariants:
FETCH-1 Only ProtocolViolation leaves a parser, whatever the bytes.
FETCH-2 Arrays are bounded by the bytes left and, all together, by `ELEMENTS_MAX`.
FETCH-3 A response's records are never null: an empty partition has records of length zero, or librdkafka stops reading.

Proved by: tests/unit/wire/test_fetch_codec.py, tests/properties/test_produce_fetch_codec.py
"""

from collections.abc import Sequence
from struct import Struct, error
from typing import Final, NamedTuple, TypeAlias

from martlet.base.errors import ProtocolViolation
from martlet.base.ids import NO_TOPIC_ID
from martlet.wire.leader_hints import (
    CurrentLeader,
    NodeEndpoint,
    read_leader,
    read_response_tags,
    write_endpoints_tag,
    write_leader_tag,
)
from martlet.wire.message_codec import decode, encode
from martlet.wire.primitives import (
    Buffer,
    read_tag,
    read_tagged_count,
    read_uvarint,
    skip_tagged_fields,
    underflow,
)
from martlet.wire.topic_fields import (
    ELEMENTS_MAX,
    check_end,
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
_FIRST_WITH_PREFERRED_REPLICA: Final = 11
_FIRST_WITH_TOPIC_ID: Final = 13
_FIRST_WITH_ENDPOINTS: Final = 16

_INT32: Final = Struct(">i")
_SESSION: Final = Struct(">hi")
"""error_code, session_id."""
_DATA_4: Final = Struct(">ihqq")
_DATA_5: Final = Struct(">ihqqq")
_ABORTED: Final = Struct(">qq")
_EPOCH_END: Final = Struct(">iq")
_SNAPSHOT: Final = Struct(">qi")


# Requests; the names of classes and fields are the schema's.


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
    """Named by `topic` before v13 and by `topic_id` from v13 on."""

    topic: str | None = None
    topic_id: bytes | None = None
    partitions: Sequence[FetchPartition] = ()


class ForgottenTopic(NamedTuple):
    """Partitions that leave the fetch session; named like a FetchTopic."""

    topic: str | None = None
    topic_id: bytes | None = None
    partitions: Sequence[int] = ()


class ReplicaState(NamedTuple):
    """The follower that fetches; a consumer's request has -1 or, for debugging, -2 as `replica_id`."""

    replica_id: int = -1
    replica_epoch: int = -1


class FetchRequest(NamedTuple):
    """`replica_id` serves before v15 and `replica_state` from v15 on; `replica` is the one that says something."""

    replica_id: int = -1
    max_wait_ms: int = 500
    min_bytes: int = 1
    max_bytes: int = (1 << 31) - 1
    isolation_level: int = 0
    session_id: int = 0
    session_epoch: int = -1
    topics: Sequence[FetchTopic] = ()
    forgotten_topics_data: Sequence[ForgottenTopic] = ()
    rack_id: str = ""
    cluster_id: str | None = None
    replica_state: ReplicaState = ReplicaState()

    @property
    def replica(self) -> ReplicaState:
        """Who fetches."""
        return self.replica_state if self.replica_id == -1 else ReplicaState(self.replica_id)


def parse_fetch_request(body: Buffer, version: int) -> FetchRequest:
    """The request in `body`; what follows it there is ignored, as Kafka does."""
    _check_version(version)
    return decode(FetchRequest, version, body, object_budget=ELEMENTS_MAX)


def encode_fetch_request(version: int, request: FetchRequest) -> bytes:
    """The request's body."""
    _check_version(version)
    return encode(request, version)


# Responses


class AbortedTransaction(NamedTuple):
    producer_id: int
    first_offset: int


class EpochEndOffset(NamedTuple):
    epoch: int = -1
    end_offset: int = -1


class SnapshotId(NamedTuple):
    end_offset: int = -1
    epoch: int = -1


class FetchPartitionResult(NamedTuple):
    """The answer for one partition; an error leaves the rest at its defaults."""

    partition: int
    error_code: int = 0
    high_watermark: int = -1
    last_stable_offset: int = -1
    log_start_offset: int = -1
    records: Buffer = b""
    aborted_transactions: Sequence[AbortedTransaction] | None = None
    preferred_read_replica: int = -1
    diverging_epoch: EpochEndOffset | None = None
    current_leader: CurrentLeader | None = None
    snapshot_id: SnapshotId | None = None


ResultTags: TypeAlias = tuple[EpochEndOffset | None, CurrentLeader | None, SnapshotId | None]


class FetchTopicResult(NamedTuple):
    name: str | None
    topic_id: bytes | None
    partitions: Sequence[FetchPartitionResult]


class FetchResponse(NamedTuple):
    topics: list[FetchTopicResult]
    error_code: int = 0
    session_id: int = 0
    throttle_time_ms: int = 0
    node_endpoints: Sequence[NodeEndpoint] = ()


def encode_fetch_response(
    version: int,
    topics: Sequence[tuple[str | None, bytes | None, Sequence[FetchPartitionResult]]],
    *,
    error_code: int = 0,
    session_id: int = 0,
    throttle_time_ms: int = 0,
    node_endpoints: Sequence[NodeEndpoint] = (),
) -> list[Buffer]:
    """The response's body in chunks, the records being the caller's own buffers."""
    _check_version(version)
    flexible = version >= _FIRST_FLEXIBLE
    by_id = version >= _FIRST_WITH_TOPIC_ID
    chunks: list[Buffer] = []
    out = bytearray(_INT32.pack(throttle_time_ms))
    if version >= _FIRST_WITH_SESSION:
        out += _SESSION.pack(error_code, session_id)
    write_count(out, flexible, len(topics))
    for name, topic_id, results in topics:
        write_topic(out, flexible, by_id, name, topic_id)
        write_count(out, flexible, len(results))
        for result in results:
            _write_result_head(out, version, result)
            if result.records:
                chunks += (bytes(out), result.records)
                out = bytearray()
            if flexible:
                _write_result_tags(out, result)
        if flexible:
            out.append(0)
    if flexible:
        if node_endpoints and version >= _FIRST_WITH_ENDPOINTS:
            out.append(1)
            write_endpoints_tag(out, 0, node_endpoints)
        else:
            out.append(0)
    if out:
        chunks.append(bytes(out))
    return chunks


def _write_result_head(out: bytearray, version: int, result: FetchPartitionResult) -> None:
    """Everything before the bytes of the records, their length included (FETCH-3)."""
    flexible = version >= _FIRST_FLEXIBLE
    out += _DATA_4.pack(*result[:4]) if version < _FIRST_WITH_LOG_START else _DATA_5.pack(*result[:5])
    aborted = result.aborted_transactions
    if aborted is None:
        write_count(out, flexible, -1)
    else:
        write_count(out, flexible, len(aborted))
        for transaction in aborted:
            out += _ABORTED.pack(*transaction)
            if flexible:
                out.append(0)
    if version >= _FIRST_WITH_PREFERRED_REPLICA:
        out += _INT32.pack(result.preferred_read_replica)
    write_count(out, flexible, len(result.records))


def _write_result_tags(out: bytearray, result: FetchPartitionResult) -> None:
    diverging, leader, snapshot = result.diverging_epoch, result.current_leader, result.snapshot_id
    if diverging is None and leader is None and snapshot is None:
        out.append(0)
        return
    tags = bytearray()
    count = 0
    if diverging is not None and diverging != EpochEndOffset():
        write_tagged_pair(tags, 0, _EPOCH_END, diverging)
        count += 1
    if leader is not None and leader != CurrentLeader():
        write_leader_tag(tags, 1, leader)
        count += 1
    if snapshot is not None and snapshot != SnapshotId():
        write_tagged_pair(tags, 2, _SNAPSHOT, snapshot)
        count += 1
    out.append(count)
    out += tags


def parse_fetch_response(body: Buffer, version: int) -> FetchResponse:
    """The response in `body`, which must hold nothing else; records are views into it, empty where they were null."""
    _check_version(version)
    view = memoryview(body)
    flexible = version >= _FIRST_FLEXIBLE
    by_id = version >= _FIRST_WITH_TOPIC_ID
    error_code = session_id = 0
    topics: list[FetchTopicResult] = []
    endpoints: list[NodeEndpoint] = []
    try:
        (throttle_time_ms,) = _INT32.unpack_from(view, 0)
        position = 4
        if version >= _FIRST_WITH_SESSION:
            error_code, session_id = _SESSION.unpack_from(view, position)
            position += _SESSION.size
        topic_count, position = read_count(view, position, flexible, 3)
        budget = spend(ELEMENTS_MAX, topic_count)
        for _ in range(topic_count):
            name, topic_id, position = read_topic(view, position, flexible, by_id)
            result_count, position = read_count(view, position, flexible, _DATA_4.size)
            budget = spend(budget, result_count)
            results = []
            for _ in range(result_count):
                result, position, budget = _read_result(view, position, version, budget)
                results.append(result)
            if flexible:
                position = skip_tagged_fields(view, position)
            topics.append(FetchTopicResult(name, topic_id, results))
        if flexible:
            endpoints, position = read_response_tags(view, position, has_endpoints=version >= _FIRST_WITH_ENDPOINTS)
    except (error, IndexError):
        underflow(len(view))
    check_end(position, len(view))
    return FetchResponse(topics, error_code, session_id, throttle_time_ms, endpoints)


def _read_result(view: memoryview, position: int, version: int, budget: int) -> tuple[FetchPartitionResult, int, int]:
    flexible = version >= _FIRST_FLEXIBLE
    if version < _FIRST_WITH_LOG_START:
        fields = (*_DATA_4.unpack_from(view, position), -1)
        position += _DATA_4.size
    else:
        fields = _DATA_5.unpack_from(view, position)
        position += _DATA_5.size
    aborted, position, budget = _read_aborted(view, position, flexible, budget)
    preferred = -1
    if version >= _FIRST_WITH_PREFERRED_REPLICA:
        (preferred,) = _INT32.unpack_from(view, position)
        position += 4
    if flexible:
        length, position = read_uvarint(view, position)
        length -= 1
    else:
        (length,) = _INT32.unpack_from(view, position)
        position += 4
    end = position + max(length, 0)
    if length < -1 or end > len(view):
        raise ProtocolViolation(f"records of {length} bytes at byte {position} of {len(view)}")
    records = view[position:end]
    position = end
    tags: ResultTags = (None, None, None)
    if flexible:
        tags, position = _read_result_tags(view, position)
    return FetchPartitionResult._make((*fields, records, aborted, preferred, *tags)), position, budget


def _read_aborted(
    view: memoryview, position: int, flexible: bool, budget: int
) -> tuple[list[AbortedTransaction] | None, int, int]:
    count, position = read_count(view, position, flexible, _ABORTED.size)
    if count < 0:
        return None, position, budget
    budget = spend(budget, count)
    aborted = []
    for _ in range(count):
        aborted.append(AbortedTransaction(*_ABORTED.unpack_from(view, position)))
        position += _ABORTED.size
        if flexible:
            position = skip_tagged_fields(view, position)
    return aborted, position, budget


def _read_result_tags(view: memoryview, position: int) -> tuple[ResultTags, int]:
    diverging = leader = snapshot = None
    count, position = read_tagged_count(view, position)
    tag = -1
    for _ in range(count):
        tag, end, position = read_tag(view, position, tag)
        if tag == 0:
            diverging = EpochEndOffset(*read_tagged_pair(view, position, end, _EPOCH_END))
        elif tag == 1:
            leader = read_leader(view, position, end)
        elif tag == 2:
            snapshot = SnapshotId(*read_tagged_pair(view, position, end, _SNAPSHOT))
        position = end
    return (diverging, leader, snapshot), position


def _check_version(version: int) -> None:
    if version not in VERSIONS:
        raise ProtocolViolation(f"Fetch has no version {version} here")
