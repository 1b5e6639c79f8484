"""Produce and Fetch in every version, byte for byte what kio writes, and nothing but ProtocolViolation on bad bytes.

kio's classes are generated from Kafka's own schemas, so equality with its writer is equality with the protocol.
"""

import importlib
import io
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from kio.schema.errors import ErrorCode as KioErrorCode
from kio.serial import entity_reader, entity_writer

from martlet.base.errors import ProtocolViolation
from martlet.wire import fetch, produce
from martlet.wire.leader_hints import CurrentLeader, NodeEndpoint
from martlet.wire.primitives import Buffer
from tests.properties.test_message_codec import messages
from tests.unit.wire.message_catalogue import schema_class, to_schema

int16s = st.integers(-(1 << 15), (1 << 15) - 1)
int32s = st.integers(-(1 << 31), (1 << 31) - 1)
int64s = st.integers(-(1 << 63), (1 << 63) - 1)
durations_ms = st.integers(0, (1 << 31) - 1)
texts = st.text(st.characters(codec="utf-8"), max_size=8) | st.just("t" * 130)
topic_ids = st.binary(min_size=16, max_size=16) | st.just(bytes(16))
blobs = st.binary(max_size=20) | st.just(b"r" * 200)
error_codes = st.sampled_from([0, 3, 6, 87])
leaders = st.none() | st.builds(CurrentLeader, st.integers(0, 1 << 30), int32s)
endpoints = st.lists(st.builds(NodeEndpoint, int32s, texts, int32s, st.none() | texts), max_size=2)


def few(elements: st.SearchStrategy[Any]) -> st.SearchStrategy[list[Any]]:
    return st.lists(elements, max_size=3)


def topics_of(partitions: st.SearchStrategy[Any]) -> st.SearchStrategy[list[Any]]:
    return few(st.tuples(texts, topic_ids, few(partitions)))


def kio_class(api: str, version: int, kind: str, name: str) -> Any:
    return getattr(importlib.import_module(f"kio.schema.{api}.v{version}.{kind}"), name)


def written(entity: Any) -> bytes:
    buffer = io.BytesIO()
    entity_writer(type(entity))(buffer, entity)
    return buffer.getvalue()


def read_by_kio(like: Any, data: bytes) -> Any:
    entity, size = entity_reader(type(like))(data, 0)
    assert size == len(data)
    return entity


def topic_key(version: int, first_with_id: int, name: str, topic_id: bytes, name_field: str = "name") -> dict[str, Any]:
    if version >= first_with_id:
        return {"topic_id": UUID(bytes=topic_id) if any(topic_id) else None}
    return {name_field: name}


def our_topic(version: int, first_with_id: int, name: str, topic_id: bytes) -> tuple[str | None, bytes | None]:
    return (None, topic_id) if version >= first_with_id else (name, None)


def kio_endpoints(api: str, version: int, nodes: list[NodeEndpoint]) -> tuple[Any, ...]:
    make = kio_class(api, version, "response", "NodeEndpoint")
    return tuple(make(node_id=n.node_id, host=n.host, port=n.port, rack=n.rack) for n in nodes)


def kio_leader(api: str, version: int, leader: CurrentLeader | None) -> Any:
    make = kio_class(api, version, "response", "LeaderIdAndEpoch")
    return make(leader_id=leader.leader_id, leader_epoch=leader.leader_epoch) if leader else make()


def milliseconds(value: int) -> timedelta:
    return timedelta(milliseconds=value)


every_produce_version = pytest.mark.parametrize("version", produce.VERSIONS)
every_fetch_version = pytest.mark.parametrize("version", fetch.VERSIONS)
quickly = settings(max_examples=25, deadline=None)


# Produce


@every_produce_version
@given(st.none() | texts, int16s, durations_ms, topics_of(st.tuples(int32s, st.none() | blobs)))
@quickly
def test_produce_requests_are_kios(
    version: int, transactional_id: str | None, acks: int, timeout_ms: int, topics: list[Any]
) -> None:
    topic_class = kio_class("produce", version, "request", "TopicProduceData")
    partition_class = kio_class("produce", version, "request", "PartitionProduceData")
    entity = kio_class("produce", version, "request", "ProduceRequest")(
        transactional_id=transactional_id,
        acks=acks,
        timeout=milliseconds(timeout_ms),
        topic_data=tuple(
            topic_class(
                **topic_key(version, 13, name, topic_id),
                partition_data=tuple(partition_class(index=index, records=records) for index, records in partitions),
            )
            for name, topic_id, partitions in topics
        ),
    )
    expected = written(entity)
    chunks = produce.encode_produce_request(
        version, topics=topics, acks=acks, timeout_ms=timeout_ms, transactional_id=transactional_id
    )
    assert b"".join(chunks) == expected
    assert read_by_kio(entity, expected) == entity
    request = produce.parse_produce_request(memoryview(bytearray(expected)), version)
    assert request == (
        transactional_id,
        acks,
        timeout_ms,
        [(*our_topic(version, 13, name, topic_id), partitions) for name, topic_id, partitions in topics],
    )


record_errors = few(st.builds(produce.RecordError, int32s, st.none() | texts))
produce_results = st.builds(
    produce.ProducePartitionResult,
    int32s,
    error_codes,
    int64s,
    st.just(-1) | st.integers(0, 4_000_000_000_000),
    int64s,
    st.just([]) | record_errors,
    st.none() | texts,
    leaders,
)


def kio_produce_result(version: int, result: produce.ProducePartitionResult) -> Any:
    append_time = None
    if result.log_append_time_ms >= 0:
        append_time = datetime(1970, 1, 1, tzinfo=UTC) + milliseconds(result.log_append_time_ms)
    values: dict[str, Any] = {
        "index": result.index,
        "error_code": KioErrorCode(result.error_code),
        "base_offset": result.base_offset,
        "log_append_time": append_time,
    }
    if version >= 5:
        values["log_start_offset"] = result.log_start_offset
    if version >= 8:
        make = kio_class("produce", version, "response", "BatchIndexAndErrorMessage")
        values["error_message"] = result.error_message
        values["record_errors"] = tuple(
            make(batch_index=e.batch_index, batch_index_error_message=e.message) for e in result.record_errors
        )
    if version >= 10:
        values["current_leader"] = kio_leader("produce", version, result.current_leader)
    return kio_class("produce", version, "response", "PartitionProduceResponse")(**values)


def known_to_version(version: int, result: produce.ProducePartitionResult) -> produce.ProducePartitionResult:
    if version < 10:
        result = result._replace(current_leader=None)
    if version < 8:
        result = result._replace(record_errors=(), error_message=None)
    return result._replace(log_start_offset=-1) if version < 5 else result


@every_produce_version
@given(topics_of(produce_results), durations_ms, endpoints)
@quickly
def test_produce_responses_are_kios(
    version: int, topics: list[Any], throttle_ms: int, nodes: list[NodeEndpoint]
) -> None:
    topic_class = kio_class("produce", version, "response", "TopicProduceResponse")
    hints = {"node_endpoints": kio_endpoints("produce", version, nodes)} if version >= 10 else {}
    entity = kio_class("produce", version, "response", "ProduceResponse")(
        responses=tuple(
            topic_class(
                **topic_key(version, 13, name, topic_id),
                partition_responses=tuple(kio_produce_result(version, result) for result in results),
            )
            for name, topic_id, results in topics
        ),
        throttle_time=milliseconds(throttle_ms),
        **hints,
    )
    expected = written(entity)
    assert produce.encode_produce_response(version, topics, throttle_ms, nodes) == expected
    assert read_by_kio(entity, expected) == entity
    assert produce.parse_produce_response(expected, version) == (
        [
            (*our_topic(version, 13, name, topic_id), [known_to_version(version, result) for result in results])
            for name, topic_id, results in topics
        ],
        throttle_ms,
        nodes if version >= 10 else [],
    )


# Fetch


@every_fetch_version
@given(st.data())
@quickly
def test_fetch_requests_are_kios(version: int, data: st.DataObject) -> None:
    request, _ = data.draw(messages(st.just((fetch.FetchRequest, version))))
    entity = to_schema(request, schema_class(fetch.FetchRequest, version))
    expected = written(entity)
    assert fetch.encode_fetch_request(version, request) == expected
    assert read_by_kio(entity, expected) == entity
    assert fetch.parse_fetch_request(memoryview(expected), version) == request


fetch_results = st.builds(
    fetch.FetchPartitionResult,
    int32s,
    error_codes,
    int64s,
    int64s,
    int64s,
    blobs,
    st.none() | few(st.builds(fetch.AbortedTransaction, int64s, int64s)),
    st.just(-1) | int32s,
    st.none() | st.builds(fetch.EpochEndOffset, int32s, st.integers(0, 1 << 40)),
    leaders,
    st.none() | st.builds(fetch.SnapshotId, st.integers(0, 1 << 40), int32s),
)


def kio_fetch_result(version: int, result: fetch.FetchPartitionResult) -> Any:
    aborted_class = kio_class("fetch", version, "response", "AbortedTransaction")
    aborted = None
    if result.aborted_transactions is not None:
        aborted = tuple(
            aborted_class(producer_id=a.producer_id, first_offset=a.first_offset) for a in result.aborted_transactions
        )
    values: dict[str, Any] = {
        "partition_index": result.partition,
        "error_code": KioErrorCode(result.error_code),
        "high_watermark": result.high_watermark,
        "last_stable_offset": result.last_stable_offset,
        "aborted_transactions": aborted,
        "records": bytes(result.records),
    }
    if version >= 5:
        values["log_start_offset"] = result.log_start_offset
    if version >= 11:
        values["preferred_read_replica"] = result.preferred_read_replica
    if version >= 12:
        values["current_leader"] = kio_leader("fetch", version, result.current_leader)
        if result.diverging_epoch is not None:
            make = kio_class("fetch", version, "response", "EpochEndOffset")
            values["diverging_epoch"] = make(**result.diverging_epoch._asdict())
        if result.snapshot_id is not None:
            make = kio_class("fetch", version, "response", "SnapshotId")
            values["snapshot_id"] = make(**result.snapshot_id._asdict())
    return kio_class("fetch", version, "response", "PartitionData")(**values)


def result_in_version(version: int, result: fetch.FetchPartitionResult) -> fetch.FetchPartitionResult:
    plain = fetch.FetchPartitionResult(0)
    since = {
        "log_start_offset": 5,
        "preferred_read_replica": 11,
        "diverging_epoch": 12,
        "current_leader": 12,
        "snapshot_id": 12,
    }
    return result._replace(**{name: getattr(plain, name) for name, first in since.items() if version < first})


@every_fetch_version
@given(topics_of(fetch_results), error_codes, int32s, durations_ms, endpoints)
@quickly
def test_fetch_responses_are_kios(
    version: int, topics: list[Any], error_code: int, session_id: int, throttle_ms: int, nodes: list[NodeEndpoint]
) -> None:
    topic_class = kio_class("fetch", version, "response", "FetchableTopicResponse")
    values: dict[str, Any] = {"throttle_time": milliseconds(throttle_ms)}
    if version >= 7:
        values |= {"error_code": KioErrorCode(error_code), "session_id": session_id}
    if version >= 16:
        values["node_endpoints"] = kio_endpoints("fetch", version, nodes)
    entity = kio_class("fetch", version, "response", "FetchResponse")(
        responses=tuple(
            topic_class(
                **topic_key(version, 13, name, topic_id, "topic"),
                partitions=tuple(kio_fetch_result(version, result) for result in results),
            )
            for name, topic_id, results in topics
        ),
        **values,
    )
    expected = written(entity)
    chunks = fetch.encode_fetch_response(
        version,
        topics,
        error_code=error_code,
        session_id=session_id,
        throttle_time_ms=throttle_ms,
        node_endpoints=nodes,
    )
    assert b"".join(chunks) == expected
    assert read_by_kio(entity, expected) == entity
    assert fetch.parse_fetch_response(expected, version) == (
        [
            (*our_topic(version, 13, name, topic_id), [result_in_version(version, result) for result in results])
            for name, topic_id, results in topics
        ],
        error_code if version >= 7 else 0,
        session_id if version >= 7 else 0,
        throttle_ms,
        nodes if version >= 16 else [],
    )


# Bad bytes

Parser = Callable[[Buffer, int], Any]
PARSERS: dict[str, tuple[Parser, range]] = {
    "produce request": (produce.parse_produce_request, produce.VERSIONS),
    "produce response": (produce.parse_produce_response, produce.VERSIONS),
    "fetch request": (fetch.parse_fetch_request, fetch.VERSIONS),
    "fetch response": (fetch.parse_fetch_response, fetch.VERSIONS),
}


def sample(kind: str, version: int) -> bytes:
    """A message with something in every field."""
    leader = CurrentLeader(3, 9)
    node = NodeEndpoint(3, "host", 9092, "rack")
    if kind == "produce request":
        topics = [("topic", bytes(range(16)), [(0, b"records"), (1, None), (2, b"r" * 200)]), ("", bytes(16), [])]
        chunks = produce.encode_produce_request(version, topics=topics, acks=-1, timeout_ms=5, transactional_id="id")
        return b"".join(chunks)
    if kind == "produce response":
        result = produce.ProducePartitionResult(
            1, 87, 5, 6, 7, [produce.RecordError(0, "bad"), produce.RecordError(1)], "all bad", leader
        )
        return produce.encode_produce_response(version, [("topic", bytes(range(16)), [result, result])], 5, [node])
    if kind == "fetch request":
        wanted = fetch.FetchPartition(1, 2, 3, 4, 5, 6, bytes(range(16)), 8)
        request = fetch.FetchRequest(
            topics=[fetch.FetchTopic("topic", bytes(range(16)), [wanted, wanted])],
            forgotten_topics_data=[fetch.ForgottenTopic("other", bytes(range(16)), [1, 2])],
            rack_id="rack",
            cluster_id="cluster",
            replica_id=4,
            replica_state=fetch.ReplicaState(4, 5),
        )
        return fetch.encode_fetch_request(version, request)
    aborted = [fetch.AbortedTransaction(1, 2)]
    found = fetch.FetchPartitionResult(
        1, 6, 7, 8, 9, b"records", aborted, -1, fetch.EpochEndOffset(1, 2), leader, fetch.SnapshotId(5, 6)
    )
    chunks = fetch.encode_fetch_response(version, [("topic", bytes(16), [found, found])], node_endpoints=[node])
    return b"".join(chunks)


def parsed_or_refused(parse: Parser, data: bytes, version: int) -> Any:
    try:
        return parse(memoryview(data), version)
    except ProtocolViolation:
        return None


@pytest.mark.parametrize("kind", PARSERS)
def test_a_message_cut_anywhere_is_refused(kind: str) -> None:
    parse, versions = PARSERS[kind]
    for version in versions:
        whole = sample(kind, version)
        assert parse(whole, version)
        for cut in range(len(whole)):
            with pytest.raises(ProtocolViolation):
                parse(whole[:cut], version)


@pytest.mark.parametrize("kind", PARSERS)
@given(st.data())
@settings(max_examples=300, deadline=None)
def test_changed_bytes_are_read_or_refused(kind: str, data: st.DataObject) -> None:
    parse, versions = PARSERS[kind]
    version = data.draw(st.sampled_from(versions))
    message = bytearray(sample(kind, version))
    for _ in range(data.draw(st.integers(1, 4))):
        at = data.draw(st.integers(0, len(message) - 1))
        kind_of_change = data.draw(st.sampled_from(["set", "insert", "remove"]))
        if kind_of_change == "set":
            message[at] = data.draw(st.sampled_from([0, 1, 2, 0x7F, 0x80, 0xFF]) | st.integers(0, 255))
        elif kind_of_change == "insert":
            message[at:at] = data.draw(st.binary(min_size=1, max_size=6) | st.just(b"\xff" * 5))
        elif len(message) > 1:
            del message[at]
    parsed_or_refused(parse, bytes(message), version)


@pytest.mark.parametrize("kind", PARSERS)
@given(st.data())
@settings(max_examples=200, deadline=None)
def test_noise_is_read_or_refused(kind: str, data: st.DataObject) -> None:
    parse, versions = PARSERS[kind]
    parsed_or_refused(parse, data.draw(st.binary(max_size=80)), data.draw(st.sampled_from(versions)))
