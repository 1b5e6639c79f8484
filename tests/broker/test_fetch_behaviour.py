"""What a fetch gets: when it is answered, how much, and how it learns that its idea of the log is wrong."""

import os
import time
from collections.abc import Callable

import pytest

from martlet.base.errors import ErrorCode
from martlet.testing.running_broker import RunningBroker
from martlet.wire.batch import iterate_batches
from martlet.wire.fetch import VERSIONS, EpochEndOffset, FetchPartition, FetchRequest, FetchTopic
from martlet.wire.messages.delete_topics import DeleteTopicsRequest
from tests.broker.raw_client import RawClient
from tests.broker.requests import (
    batch_of,
    create_topic,
    describe,
    fetch_one,
    fetch_request,
    leader_epoch,
    list_offset,
    publish,
    publish_values,
    records_of,
    values_of,
)
from tests.broker.scrape import PARKED_FETCHES, scrape, wait_until

KIBIBYTE = 1024


def _timed_fetch(client: RawClient, request: FetchRequest) -> tuple[float, bytes]:
    started = time.monotonic()
    response = client.fetch(request)
    return time.monotonic() - started, bytes(response.topics[0].partitions[0].records)


@pytest.mark.parametrize("version", VERSIONS)
def test_every_version_gives_what_was_published(client: RawClient, version: int) -> None:
    topic = create_topic(client)
    publish_values(client, topic, b"a", b"b")
    asked: str | bytes = describe(client, topic).topic_id if version >= 13 else topic
    response = client.fetch(fetch_request(asked, FetchPartition(0)), version)
    assert response.error_code == response.session_id == response.throttle_time_ms == 0
    (found,) = response.topics
    assert (found.name, found.topic_id) == ((None, asked) if version >= 13 else (topic, None))
    (result,) = found.partitions
    assert (result.error_code, result.high_watermark, result.last_stable_offset) == (0, 2, 2)
    assert result.log_start_offset == (0 if version >= 5 else -1)
    assert result.preferred_read_replica == -1
    assert not result.aborted_transactions
    assert values_of(records_of(result)) == [b"a", b"b"]


# --- when it is answered


def test_a_fetch_without_patience_is_answered_at_once(client: RawClient) -> None:
    topic = create_topic(client)
    for max_wait_ms in (0, -1):
        took, records = _timed_fetch(client, fetch_request(topic, FetchPartition(0), max_wait_ms=max_wait_ms))
        assert took < 0.5
        assert records == b""


def test_a_fetch_of_nothing_is_answered_at_once(client: RawClient) -> None:
    started = time.monotonic()
    assert client.fetch(FetchRequest(max_wait_ms=20_000)).topics == []
    assert time.monotonic() - started < 2


def test_a_fetch_waits_its_time_when_nothing_comes(client: RawClient) -> None:
    topic = create_topic(client)
    took, records = _timed_fetch(client, fetch_request(topic, FetchPartition(0), max_wait_ms=400))
    assert 0.35 < took < 3
    assert records == b""


def test_a_fetch_is_answered_as_soon_as_there_are_enough_bytes(broker: RunningBroker, client: RawClient) -> None:
    topic = create_topic(client)
    with RawClient(broker.bootstrap_servers) as reader:
        reader.send_fetch(fetch_request(topic, FetchPartition(0), max_wait_ms=20_000, min_bytes=2000), 12)
        publish_values(client, topic, bytes(500))
        publish_values(client, topic, bytes(500))
        reader.socket.settimeout(0.3)
        with pytest.raises(TimeoutError):
            reader.socket.recv(1)
        reader.socket.settimeout(10)
        publish_values(client, topic, bytes(1500))
        _, response = reader.receive_fetch(12)
        assert len(records_of(response.topics[0].partitions[0])) == 3


def test_a_fetch_gives_what_there_is_when_its_time_is_over(client: RawClient) -> None:
    topic = create_topic(client)
    publish_values(client, topic, b"little")
    request = fetch_request(topic, FetchPartition(0), max_wait_ms=300, min_bytes=1 << 20)
    took, records = _timed_fetch(client, request)
    assert 0.25 < took < 3
    assert records


def test_a_partition_that_gave_all_it_may_does_not_wait_for_more(client: RawClient) -> None:
    topic = create_topic(client)
    for _ in range(10):
        publish_values(client, topic, bytes(KIBIBYTE))
    request = fetch_request(
        topic, FetchPartition(0, partition_max_bytes=3 * KIBIBYTE), max_wait_ms=20_000, min_bytes=1 << 20
    )
    took, records = _timed_fetch(client, request)
    assert took < 3
    assert records


def test_an_error_in_one_partition_is_answered_at_once(client: RawClient) -> None:
    topic = create_topic(client)
    request = fetch_request(topic, FetchPartition(0), FetchPartition(5), max_wait_ms=20_000)
    started = time.monotonic()
    good, bad = client.fetch(request).topics[0].partitions
    assert time.monotonic() - started < 3
    assert (good.error_code, bad.error_code) == (0, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    assert (bad.high_watermark, bytes(bad.records)) == (-1, b"")


def test_a_waiting_fetch_is_answered_when_its_topic_is_deleted(broker: RunningBroker, client: RawClient) -> None:
    topic = create_topic(client)
    with RawClient(broker.bootstrap_servers) as reader:
        reader.send_fetch(fetch_request(topic, FetchPartition(0), max_wait_ms=60_000), 12)
        time.sleep(0.1)
        client.call(DeleteTopicsRequest(topic_names=[topic]), 5)
        _, response = reader.receive_fetch(12)
        assert response.topics[0].partitions[0].error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def test_a_fetch_whose_client_is_gone_is_forgotten_at_once(make_broker: Callable[..., RunningBroker]) -> None:
    running = make_broker()
    with RawClient(running.bootstrap_servers) as client:
        topic = create_topic(client)
        crowd = [RawClient(running.bootstrap_servers) for _ in range(50)]
        for connection in crowd:
            connection.send_fetch(fetch_request(topic, FetchPartition(0), max_wait_ms=300_000), 12)
        wait_until(lambda: scrape(running.operations_url)[PARKED_FETCHES] == 50, "all wait")
        for connection in crowd:
            connection.close()
        wait_until(lambda: scrape(running.operations_url)[PARKED_FETCHES] == 0, "all are forgotten", within_seconds=5)


# --- how much


def test_a_batch_larger_than_every_limit_is_still_given(client: RawClient) -> None:
    topic = create_topic(client)
    publish_values(client, topic, bytes(50 * KIBIBYTE))
    publish_values(client, topic, b"next")
    asked = FetchPartition(0, partition_max_bytes=1)
    _, records = _timed_fetch(client, fetch_request(topic, asked, max_bytes=1))
    assert [header.base_offset for _, header in iterate_batches(records)] == [0]


def test_only_the_first_partition_with_data_may_pass_the_limits(client: RawClient) -> None:
    topic = create_topic(client, 3)
    for partition in (1, 2):
        publish_values(client, topic, bytes(10 * KIBIBYTE), partition=partition)
    asked = [FetchPartition(partition, partition_max_bytes=100) for partition in range(3)]
    results = client.fetch(fetch_request(topic, *asked, max_bytes=100)).topics[0].partitions
    assert [len(result.records) > 0 for result in results] == [False, True, False]


@pytest.mark.parametrize("receive_buffer_bytes", [None, 4096])
def test_a_large_answer_arrives_whole_however_slowly_it_is_read(
    broker: RunningBroker, client: RawClient, receive_buffer_bytes: int | None
) -> None:
    topic = create_topic(client, 3)
    values = [[os.urandom(700 * KIBIBYTE) for _ in range(9)] for _ in range(3)]
    for partition, written in enumerate(values):
        for value in written:
            publish_values(client, topic, value, partition=partition)
    asked = [FetchPartition(partition, partition_max_bytes=8 << 20) for partition in range(3)]
    with RawClient(broker.bootstrap_servers, receive_buffer_bytes=receive_buffer_bytes) as reader:
        for _ in range(3):  # asked for one after the other without reading the answers
            reader.send_fetch(fetch_request(topic, *asked, max_bytes=32 << 20), 12)
        time.sleep(0.2)
        for _ in range(3):
            _, response = reader.receive_fetch(12)
            assert [values_of(records_of(result)) for result in response.topics[0].partitions] == values
        assert reader.api_versions().error_code == 0


def test_limits_count_whole_batches(client: RawClient) -> None:
    topic = create_topic(client, 2)
    sizes = [len(batch_of(bytes(KIBIBYTE)))] * 5
    for partition in (0, 1):
        for _ in sizes:
            publish_values(client, topic, bytes(KIBIBYTE), partition=partition)
    asked = [FetchPartition(partition, partition_max_bytes=3 * sizes[0] + 10) for partition in (0, 1)]
    first, second = client.fetch(fetch_request(topic, *asked, max_bytes=4 * sizes[0] + 10)).topics[0].partitions
    assert len(first.records) == 3 * sizes[0]
    assert len(second.records) == sizes[0]


def test_a_fetch_inside_a_batch_gives_the_whole_batch(client: RawClient) -> None:
    topic = create_topic(client)
    publish_values(client, topic, b"a", b"b", b"c")
    publish_values(client, topic, b"d")
    assert values_of(records_of(fetch_one(client, topic, 2))) == [b"a", b"b", b"c", b"d"]
    assert values_of(records_of(fetch_one(client, topic, 3))) == [b"d"]


def test_partitions_of_many_topics_come_in_the_order_asked(client: RawClient) -> None:
    topics = [create_topic(client, 2) for _ in range(5)]
    for topic in topics:
        publish_values(client, topic, topic.encode(), partition=1)
    asked = [FetchTopic(topic, None, [FetchPartition(1), FetchPartition(0)]) for topic in reversed(topics)]
    response = client.fetch(FetchRequest(max_wait_ms=0, topics=asked))
    assert [topic.name for topic in response.topics] == list(reversed(topics))
    assert [[p.partition for p in topic.partitions] for topic in response.topics] == [[1, 0]] * 5
    assert [values_of(records_of(topic.partitions[0])) for topic in response.topics] == [
        [topic.encode()] for topic in reversed(topics)
    ]


# --- wrong ideas of the log


@pytest.mark.parametrize("offset", [-1, -(2**63), 3, 2**63 - 1])
def test_an_offset_outside_the_log_is_out_of_range(client: RawClient, offset: int) -> None:
    topic = create_topic(client)
    publish_values(client, topic, b"a", b"b")
    result = fetch_one(client, topic, offset)
    assert result.error_code == ErrorCode.OFFSET_OUT_OF_RANGE
    assert bytes(result.records) == b""


def test_the_end_of_the_log_is_in_range_and_empty(client: RawClient) -> None:
    topic = create_topic(client)
    publish_values(client, topic, b"a")
    result = fetch_one(client, topic, 1)
    assert (result.error_code, result.high_watermark, bytes(result.records)) == (0, 1, b"")


def test_a_newer_leader_epoch_than_ours_is_unknown(client: RawClient) -> None:
    topic = create_topic(client)
    publish_values(client, topic, b"a")
    epoch = leader_epoch(client, topic)
    codes = {}
    for asked in (epoch, epoch + 1, -1):
        response = client.fetch(fetch_request(topic, FetchPartition(0, current_leader_epoch=asked)))
        codes[asked] = response.topics[0].partitions[0].error_code
    assert codes[epoch] == codes[-1] == ErrorCode.NONE
    assert codes[epoch + 1] == ErrorCode.UNKNOWN_LEADER_EPOCH


def test_a_reader_with_another_history_learns_where_it_diverges(make_broker: Callable[..., RunningBroker]) -> None:
    running = make_broker()
    with RawClient(running.bootstrap_servers) as client:
        topic = create_topic(client)
        first_epoch = leader_epoch(client, topic)
        publish_values(client, topic, b"a", b"b")
    running.restart()
    with RawClient(running.bootstrap_servers) as client:
        second_epoch = leader_epoch(client, topic)
        publish_values(client, topic, b"c")

        def ask(offset: int, last_fetched_epoch: int) -> tuple[int, EpochEndOffset | None, bytes]:
            asked = FetchPartition(0, fetch_offset=offset, last_fetched_epoch=last_fetched_epoch)
            result = client.fetch(fetch_request(topic, asked)).topics[0].partitions[0]
            return result.error_code, result.diverging_epoch, bytes(result.records)

        code, diverging, records = ask(2, first_epoch)
        assert (code, diverging) == (ErrorCode.NONE, None)
        assert records
        assert ask(3, first_epoch) == (ErrorCode.NONE, EpochEndOffset(first_epoch, 2), b"")
        code, diverging, _ = ask(3, second_epoch)
        assert (code, diverging) == (ErrorCode.NONE, None)
        stale = FetchPartition(0, current_leader_epoch=first_epoch)
        fenced = client.fetch(fetch_request(topic, stale)).topics[0].partitions[0]
        assert fenced.error_code == ErrorCode.FENCED_LEADER_EPOCH
        assert list_offset(client, topic, -1, epoch=first_epoch).error_code == ErrorCode.FENCED_LEADER_EPOCH
        code, diverging, records = ask(1, second_epoch + 5)
        assert code != ErrorCode.NONE or diverging is not None
        assert records == b""


def test_an_unknown_topic_id_is_answered_as_such(client: RawClient) -> None:
    response = client.fetch(fetch_request(bytes(range(16)), FetchPartition(0)), 13)
    assert response.topics[0].partitions[0].error_code == ErrorCode.UNKNOWN_TOPIC_ID


def test_a_topic_created_again_has_another_id_and_the_old_one_is_unknown(client: RawClient) -> None:
    topic = create_topic(client)
    old_id = describe(client, topic).topic_id
    publish_values(client, topic, b"old")
    client.call(DeleteTopicsRequest(topic_names=[topic]), 5)
    create_topic(client, name=topic)
    new_id = describe(client, topic).topic_id
    assert new_id != old_id
    response = client.fetch(fetch_request(old_id, FetchPartition(0)), 13)
    assert response.topics[0].partitions[0].error_code == ErrorCode.UNKNOWN_TOPIC_ID
    assert fetch_one(client, topic).high_watermark == 0


@pytest.mark.parametrize("version", [7, 11, 12, 16])
def test_sessions_are_declined_in_the_legal_way(client: RawClient, version: int) -> None:
    topic = create_topic(client)
    publish_values(client, topic, b"a")
    asked: str | bytes = describe(client, topic).topic_id if version >= 13 else topic
    full = fetch_request(asked, FetchPartition(0))
    for session_id, session_epoch in ((0, -1), (0, 0), (77, 0), (77, -1)):
        response = client.fetch(full._replace(session_id=session_id, session_epoch=session_epoch), version)
        assert (response.error_code, response.session_id) == (ErrorCode.NONE, 0)
        assert len(response.topics[0].partitions[0].records) > 0
    response = client.fetch(full._replace(session_id=77, session_epoch=3), version)
    assert response.error_code == ErrorCode.FETCH_SESSION_ID_NOT_FOUND
    assert response.topics == []


def test_a_client_cannot_pretend_to_be_a_replica(client: RawClient) -> None:
    topic = create_topic(client)
    publish_values(client, topic, b"a")
    response = client.fetch(fetch_request(topic, FetchPartition(0))._replace(replica_id=1))
    assert response.topics[0].partitions[0].error_code != ErrorCode.NONE
    assert bytes(response.topics[0].partitions[0].records) == b""


def test_reads_see_only_what_is_acknowledged(client: RawClient) -> None:
    topic = create_topic(client, martlet_flush="commit")
    for number in range(20):
        result = publish(client, topic, batch_of(b"%d" % number))
        assert fetch_one(client, topic, result.base_offset).high_watermark == result.base_offset + 1
