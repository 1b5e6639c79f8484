"""What is gone is never passed over in silence: retention, deleted and recreated topics, each with a clear sentence."""

import time

import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql import SparkSession
from pyspark.sql.streaming.datasource import ReadAllAvailable

from martlet.base.ids import TopicPartition
from martlet.spark.failures import MessagesLost
from martlet.spark.range_reading import read_range
from martlet.spark.ranges import OffsetRange
from martlet.spark.read_options import parse_read_options
from martlet.spark.stream_offsets import OffsetsByTopic
from martlet.spark.stream_reader import MartletStreamReader
from tests.spark.frames import Collected, by_partition, stream_frame, wait_until
from tests.spark.topics import Topics

ALL = ReadAllAvailable()


def reader(topics: Topics, **options: str) -> MartletStreamReader:
    return MartletStreamReader(parse_read_options({"bootstrap": topics.bootstrap, **options}, streaming=True))


def ask_until_it_changes(stream: MartletStreamReader, start: OffsetsByTopic) -> None:
    for _ in range(30):
        assert stream.latestOffset(start, ALL) == start


def test_retention_that_ran_ahead_stops_the_stream_and_says_what_to_do(
    spark: SparkSession, topics: Topics, checkpoint: str
) -> None:
    name = topics.new()
    topics.fill(name, 10)
    options = {"subscribe": name, "startingOffsets": "earliest"}
    collected = Collected()
    collected.drain(stream_frame(spark, topics.bootstrap, options), checkpoint)
    topics.fill(name, 10, first=10)
    topics.delete_before(name, 0, 15)
    with pytest.raises(StreamingQueryException) as caught:
        collected.drain(stream_frame(spark, topics.bootstrap, options), checkpoint)
    assert f"5 messages of {name}-0 are gone: offsets 10 to 14 were to be read" in str(caught.value)
    assert "set failOnDataLoss to false to go on without what is gone" in str(caught.value)

    collected.drain(stream_frame(spark, topics.bootstrap, options | {"failOnDataLoss": False}), checkpoint)
    offsets = [offset for offset, _ in by_partition(collected.rows)[0]]
    assert offsets == [*range(10), *range(15, 20)]


def test_a_deleted_topic_stops_the_stream(topics: Topics) -> None:
    name, other = topics.new(), topics.new()
    topics.fill(name, 3)
    stream = reader(topics, subscribe=f"{name},{other}", startingOffsets="earliest")
    start = stream.latestOffset(stream.initialOffset(), ALL)
    topics.delete(name)
    again = reader(topics, subscribe=f"{name},{other}", startingOffsets="earliest")
    with pytest.raises(MessagesLost, match=f"topic '{name}' was being read and is not there any more"):
        again.latestOffset(start, ALL)
    careless = reader(topics, subscribe=f"{name},{other}", failOnDataLoss="false")
    assert name not in careless.latestOffset(start, ALL)


@pytest.mark.parametrize("recreated", [False, True])
def test_a_running_stream_whose_topic_is_deleted_stops_with_the_sentence_and_soon(
    spark: SparkSession, topics: Topics, checkpoint: str, recreated: bool
) -> None:
    name = topics.new()
    topics.fill(name, 5)
    collected = Collected()
    frame = stream_frame(spark, topics.bootstrap, {"subscribe": name, "startingOffsets": "earliest"})
    query = collected.start(frame, checkpoint)
    wait_until(lambda: len(collected.rows) == 5, query)
    deleted_at = time.monotonic()
    topics.delete(name)
    if recreated:
        topics.new(name=name)
        topics.fill(name, 8)
    with pytest.raises(StreamingQueryException) as caught:
        query.awaitTermination(60)
    assert time.monotonic() - deleted_at < 30
    said = f"topic '{name}' was deleted and recreated" if recreated else f"topic '{name}' was being read and is not"
    assert said in str(caught.value)
    assert len(collected.rows) == 5


def test_a_topic_that_vanishes_while_an_idle_stream_waits_is_missed_at_the_second_look(topics: Topics) -> None:
    for recreated in (False, True):
        name = topics.new()
        topics.fill(name, 5)
        stream = reader(topics, subscribe=name, startingOffsets="earliest")
        start = stream.latestOffset(stream.initialOffset(), ALL)
        assert stream.latestOffset(start, ALL) == start
        topics.delete(name)
        if recreated:
            # More than there was: by offsets alone the new messages would go on where the old ones ended.
            topics.new(name=name)
            topics.fill(name, 8)
        with pytest.raises(MessagesLost, match="recreated" if recreated else "is not there any more"):
            ask_until_it_changes(stream, start)


def test_a_micro_batch_of_a_topic_that_is_gone_says_so_soon(topics: Topics) -> None:
    name = topics.new()
    topics.fill(name, 5)
    stream = reader(topics, subscribe=name, startingOffsets="earliest")
    start = stream.initialOffset()
    end = stream.latestOffset(start, ALL)
    topics.delete(name)
    begun_at = time.monotonic()
    with pytest.raises(MessagesLost, match=f"topic '{name}' was being read and is not there any more"):
        reader(topics, subscribe=name).partitions(start, end)
    assert time.monotonic() - begun_at < 20
    assert reader(topics, subscribe=name, failOnDataLoss="false").partitions(start, end) == []


def test_a_partition_no_longer_assigned_stops_the_stream_or_keeps_its_place(topics: Topics) -> None:
    name = topics.new(2)
    topics.fill(name, 10, partitions=2)
    both = f'{{"{name}": [0, 1]}}'
    stream = reader(topics, assign=both, startingOffsets="earliest")
    start = stream.latestOffset(stream.initialOffset(), ALL)
    with pytest.raises(MessagesLost, match=f"{name}-1 was being read and is not there any more, or no longer assigned"):
        reader(topics, assign=f'{{"{name}": [0]}}').latestOffset(start, ALL)
    careless = reader(topics, assign=f'{{"{name}": [0]}}', failOnDataLoss="false")
    topics.fill(name, 2, partitions=2)
    end = careless.latestOffset(start, ALL)
    assert careless.partitions(start, end) == [OffsetRange(TopicPartition(name, 0), 5, 6)]
    again = reader(topics, assign=both)
    assert again.partitions(end, again.latestOffset(end, ALL)) == [OffsetRange(TopicPartition(name, 1), 5, 6)]


def test_a_recreated_topic_is_not_taken_for_the_old_one(topics: Topics) -> None:
    name = topics.new()
    topics.fill(name, 5)
    stream = reader(topics, subscribe=name, startingOffsets="earliest")
    start = stream.latestOffset(stream.initialOffset(), ALL)
    topics.delete(name)
    topics.new(name=name)
    topics.fill(name, 8)
    with pytest.raises(MessagesLost, match="was deleted and recreated since the last micro-batch"):
        reader(topics, subscribe=name).latestOffset(start, ALL)
    careless = reader(topics, subscribe=name, failOnDataLoss="false")
    end = careless.latestOffset(start, ALL)
    assert careless.partitions(start, end) == [OffsetRange(TopicPartition(name, 0), 0, 8)]


def test_a_stream_ahead_of_its_log_stops(topics: Topics) -> None:
    name = topics.new()
    topics.fill(name, 5)
    stream = reader(topics, subscribe=name)
    start = stream.initialOffset()
    start[name]["0"] = 9
    with pytest.raises(MessagesLost, match="was to be read from offset 9, but ends at 5"):
        stream.latestOffset(start, ALL)


def test_a_task_that_finds_its_messages_gone_fails_or_reads_on_as_told(topics: Topics) -> None:
    name = topics.new()
    topics.fill(name, 10)
    wanted = OffsetRange(TopicPartition(name, 0), 2, 10)
    topics.delete_before(name, 0, 6)
    given = {"bootstrap": topics.bootstrap, "subscribe": name}
    with pytest.raises(MessagesLost, match="4 messages"):
        list(read_range(wanted, parse_read_options(given, streaming=True)))
    careless = parse_read_options(given | {"failOnDataLoss": "false", "columns": "offset"}, streaming=True)
    offsets = [row["offset"] for batch in read_range(wanted, careless) for row in batch.to_pylist()]
    assert offsets == [6, 7, 8, 9]


def test_offsets_that_the_topic_never_had_are_refused(topics: Topics) -> None:
    name = topics.new()
    topics.fill(name, 5)
    stream = reader(topics, subscribe=name, startingOffsets=f'{{"{name}": {{"0": 7}}}}')
    with pytest.raises(MessagesLost, match="but ends at 5"):
        stream.latestOffset(stream.initialOffset(), ALL)


def test_a_missing_topic_is_named_before_the_stream_starts(topics: Topics) -> None:
    with pytest.raises(Exception, match="there is no topic 'nowhere'; check the name"):
        reader(topics, subscribe="nowhere").initialOffset()
