"""Batch reads on real Spark: exactly the published messages, for every way to say where to begin and where to end."""

import json
from collections.abc import Callable, Mapping

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession
from pyspark.sql import functions as f

from martlet.base.ids import TopicPartition
from martlet.spark.batch_reader import FilteringBatchReader, MartletBatchReader
from martlet.spark.failures import OptionRefused
from martlet.spark.ranges import OffsetRange
from martlet.spark.read_options import parse_read_options
from martlet.wire.compression import Compression
from tests.spark.frames import Option, batch_frame, by_partition, published
from tests.spark.topics import Message, Topics

BASE_MS = 1_700_000_000_000
MESSAGES = [
    Message(
        f"value-{number}".encode(),
        None if number % 7 == 0 else f"key-{number % 10}".encode(),
        number % 3,
        BASE_MS + number * 1000,
        [("trace", f"t{number}".encode()), ("empty", None)] if number % 2 else (),
    )
    for number in range(300)
]
"""A hundred for each of three partitions; the message at offset n of partition p has number 3n + p."""


@pytest.fixture(scope="module")
def numbers(topics: Topics) -> str:
    """A topic with MESSAGES, in batches of all codecs."""
    name = topics.new(3, name="numbers")
    for row, compression in enumerate(Compression):
        topics.publish(name, MESSAGES[row * 60 : row * 60 + 60], compression=compression, batch_bytes=700)
    return name


def rows_between(starts: Mapping[int, int], ends: Mapping[int, int]) -> dict[int, list[tuple[int, bytes]]]:
    whole = published(MESSAGES, 3)
    cut = {p: [row for row in whole[p] if starts.get(p, 0) <= row[0] < ends.get(p, 100)] for p in whole}
    return {partition: rows for partition, rows in cut.items() if rows}


EVERYWHERE_20 = {0: 20, 1: 20, 2: 20}
CHOICES: list[tuple[dict[str, Option], dict[int, int], dict[int, int]]] = [
    ({}, {}, {}),
    ({"startingOffsets": "earliest", "endingOffsets": "latest"}, {}, {}),
    ({"startingOffsets": '{"numbers": {"0": 5, "1": -2, "2": -1}}'}, {0: 5, 2: 100}, {}),
    ({"endingOffsets": '{"numbers": {"0": 5, "1": -1, "2": 0}}'}, {}, {0: 5, 2: 0}),
    ({"startingTimestamp": BASE_MS + 60_000}, EVERYWHERE_20, {}),
    ({"endingTimestamp": BASE_MS + 60_000}, {}, EVERYWHERE_20),
    (
        {
            "startingOffsetsByTimestamp": json.dumps(
                {"numbers": {"0": BASE_MS + 60_000, "1": BASE_MS, "2": BASE_MS + 10**9}}
            ),
            "startingOffsetsByTimestampStrategy": "latest",
            "endingOffsetsByTimestamp": json.dumps({"numbers": dict.fromkeys("012", BASE_MS + 240_000)}),
        },
        {0: 20, 2: 100},
        {0: 80, 1: 80, 2: 80},
    ),
    ({"minPartitions": 8, "startingOffsets": '{"numbers": {"0": 1, "1": 2, "2": 3}}'}, {0: 1, 1: 2, 2: 3}, {}),
    ({"maxRecordsPerPartition": 30, "fetchBytes": 1}, {}, {}),
]


@pytest.mark.parametrize(("options", "starts", "ends"), CHOICES)
def test_every_start_and_end_gives_exactly_the_messages_between(
    spark: SparkSession,
    topics: Topics,
    numbers: str,
    options: dict[str, Option],
    starts: dict[int, int],
    ends: dict[int, int],
) -> None:
    rows = batch_frame(spark, topics.bootstrap, {"subscribe": numbers, **options}).collect()
    assert by_partition(rows) == rows_between(starts, ends)


def test_all_columns_are_those_that_were_published(spark: SparkSession, topics: Topics, numbers: str) -> None:
    frame = batch_frame(spark, topics.bootstrap, {"subscribe": numbers, "includeHeaders": True})
    assert frame.columns[-1] == "headers"
    rows = frame.withColumn("ms", f.unix_millis("timestamp")).orderBy("ms").collect()
    assert [(bytes(row.value), row.key, row.partition, row.ms) for row in rows] == [
        (message.value, message.key, message.partition, message.timestamp_ms) for message in MESSAGES
    ]
    assert [[(header.key, header.value) for header in row.headers or ()] for row in rows] == [
        list(message.headers) for message in MESSAGES
    ]
    assert {(row.topic, row.timestampType) for row in rows} == {("numbers", 0)}


def test_patterns_and_assignments_choose_topics_and_partitions(
    spark: SparkSession, topics: Topics, numbers: str
) -> None:
    topics.fill(topics.new(name="other-1"), 4)
    topics.fill(topics.new(name="other-2"), 5)
    found = batch_frame(spark, topics.bootstrap, {"subscribePattern": r"other-\d"}).groupBy("topic").count().collect()
    assert {(row.topic, row["count"]) for row in found} == {("other-1", 4), ("other-2", 5)}
    assigned = batch_frame(spark, topics.bootstrap, {"assign": '{"numbers": [2], "other-1": [0]}', "columns": "topic"})
    assert sorted(row.topic for row in assigned.collect()) == ["numbers"] * 100 + ["other-1"] * 4


def test_filters_on_places_and_times_are_pushed_down(spark: SparkSession, topics: Topics, numbers: str) -> None:
    """One task for every ten messages that are to be fetched: how many there are tells what Spark has handed down."""
    options: dict[str, Option] = {"subscribe": numbers, "pushdown": True, "maxRecordsPerPartition": 10}
    frame = batch_frame(spark, topics.bootstrap, options)
    assert frame.rdd.getNumPartitions() == 30
    places = frame.where("partition = 1 AND offset >= 10 AND offset < 90")
    assert by_partition(places.collect()) == rows_between({0: 100, 1: 10, 2: 100}, {1: 90})
    assert places.rdd.getNumPartitions() == 8
    since = frame.where(f.col("timestamp") >= f.timestamp_millis(f.lit(BASE_MS + 240_000)))
    assert by_partition(since.collect()) == rows_between({0: 80, 1: 80, 2: 80}, {})
    assert since.rdd.getNumPartitions() == 6
    both = places.where(f.unix_millis("timestamp") >= BASE_MS + 90_000)
    assert by_partition(both.collect()) == rows_between({0: 100, 1: 30, 2: 100}, {1: 90})
    assert both.rdd.getNumPartitions() == 8, "what Spark cannot hand down it checks itself"


def test_a_topic_without_messages_is_an_empty_frame(spark: SparkSession, topics: Topics) -> None:
    assert batch_frame(spark, topics.bootstrap, {"subscribe": topics.new(2)}).count() == 0
    assert batch_frame(spark, topics.bootstrap, {"subscribePattern": "nothing-.*"}).count() == 0


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"subscribe": "numbers", "startOffsets": "earliest"}, "did you mean startingOffsets?"),
        ({"subscribe": "missing"}, "there is no topic 'missing'; check the name"),
        ({"subscribe": "numbers", "kafka.bootstrap.servers": "127.0.0.1:1"}, "no broker reachable at 127.0.0.1:1"),
    ],
)
def test_what_is_wrong_is_said_in_one_sentence_that_reaches_the_user(
    spark: SparkSession, topics: Topics, numbers: str, options: dict[str, Option], words: str
) -> None:
    with pytest.raises(PySparkException) as caught:
        batch_frame(spark, topics.bootstrap, options).collect()
    assert words in str(caught.value)


# What follows asks the reader itself, which is a plain object: the plans are the same, and no job is needed.


@pytest.fixture
def plan(topics: Topics) -> Callable[..., list[OffsetRange]]:
    def planned(**options: str) -> list[OffsetRange]:
        parsed = parse_read_options({"bootstrap": topics.bootstrap, **options}, streaming=False)
        return [found for found in MartletBatchReader(parsed).partitions() if isinstance(found, OffsetRange)]

    return planned


def test_a_range_is_decided_when_planned_however_the_topic_grows(topics: Topics, plan: Callable[..., object]) -> None:
    name = topics.new()
    topics.fill(name, 10)
    planned = plan(subscribe=name)
    topics.fill(name, 10, first=10)
    assert planned == [OffsetRange(TopicPartition(name, 0), 0, 10)]
    options = parse_read_options({"bootstrap": topics.bootstrap, "subscribe": name}, streaming=False)
    reader = MartletBatchReader(options)
    assert sum(batch.num_rows for batch in reader.read(OffsetRange(TopicPartition(name, 0), 0, 10))) == 10


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"startingOffsets": '{"numbers": {"0": 1}}'}, "says nothing about numbers-1, numbers-2"),
        ({"startingOffsets": '{"numbers": {"0": 1, "1": 1, "2": 1, "3": 1}}'}, "names numbers-3, which is not read"),
        ({"startingTimestamp": str(BASE_MS + 10**9)}, "set startingOffsetsByTimestampStrategy to latest"),
    ],
)
def test_positions_that_do_not_fit_the_topic_are_refused(
    numbers: str, plan: Callable[..., object], options: dict[str, str], words: str
) -> None:
    with pytest.raises(OptionRefused, match=words):
        plan(subscribe=numbers, **options)


def test_an_assigned_partition_must_exist(numbers: str, plan: Callable[..., object]) -> None:
    with pytest.raises(OptionRefused, match="has no partition 7; it has 3, numbered from 0"):
        plan(assign='{"numbers": [7]}')


def test_pushed_filters_narrow_what_is_fetched(topics: Topics, numbers: str) -> None:
    options = parse_read_options({"bootstrap": topics.bootstrap, "subscribe": numbers}, streaming=False)
    reader = FilteringBatchReader(options)
    reader.narrowing.partitions = {1}
    reader.narrowing.not_before_ms = BASE_MS + 90_000
    assert reader.partitions() == [OffsetRange(TopicPartition(numbers, 1), 30, 100)]
