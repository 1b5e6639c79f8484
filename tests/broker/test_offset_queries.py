"""ListOffsets with every special timestamp, OffsetForLeaderEpoch, and DeleteRecords with what it does to both."""

from collections.abc import Callable
from typing import Any

import pytest

from martlet.base.errors import ErrorCode
from martlet.testing.running_broker import RunningBroker
from martlet.wire.batch import build_batch
from martlet.wire.compression import Compression
from martlet.wire.messages.delete_records import DeleteRecordsPartition, DeleteRecordsRequest, DeleteRecordsTopic
from martlet.wire.messages.offset_for_leader_epoch import (
    EpochEndOffset,
    OffsetForLeaderEpochRequest,
    OffsetForLeaderPartition,
    OffsetForLeaderTopic,
)
from tests.broker.raw_client import RawClient
from tests.broker.requests import (
    batch_of,
    create_topic,
    fetch_one,
    leader_epoch,
    list_offset,
    publish,
    publish_values,
    read_all,
    values_of,
)

LATEST, EARLIEST, MAX_TIMESTAMP, EARLIEST_LOCAL, LATEST_TIERED, EARLIEST_PENDING = -1, -2, -3, -4, -5, -6
BASE_MS = 1_700_000_000_000


def _timed_topic(client: RawClient, compression: Compression = Compression.NONE) -> str:
    """Offsets 0 to 5 at +0, +100, +50 | +200, +150, +300 milliseconds: not in order, in two batches."""
    topic = create_topic(client)
    for times in ((0, 100, 50), (200, 150, 300)):
        records = [(BASE_MS + delta, b"k", b"v", ()) for delta in times]
        assert publish(client, topic, build_batch(records, compression=compression)).error_code == ErrorCode.NONE
    return topic


@pytest.mark.parametrize("version", range(1, 12))
def test_the_first_and_the_next_offset_are_answered_in_every_version(client: RawClient, version: int) -> None:
    topic = create_topic(client)
    epoch = leader_epoch(client, topic) if version >= 4 else -1
    for expected in (0, 3):
        latest, earliest = (list_offset(client, topic, asked, version=version) for asked in (LATEST, EARLIEST))
        assert (latest.error_code, latest.offset, latest.timestamp) == (0, expected, -1)
        assert (earliest.error_code, earliest.offset, earliest.timestamp) == (0, 0, -1)
        assert latest.leader_epoch == epoch
        publish_values(client, topic, b"a", b"b", b"c")


@pytest.mark.parametrize("compression", Compression)
@pytest.mark.parametrize(
    ("asked", "offset", "timestamp"),
    [(0, 0, 0), (-5, 0, 0), (1, 1, 100), (100, 1, 100), (101, 3, 200), (200, 3, 200), (201, 5, 300), (300, 5, 300)],
)
def test_a_time_finds_the_first_record_not_before_it(
    client: RawClient, compression: Compression, asked: int, offset: int, timestamp: int
) -> None:
    topic = _timed_topic(client, compression)
    found = list_offset(client, topic, BASE_MS + asked)
    assert (found.error_code, found.offset, found.timestamp) == (0, offset, BASE_MS + timestamp)
    assert found.leader_epoch == leader_epoch(client, topic)


def test_a_time_after_everything_finds_nothing_without_an_error(client: RawClient) -> None:
    for topic in (_timed_topic(client), create_topic(client)):
        found = list_offset(client, topic, BASE_MS + 301)
        assert (found.error_code, found.offset, found.timestamp, found.leader_epoch) == (0, -1, -1, -1)


@pytest.mark.parametrize("version", range(7, 12))
def test_the_largest_timestamp_finds_its_record(client: RawClient, version: int) -> None:
    topic = _timed_topic(client)
    found = list_offset(client, topic, MAX_TIMESTAMP, version=version)
    assert (found.error_code, found.offset, found.timestamp) == (0, 5, BASE_MS + 300)
    publish(client, topic, batch_of(b"older", timestamp_ms=BASE_MS + 10))
    assert list_offset(client, topic, MAX_TIMESTAMP, version=version).offset == 5
    empty = list_offset(client, create_topic(client), MAX_TIMESTAMP, version=version)
    assert (empty.error_code, empty.offset, empty.timestamp) == (0, -1, -1)


def test_without_tiered_storage_the_local_start_is_the_start_and_nothing_is_tiered(client: RawClient) -> None:
    topic = _timed_topic(client)
    assert list_offset(client, topic, EARLIEST_LOCAL, version=8).offset == 0
    assert list_offset(client, topic, LATEST_TIERED, version=9).offset == -1
    assert list_offset(client, topic, EARLIEST_PENDING, version=11).error_code == ErrorCode.NONE


@pytest.mark.parametrize(("asked", "version"), [(-3, 6), (-4, 7), (-5, 8), (-6, 10), (-7, 11), (-(2**63), 11)])
def test_a_special_timestamp_its_version_does_not_know_is_refused(client: RawClient, asked: int, version: int) -> None:
    topic = _timed_topic(client)
    assert list_offset(client, topic, asked, version=version).error_code != ErrorCode.NONE


def test_offset_queries_compare_leader_epochs(client: RawClient) -> None:
    topic = create_topic(client)
    epoch = leader_epoch(client, topic)
    assert list_offset(client, topic, LATEST, epoch=epoch).error_code == ErrorCode.NONE
    assert list_offset(client, topic, LATEST, epoch=epoch + 1).error_code == ErrorCode.UNKNOWN_LEADER_EPOCH
    unknown = list_offset(client, topic, LATEST, partition=4)
    assert (unknown.error_code, unknown.offset) == (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, -1)


def _epoch_end(client: RawClient, topic: str, asked: int, *, version: int = 4, current: int = -1) -> EpochEndOffset:
    partition = OffsetForLeaderPartition(current_leader_epoch=current, leader_epoch=asked)
    request = OffsetForLeaderEpochRequest(replica_id=-1, topics=[OffsetForLeaderTopic(topic, [partition])])
    (answer,) = client.call(request, version).topics[0].partitions
    assert isinstance(answer, EpochEndOffset)
    return answer


@pytest.mark.parametrize("version", [2, 3, 4])
def test_the_end_of_every_epoch_is_answered(make_broker: Callable[..., RunningBroker], version: int) -> None:
    running = make_broker()
    epochs: list[int] = []
    for number in range(3):
        with RawClient(running.bootstrap_servers) as client:
            if number == 0:
                topic = create_topic(client)
            epochs.append(leader_epoch(client, topic))
            publish_values(client, topic, *[b"x"] * (number + 1))
        if number < 2:
            running.restart()
    with RawClient(running.bootstrap_servers) as client:
        for epoch, end in zip(epochs, (1, 3, 6), strict=True):
            answer = _epoch_end(client, topic, epoch, version=version)
            assert (answer.error_code, answer.leader_epoch, answer.end_offset) == (0, epoch, end)
        before = _epoch_end(client, topic, epochs[0] - 1, version=version)
        assert (before.error_code, before.leader_epoch, before.end_offset) == (0, -1, -1)
        fenced = _epoch_end(client, topic, epochs[0], version=version, current=epochs[1])
        assert fenced.error_code == ErrorCode.FENCED_LEADER_EPOCH
        newer = _epoch_end(client, topic, epochs[0], version=version, current=epochs[2] + 1)
        assert newer.error_code == ErrorCode.UNKNOWN_LEADER_EPOCH


def _delete(client: RawClient, topic: str, offset: int, *, version: int = 2, partition: int = 0) -> Any:
    asked = DeleteRecordsTopic(topic, [DeleteRecordsPartition(partition, offset)])
    return client.call(DeleteRecordsRequest([asked], 5000), version).topics[0].partitions[0]


@pytest.mark.parametrize("version", [0, 1, 2])
def test_deleting_records_moves_the_start(client: RawClient, version: int) -> None:
    topic = create_topic(client)
    for number in range(5):
        publish_values(client, topic, b"%d" % number)
    result = _delete(client, topic, 3, version=version)
    assert (result.error_code, result.low_watermark) == (0, 3)
    assert list_offset(client, topic, EARLIEST).offset == 3
    assert fetch_one(client, topic, 2).error_code == ErrorCode.OFFSET_OUT_OF_RANGE
    assert fetch_one(client, topic, 3).log_start_offset == 3
    assert values_of(read_all(client, topic, offset=3)) == [b"3", b"4"]
    assert _delete(client, topic, 1, version=version).low_watermark == 3, "the start never goes back"


def test_deleting_to_the_end_leaves_an_empty_log_at_its_end(client: RawClient) -> None:
    topic = create_topic(client)
    publish_values(client, topic, b"a", b"b", b"c")
    assert _delete(client, topic, -1).low_watermark == 3
    assert (list_offset(client, topic, EARLIEST).offset, list_offset(client, topic, LATEST).offset) == (3, 3)
    assert publish_values(client, topic, b"d") == 3
    assert values_of(read_all(client, topic, offset=3)) == [b"d"]


def test_deleting_past_the_end_or_elsewhere_is_refused(client: RawClient) -> None:
    topic = create_topic(client)
    publish_values(client, topic, b"a")
    for offset in (2, 2**63 - 1, -2):
        result = _delete(client, topic, offset)
        assert (result.error_code, result.low_watermark) == (ErrorCode.OFFSET_OUT_OF_RANGE, -1)
    assert _delete(client, topic, 0, partition=3).error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert _delete(client, "never-created", 0).error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert values_of(read_all(client, topic)) == [b"a"]
