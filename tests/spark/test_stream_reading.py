"""Streams on real Spark: each message once and in order, while topics grow, partitions are added, queries restart."""

import json
import threading
import time
from collections.abc import Mapping

import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql import SparkSession
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxRows, ReadMinRows

from martlet.spark.read_options import parse_read_options
from martlet.spark.stream_reader import MartletStreamReader
from martlet.testing.running_broker import RunningBroker
from tests.spark.frames import Collected, Option, by_partition, published, stream_frame, wait_until
from tests.spark.topics import Message, Topics


def messages(count: int, partitions: int, first: int = 0) -> list[Message]:
    return [Message(f"value-{number}".encode(), None, number % partitions) for number in range(first, first + count)]


def test_available_now_reads_everything_in_limited_batches_and_then_only_what_is_new(
    spark: SparkSession, topics: Topics, checkpoint: str
) -> None:
    name = topics.new(2)
    sent = messages(500, 2)
    topics.publish(name, sent)
    options: dict[str, Option] = {
        "subscribe": name,
        "startingOffsets": "earliest",
        "maxOffsetsPerTrigger": 200,
        "minPartitions": 3,
    }
    frame = stream_frame(spark, topics.bootstrap, options)
    collected = Collected()
    query = collected.drain(frame, checkpoint)
    assert collected.batch_sizes == [200, 200, 100]
    assert by_partition(collected.rows) == published(sent, 2)
    assert [progress.numInputRows for progress in query.recentProgress] == [200, 200, 100]

    more = messages(50, 2, first=500)
    topics.publish(name, more)
    again = Collected()
    again.drain(frame, checkpoint)
    assert by_partition(again.rows) == published(more, 2, first=250)


def test_a_running_stream_keeps_up_with_growing_topics_and_added_partitions(
    spark: SparkSession, topics: Topics, checkpoint: str
) -> None:
    """The hard one: publishing never pauses, partitions are added, the query is stopped and started in between."""
    name = topics.new(2)
    total = 3000
    sent: list[Message] = []
    done = threading.Event()

    def publish() -> None:
        for first in range(0, total, 100):
            partitions = 2 if first < 1000 else 4
            if first == 1000:
                topics.add_partitions(name, 4)
            batch = messages(100, partitions, first)
            topics.publish(name, batch)
            sent.extend(batch)
        done.set()

    options: dict[str, Option] = {"subscribe": name, "startingOffsets": "earliest", "maxOffsetsPerTrigger": 400}
    frame = stream_frame(spark, topics.bootstrap, options)
    collected = Collected()
    publisher = threading.Thread(target=publish)
    publisher.start()
    query = collected.start(frame, checkpoint)
    wait_until(lambda: len(collected.rows) >= 800, query)
    query.stop()
    before_restart = len(collected.rows)
    publisher.join()
    assert done.is_set()
    collected.drain(frame, checkpoint)
    assert before_restart >= 800
    # A stop in the middle of a micro-batch repeats it, as the same one: that much the sink needs to leave it out.
    assert by_partition(collected.rows_once) == published(sent, 4)
    assert sorted(collected.batches) == list(range(len(collected.batches)))
    repeated = len(collected.rows) - total
    assert 0 <= repeated <= 400


def test_planner_and_tasks_wait_for_a_broker_that_restarts(topics: Topics, broker: RunningBroker) -> None:
    name = topics.new()
    topics.publish(name, messages(400, 1), batch_bytes=500)
    stream = reader(topics, subscribe=name, startingOffsets="earliest", fetchBytes="1")
    start = stream.initialOffset()
    end = stream.latestOffset(start, ReadAllAvailable())
    [wanted] = stream.partitions(start, end)
    batches = stream.read(wanted)
    rows = next(batches).to_pylist()
    broker.restart()
    for batch in batches:
        rows += batch.to_pylist()
    assert [row["offset"] for row in rows] == list(range(400))
    broker.restart()
    topics.fill(name, 1)
    assert stream.latestOffset(end, ReadAllAvailable())[name]["0"] == 401


def test_streams_start_where_they_were_told_to(topics: Topics) -> None:
    name = topics.new(2)
    topics.publish(name, [Message(b"x", None, number % 2, 1_000 + number) for number in range(20)])
    expected: Mapping[str, tuple[int, int]] = {
        "latest": (10, 10),
        "earliest": (0, 0),
        f'{{"{name}": {{"0": 4, "1": -1}}}}': (4, 10),
    }
    for starting, (zero, one) in expected.items():
        offsets = reader(topics, subscribe=name, startingOffsets=starting).initialOffset()
        assert (offsets[name]["0"], offsets[name]["1"]) == (zero, one)
    by_time = reader(topics, subscribe=name, startingTimestamp="1010").initialOffset()
    assert (by_time[name]["0"], by_time[name]["1"]) == (5, 5)


def test_a_stream_begins_at_an_instant_of_its_own_in_every_partition(
    spark: SparkSession, topics: Topics, checkpoint: str
) -> None:
    name = topics.new(2, {"retention.ms": "-1"})
    sent = [Message(f"value-{number}".encode(), None, number % 2, 1_000 + number) for number in range(20)]
    topics.publish(name, sent)
    options: dict[str, Option] = {
        "subscribe": name,
        "startingOffsetsByTimestamp": json.dumps({name: {"0": 1_006, "1": 1_019}}),
    }
    collected = Collected()
    collected.drain(stream_frame(spark, topics.bootstrap, options), checkpoint)
    everything = published(sent, 2)
    assert by_partition(collected.rows) == {0: everything[0][3:], 1: everything[1][9:]}
    too_young = options | {"startingOffsetsByTimestamp": json.dumps({name: {"0": 1_006, "1": 5_000}})}
    with pytest.raises(StreamingQueryException, match=f"no message of {name}-1 is as young as the start asked for"):
        Collected().drain(stream_frame(spark, topics.bootstrap, too_young), f"{checkpoint}-error")
    at_end = Collected()
    latest = too_young | {"startingOffsetsByTimestampStrategy": "latest"}
    at_end.drain(stream_frame(spark, topics.bootstrap, latest), f"{checkpoint}-latest")
    assert by_partition(at_end.rows) == {0: everything[0][3:]}


def test_a_compacted_topic_is_read_over_its_gaps_in_limited_batches(spark: SparkSession, checkpoint: str) -> None:
    with (
        RunningBroker(cleaner_interval_ms=50, checkpoint_interval_ms=50) as broker,
        Topics(broker.bootstrap_servers) as topics,
    ):
        configs = {"cleanup.policy": "compact", "segment.bytes": "5000", "min.cleanable.dirty.ratio": "0.01"}
        name = topics.new(configs=configs)
        sent = [Message(f"{number}:".encode() + bytes(200), f"key-{number % 10}".encode()) for number in range(200)]
        topics.publish(name, sent, batch_bytes=1000)
        topics.publish(name, [Message(bytes(4900), b"closing")])
        deadline = time.monotonic() + 30
        while len(topics.values(name)) > 60:
            assert time.monotonic() < deadline, "the topic is not compacted"
            time.sleep(0.1)
        options: dict[str, Option] = {"subscribe": name, "startingOffsets": "earliest", "maxOffsetsPerTrigger": 50}
        collected = Collected()
        query = collected.drain(stream_frame(spark, topics.bootstrap, options), checkpoint)
        rows = by_partition(collected.rows)[0]
        assert [value for _, value in rows] == topics.values(name)
        offsets = [offset for offset, _ in rows]
        assert offsets == sorted(set(offsets))
        assert len(offsets) < 100 < offsets[-1] == 200, "there are gaps, and the end is reached"
        # A limit counts offsets, as in Spark's own source: batches hold fewer messages, and none is skipped.
        assert len(query.recentProgress) >= 5
        topics.publish(name, [Message(b"after", b"key-1")])
        more = Collected()
        more.drain(stream_frame(spark, topics.bootstrap, options), checkpoint)
        assert by_partition(more.rows) == {0: [(201, b"after")]}


def reader(topics: Topics, **options: str) -> MartletStreamReader:
    return MartletStreamReader(parse_read_options({"bootstrap": topics.bootstrap, **options}, streaming=True))


def test_small_micro_batches_wait_for_more_messages(topics: Topics) -> None:
    name = topics.new()
    stream = reader(topics, subscribe=name, minOffsetsPerTrigger="10", maxOffsetsPerTrigger="15", maxTriggerDelay="1h")
    start = stream.initialOffset()
    limit = stream.getDefaultReadLimit()
    assert limit == ReadMaxRows(15)
    topics.fill(name, 9)
    assert stream.latestOffset(start, limit) == start
    assert stream.latestOffset(start, ReadAllAvailable())[name]["0"] == 9, "a trigger that takes all does not wait"
    topics.fill(name, 20)
    assert stream.latestOffset(start, limit)[name]["0"] == 15
    assert stream.reportLatestOffset() is not None
    assert (stream.reportLatestOffset() or {})[name]["0"] == 29


def test_messages_are_held_back_no_longer_than_the_delay(topics: Topics) -> None:
    name = topics.new()
    stream = reader(topics, subscribe=name, minOffsetsPerTrigger="10", maxTriggerDelay="0ms")
    assert stream.getDefaultReadLimit() == ReadMinRows(10)
    start = stream.initialOffset()
    topics.fill(name, 1)
    assert stream.latestOffset(start, ReadMinRows(10))[name]["0"] == 1


def test_an_available_now_run_ends_where_it_began_to_look(topics: Topics) -> None:
    name = topics.new()
    topics.fill(name, 5)
    stream = reader(topics, subscribe=name, startingOffsets="earliest")
    start = stream.initialOffset()
    stream.prepareForTriggerAvailableNow()
    topics.fill(name, 5)
    end = stream.latestOffset(start, ReadAllAvailable())
    assert end[name]["0"] == 5
    assert stream.latestOffset(end, ReadAllAvailable()) == end


def test_new_topics_of_a_pattern_are_read_from_their_start(topics: Topics) -> None:
    first = topics.new(name="grow-1")
    topics.fill(first, 3)
    stream = reader(topics, subscribePattern="grow-.*", startingOffsets="latest")
    start = stream.initialOffset()
    topics.fill(topics.new(name="grow-2"), 4)
    stream.prepareForTriggerAvailableNow()
    end = stream.latestOffset(start, ReadAllAvailable())
    ranges = stream.partitions(start, end)
    assert [found.value for found in ranges] == [("grow-2", 0, 0, 4)]


def test_an_idle_stream_waits_for_messages_instead_of_asking_again_and_again(topics: Topics) -> None:
    name = topics.new()
    stream = reader(topics, subscribe=name)
    start = stream.initialOffset()
    publisher = threading.Timer(0.03, topics.fill, (name, 1))
    publisher.start()
    ends = [stream.latestOffset(start, ReadAllAvailable()) for _ in range(20)]
    publisher.join()
    assert ends[-1][name]["0"] == 1
