"""The codec of ShareFetch and ShareAcknowledge: runs however a client cuts them, records not copied, limits."""

import pytest

from martlet.base.errors import ProtocolViolation
from martlet.wire.message_codec import decode, encode
from martlet.wire.messages import share_acknowledge, share_fetch
from martlet.wire.share_fetch import (
    MISCOUNTED,
    VERSIONS,
    Run,
    SharePartitionResult,
    encode_share_fetch_response,
    parse_share_acknowledge_request,
    parse_share_fetch_request,
)
from martlet.wire.topic_fields import ELEMENTS_MAX

TOPIC = bytes(range(16))
every_version = pytest.mark.parametrize("version", VERSIONS)


def runs_of(*batches: tuple[int, int, list[int]]) -> list[Run]:
    partition = share_acknowledge.AcknowledgePartition(
        3, [share_acknowledge.AcknowledgementBatch(*batch) for batch in batches]
    )
    request = share_acknowledge.ShareAcknowledgeRequest(
        "g", "m", 7, topics=[share_acknowledge.AcknowledgeTopic(TOPIC, [partition])]
    )
    (asked,) = parse_share_acknowledge_request(encode(request, 1), 1).partitions
    assert (asked.topic_id, asked.partition) == (TOPIC, 3)
    return asked.acknowledgements


def test_one_type_stands_for_the_whole_range() -> None:
    assert runs_of((5, 5_000_000_000, [1]), (5_000_000_002, 5_000_000_002, [2])) == [
        (5, 5_000_000_000, 1),
        (5_000_000_002, 5_000_000_002, 2),
    ]


def test_one_type_for_each_becomes_runs() -> None:
    assert runs_of((10, 15, [1, 1, 3, 0, 0, 1])) == [(10, 11, 1), (12, 12, 3), (13, 14, 0), (15, 15, 1)]


def test_neighbours_said_one_by_one_are_one_run() -> None:
    assert runs_of(*((offset, offset, [1]) for offset in range(100))) == [(0, 99, 1)]
    mixed = [(0, 0, [1]), (1, 1, [2]), (2, 2, [2]), (4, 4, [2]), (5, 6, [2, 1]), (7, 7, [1]), (8, 9, [1])]
    assert runs_of(*mixed) == [(0, 0, 1), (1, 2, 2), (4, 5, 2), (6, 9, 1)]


def test_types_that_are_too_few_or_too_many_are_for_the_partition_to_refuse() -> None:
    assert runs_of((0, 5, [])) == [(0, 5, MISCOUNTED)]
    assert runs_of((0, 5, [1, 1]), (6, 6, [1])) == [(0, 5, MISCOUNTED), (6, 6, 1)]


def test_ranges_that_make_no_sense_stay_as_they_are() -> None:
    assert runs_of((3, 2, [1]), (3, 3, [1])) == [(3, 2, 1), (3, 3, 1)]
    assert runs_of((5, 5, [1]), (4, 4, [1]), (-1, -1, [1])) == [(5, 5, 1), (4, 4, 1), (-1, -1, 1)]


def test_the_same_topic_may_stand_several_times() -> None:
    """As librdkafka sends it: partitions to add, and acknowledgements, are entries of their own."""
    add = share_fetch.FetchTopic(TOPIC, [share_fetch.FetchPartition(0)])
    say = share_fetch.FetchTopic(TOPIC, [share_fetch.FetchPartition(0, [share_fetch.AcknowledgementBatch(1, 2, [1])])])
    request = share_fetch.ShareFetchRequest("g", "m", 4, 500, 1, 1000, 500, 250, topics=[add, say])
    parsed = parse_share_fetch_request(encode(request, 1), 1)
    assert [tuple(asked) for asked in parsed.partitions] == [(TOPIC, 0, []), (TOPIC, 0, [(1, 2, 1)])]
    assert (parsed.session_epoch, parsed.max_wait_ms, parsed.max_records, parsed.batch_size) == (4, 500, 500, 250)


@every_version
def test_records_pass_through_without_a_copy(version: int) -> None:
    pieces = (bytes(1000), memoryview(bytearray(2000)), bytes(3000))
    results = [SharePartitionResult(0, records=pieces[:2], acquired=[(0, 4, 1)]), SharePartitionResult(1)]
    topics = [(TOPIC, results), (TOPIC, [SharePartitionResult(2, records=pieces[2:])])]
    chunks = encode_share_fetch_response(version, topics, lease_ms=30_000)
    assert all(any(chunk is piece for chunk in chunks) for piece in pieces)
    response = decode(share_fetch.ShareFetchResponse, version, b"".join(chunks))
    first, second = response.responses[0].partitions
    assert (first.records, second.records) == (bytes(3000), b""), "never null"
    assert first.acquired_records == [share_fetch.AcquiredRecords(0, 4, 1)]
    assert first.current_leader == share_fetch.LeaderIdAndEpoch(-1, -1)
    assert response.acquisition_lock_timeout_ms == 30_000


def test_a_small_frame_does_not_become_a_large_heap() -> None:
    forgotten = [share_fetch.ForgottenTopic(TOPIC, list(range(ELEMENTS_MAX)))]
    body = encode(share_fetch.ShareFetchRequest("g", "m", topics=[], forgotten_topics_data=forgotten), 1)
    with pytest.raises(ProtocolViolation, match="more than"):
        parse_share_fetch_request(body, 1)


@pytest.mark.parametrize("version", [0, 3])
def test_other_versions_are_refused(version: int) -> None:
    with pytest.raises(ProtocolViolation):
        parse_share_fetch_request(b"", version)
    with pytest.raises(ProtocolViolation):
        parse_share_acknowledge_request(b"", version)
