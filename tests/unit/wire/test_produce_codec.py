"""Produce's codec: views instead of copies, limits, tags, and what null means."""

import pytest

from martlet.base.errors import ProtocolViolation
from martlet.wire.leader_hints import CurrentLeader, NodeEndpoint
from martlet.wire.produce import (
    VERSIONS,
    ProducePartitionResult,
    ProduceTopic,
    RecordError,
    encode_produce_request,
    encode_produce_response,
    parse_produce_request,
    parse_produce_response,
)
from martlet.wire.topic_fields import ELEMENTS_MAX

TOPIC_ID = bytes(range(16))
every_version = pytest.mark.parametrize("version", VERSIONS)


def request(version: int, records: bytes | None = b"the batch") -> bytes:
    chunks = encode_produce_request(version, topics=[("t", TOPIC_ID, [(4, records)])], acks=1, timeout_ms=9)
    return b"".join(chunks)


@every_version
def test_records_are_writable_views_into_the_buffer(version: int) -> None:
    buffer = bytearray(request(version))
    parsed = parse_produce_request(memoryview(buffer), version)
    ((index, records),) = parsed.topics[0].partitions
    assert index == 4
    assert records is not None
    records[:3] = b"THE"
    assert b"THE batch" in buffer
    assert parsed[:3] == (None, 1, 9)
    assert (parsed.topics[0].name, parsed.topics[0].topic_id) == ((None, TOPIC_ID) if version >= 13 else ("t", None))


@every_version
def test_null_and_empty_records_are_told_apart(version: int) -> None:
    assert parse_produce_request(request(version, None), version).topics[0].partitions == [(4, None)]
    assert parse_produce_request(request(version, b""), version).topics[0].partitions == [(4, memoryview(b""))]


@every_version
def test_encoding_a_request_does_not_copy_the_records(version: int) -> None:
    batches = [bytes(1000), bytes(2000)]
    partitions = [(index, batch) for index, batch in enumerate(batches)]
    chunks = encode_produce_request(version, topics=[("t", TOPIC_ID, partitions)], acks=-1, timeout_ms=1)
    assert [chunk for chunk in chunks if len(chunk) >= 1000] == batches
    assert all(any(chunk is batch for chunk in chunks) for batch in batches)


@every_version
def test_bytes_behind_a_request_are_ignored_and_behind_a_response_refused(version: int) -> None:
    assert parse_produce_request(request(version) + b"\0", version) == parse_produce_request(request(version), version)
    with pytest.raises(ProtocolViolation, match="after the end"):
        parse_produce_response(encode_produce_response(version, []) + b"\0", version)


@pytest.mark.parametrize("version", [-1, 0, 2, 14])
def test_versions_outside_the_range_are_refused(version: int) -> None:
    with pytest.raises(ProtocolViolation, match="no version"):
        parse_produce_request(b"", version)
    with pytest.raises(ProtocolViolation, match="no version"):
        encode_produce_response(version, [])


@pytest.mark.parametrize("length", [-2, -(1 << 31), 10, (1 << 31) - 1])
def test_lengths_of_records_that_cannot_be_are_refused(length: int) -> None:
    broken = request(3).replace((9).to_bytes(4, "big") + b"the", length.to_bytes(4, "big", signed=True) + b"the")
    with pytest.raises(ProtocolViolation):
        parse_produce_request(broken, 3)


@pytest.mark.parametrize("count", [-2, 1000, (1 << 31) - 1])
def test_counts_that_the_bytes_cannot_hold_are_refused(count: int) -> None:
    head = b"\xff\xff" + b"\0\1" + bytes(4)
    with pytest.raises(ProtocolViolation):
        parse_produce_request(head + count.to_bytes(4, "big", signed=True) + bytes(100), 3)


def test_null_instead_of_topics_or_partitions_is_refused() -> None:
    old_head, flexible_head = b"\xff\xff" + bytes(6), b"\0" + bytes(6)
    for body, version in (
        (old_head + b"\xff" * 4, 3),
        (old_head + b"\0\0\0\1" + b"\0\1t" + b"\xff" * 4, 3),
        (flexible_head + b"\0\0", 9),
        (flexible_head + b"\2" + b"\2t" + b"\0" + b"\0\0", 9),
    ):
        with pytest.raises(ProtocolViolation, match="null instead of an array"):
            parse_produce_request(body, version)


def test_i2_all_topics_together_may_have_so_many_partitions_only() -> None:
    half = ELEMENTS_MAX // 2
    partition = bytes(4) + b"\1" + b"\0"
    count = bytes((half + 1 & 0x7F | 0x80, (half + 1) >> 7 & 0x7F | 0x80, (half + 1) >> 14))
    topic = b"\2t" + count + partition * half + b"\0"
    head = b"\0" + bytes(6)
    with pytest.raises(ProtocolViolation, match="more than"):
        parse_produce_request(head + b"\3" + topic * 2 + b"\0", 9)


def test_unknown_tags_are_skipped_and_disorderly_ones_refused() -> None:
    tag = b"\1" + b"\x63" + b"\3abc"
    head = b"\0" + b"\0\1" + bytes(4)
    partition = bytes(4) + b"\3hi"
    tagged = head + b"\2" + b"\2t" + b"\2" + partition + tag + tag + tag
    assert parse_produce_request(tagged, 9).topics == [ProduceTopic("t", None, [(0, memoryview(b"hi"))])]
    for bad in (b"\2" + b"\5\0" + b"\5\0", b"\2" + b"\5\0" + b"\4\0", b"\1" + b"\5\x09x", b"\xff\xff\xff\xff\x0f"):
        with pytest.raises(ProtocolViolation):
            parse_produce_request(head + b"\1" + bad, 9)


@every_version
def test_a_plain_success_has_no_hints(version: int) -> None:
    result = ProducePartitionResult(3, 0, 100, -1, 7)
    body = encode_produce_response(version, [("t", TOPIC_ID, [result])])
    parsed = parse_produce_response(body, version)
    assert parsed.topics[0].partitions[0].current_leader is None
    assert parsed.topics[0].partitions[0].base_offset == 100
    assert parsed.node_endpoints == []


def test_an_unknown_leader_is_left_out_instead_of_written() -> None:
    plain = ProducePartitionResult(3, 6, error_message="not here")
    unknown = plain._replace(current_leader=CurrentLeader())
    assert encode_produce_response(10, [("t", None, [unknown])]) == encode_produce_response(10, [("t", None, [plain])])


def test_hints_and_reasons_reach_the_client() -> None:
    result = ProducePartitionResult(
        3, 87, record_errors=[RecordError(1, "null key")], error_message="refused", current_leader=CurrentLeader(2, 8)
    )
    nodes = [NodeEndpoint(2, "other", 9093)]
    parsed = parse_produce_response(encode_produce_response(13, [(None, TOPIC_ID, [result])], 50, nodes), 13)
    assert parsed == ([(None, TOPIC_ID, [result])], 50, nodes)
