"""Fetch's codec: chunks instead of copies, empty instead of null, defaults, limits and tags."""

import pytest

from martlet.base.errors import ProtocolViolation
from martlet.wire.fetch import (
    UNKNOWN_HIGH_WATERMARK,
    VERSIONS,
    EpochEndOffset,
    FetchPartition,
    FetchPartitionResult,
    FetchRequest,
    FetchTopic,
    ReplicaState,
    SnapshotId,
    encode_fetch_request,
    encode_fetch_response,
    parse_fetch_request,
    parse_fetch_response,
)
from martlet.wire.leader_hints import CurrentLeader, NodeEndpoint
from martlet.wire.primitives import Buffer
from martlet.wire.topic_fields import ELEMENTS_MAX

TOPIC_ID = bytes(range(16))
every_version = pytest.mark.parametrize("version", VERSIONS)


def response(version: int, *results: FetchPartitionResult) -> bytes:
    return b"".join(encode_fetch_response(version, [("t", TOPIC_ID, results)]))


def request(version: int, *partitions: FetchPartition) -> bytes:
    return encode_fetch_request(version, FetchRequest(topics=[FetchTopic("t", TOPIC_ID, partitions)]))


@every_version
def test_records_pass_through_without_a_copy(version: int) -> None:
    slices: list[Buffer] = [bytes(1000), memoryview(bytearray(2000)), bytes(3000)]
    results = [FetchPartitionResult(index, records=data) for index, data in enumerate(slices)]
    chunks = encode_fetch_response(version, [("t", TOPIC_ID, results[:2]), ("u", TOPIC_ID, results[2:])])
    assert all(any(chunk is data for chunk in chunks) for data in slices)
    assert sum(len(chunk) for chunk in chunks if len(chunk) < 1000) < 300


@every_version
def test_parsed_records_are_views_into_the_body(version: int) -> None:
    body = bytearray(response(version, FetchPartitionResult(0, records=b"the batch")))
    records = parse_fetch_response(memoryview(body), version).topics[0].partitions[0].records
    assert isinstance(records, memoryview)
    assert records.obj is body


@every_version
def test_i3_empty_partitions_have_empty_records_and_not_null(version: int) -> None:
    # Both the length of records and the last field before the tags: zero, or one for "zero plus one".
    tail = response(version, FetchPartitionResult(0))
    assert tail.endswith(b"\1\0\0\0" if version >= 12 else bytes(4))
    assert parse_fetch_response(tail, version).topics[0].partitions[0].records == b""


def test_null_records_of_other_brokers_read_as_empty() -> None:
    old = response(4, FetchPartitionResult(0))
    assert parse_fetch_response(old[:-4] + b"\xff" * 4, 4).topics[0].partitions[0].records == b""
    flexible = response(12, FetchPartitionResult(0))
    assert parse_fetch_response(flexible[:-4] + b"\0\0\0\0", 12).topics[0].partitions[0].records == b""


@every_version
def test_defaults_say_nothing_wrong(version: int) -> None:
    (result,) = parse_fetch_response(response(version, FetchPartitionResult(7, 3)), version).topics[0].partitions
    assert result == FetchPartitionResult(7, 3)
    assert result.preferred_read_replica == -1
    assert result.current_leader is None


@every_version
def test_a_session_less_request_reads_back_with_defaults(version: int) -> None:
    parsed = parse_fetch_request(request(version, FetchPartition(2, fetch_offset=55)), version)
    assert (parsed.replica, parsed.session_id, parsed.session_epoch, parsed.rack_id) == (ReplicaState(), 0, -1, "")
    assert not parsed.forgotten_topics_data
    assert parsed.topics[0].partitions == [FetchPartition(2, fetch_offset=55)]
    assert parsed.topics[0].partitions[0].high_watermark == UNKNOWN_HIGH_WATERMARK


@pytest.mark.parametrize("version", [15, 18])
def test_a_replica_names_itself_in_a_tag(version: int) -> None:
    body = encode_fetch_request(version, FetchRequest(replica_state=ReplicaState(5, 77), cluster_id="c"))
    parsed = parse_fetch_request(body, version)
    assert (parsed.replica, parsed.cluster_id) == ((5, 77), "c")


@every_version
def test_bytes_behind_a_request_are_ignored_and_behind_a_response_refused(version: int) -> None:
    assert parse_fetch_request(request(version) + b"\0", version) == parse_fetch_request(request(version), version)
    with pytest.raises(ProtocolViolation, match="after the end"):
        parse_fetch_response(response(version) + b"\0", version)


@pytest.mark.parametrize("version", [-1, 3, 19])
def test_versions_outside_the_range_are_refused(version: int) -> None:
    with pytest.raises(ProtocolViolation, match="no version"):
        parse_fetch_request(b"", version)
    with pytest.raises(ProtocolViolation, match="no version"):
        encode_fetch_response(version, [])


@pytest.mark.parametrize("count", [-1, -2, 1000, (1 << 31) - 1])
def test_counts_that_the_bytes_cannot_hold_are_refused(count: int) -> None:
    with pytest.raises(ProtocolViolation):
        parse_fetch_request(bytes(17) + count.to_bytes(4, "big", signed=True) + bytes(100), 4)


def test_partitions_that_end_outside_the_message_are_refused() -> None:
    # Three partitions of 20 bytes would fit by the smallest size, not by version 5's.
    body = bytes(17) + b"\0\0\0\1" + b"\0\1t" + b"\0\0\0\3" + bytes(60)
    with pytest.raises(ProtocolViolation):
        parse_fetch_request(body, 5)


def test_i2_all_topics_together_may_have_so_many_partitions_only() -> None:
    half = ELEMENTS_MAX // 2
    topic = b"\0\1t" + half.to_bytes(4, "big") + bytes(16 * half)
    with pytest.raises(ProtocolViolation, match="more elements"):
        parse_fetch_request(bytes(17) + b"\0\0\0\2" + topic * 2, 4)


def test_unknown_tags_are_skipped_everywhere() -> None:
    tag = b"\1" + b"\x63" + b"\3abc"
    head = bytes(12) + b"\0" + bytes(8)
    body = (
        head
        + b"\2"
        + TOPIC_ID
        + b"\2"
        + bytes(32)
        + tag
        + tag
        + b"\2"
        + TOPIC_ID
        + b"\2"
        + bytes(4)
        + tag
        + b"\1"
        + tag
    )
    parsed = parse_fetch_request(body, 18)
    assert len(parsed.topics[0].partitions) == 1
    assert parsed.forgotten_topics_data == [(None, TOPIC_ID, [0])]


@pytest.mark.parametrize(
    "tags", [b"\1\0\x0f" + bytes(15), b"\1\1\7" + bytes(7), b"\2\1\x08" + bytes(8) + b"\0\x10" + bytes(16)]
)
def test_known_tags_of_the_wrong_size_or_order_are_refused(tags: bytes) -> None:
    plain = request(18, FetchPartition(0))
    good = b"\2" + b"\0\x10" + TOPIC_ID + b"\1\x08" + bytes(8)
    (read,) = parse_fetch_request(plain.replace(bytes((0, 0)) + b"\1\1\0", good + b"\0\1\1\0"), 18).topics[0].partitions
    assert (read.replica_directory_id, read.high_watermark) == (TOPIC_ID, 0)
    with pytest.raises(ProtocolViolation):
        parse_fetch_request(plain.replace(bytes((0, 0)) + b"\1\1\0", tags + b"\0\1\1\0"), 18)


def test_hints_reach_the_client() -> None:
    result = FetchPartitionResult(
        1, 6, diverging_epoch=EpochEndOffset(3, 40), current_leader=CurrentLeader(2, 8), snapshot_id=SnapshotId(9, 1)
    )
    nodes = [NodeEndpoint(2, "other", 9093, "rack")]
    chunks = encode_fetch_response(16, [(None, TOPIC_ID, [result])], session_id=4, node_endpoints=nodes)
    parsed = parse_fetch_response(b"".join(chunks), 16)
    assert parsed == ([(None, TOPIC_ID, [result])], 0, 4, 0, nodes)


def test_unset_hints_are_left_out() -> None:
    plain = FetchPartitionResult(1, 6)
    unset = plain._replace(diverging_epoch=EpochEndOffset(), current_leader=CurrentLeader(), snapshot_id=SnapshotId())
    assert response(16, unset) == response(16, plain)
