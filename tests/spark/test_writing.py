"""The sink on real Spark: every row is published, where it belongs, and what does not fit is refused at once."""

from collections.abc import Iterator

import pyarrow as pa
import pytest
from pyspark import TaskContext
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession
from pyspark.sql import functions as f

from martlet.client.partitioner import partition_for_key
from tests.spark.frames import Option, stream_frame
from tests.spark.topics import Message, Topics


def sink_options(topics: Topics, **options: Option) -> dict[str, Option]:
    return {"kafka.bootstrap.servers": topics.bootstrap, **options}


def test_a_stream_copies_a_topic_with_keys_headers_and_times(
    spark: SparkSession, topics: Topics, checkpoint: str
) -> None:
    source, target = topics.new(2), topics.new(2)
    sent = [
        Message(f"v{number}".encode(), f"k{number}".encode(), number % 2, 5_000 + number, [("n", str(number).encode())])
        for number in range(200)
    ]
    topics.publish(source, sent)
    frame = stream_frame(
        spark, topics.bootstrap, {"subscribe": source, "startingOffsets": "earliest", "includeHeaders": True}
    )
    query = (
        frame.writeStream.format("martlet")
        .options(**sink_options(topics, topic=target, keepTimestamp=True, compression="lz4"))
        .option("checkpointLocation", checkpoint)
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()
    found = topics.contents(target)
    assert {
        index: [message._replace(headers=list(message.headers)) for message in found[index]] for index in found
    } == {index: [message for message in sent if message.partition == index] for index in (0, 1)}


def test_rows_are_routed_by_their_topic_key_and_partition(spark: SparkSession, topics: Topics) -> None:
    red, blue = topics.new(4), topics.new(4)
    rows = [
        (f"v{n}", None if n % 5 == 0 else f"k{n}", blue if n % 2 else red, 3 if n % 10 == 0 else None)
        for n in range(100)
    ]
    frame = spark.createDataFrame(rows, "value string, key string, topic string, partition int")
    frame.write.format("martlet").options(**sink_options(topics)).mode("append").save()
    for name in (red, blue):
        found = [message for messages in topics.contents(name).values() for message in messages]
        assert sorted(message.value or b"" for message in found) == sorted(
            value.encode() for value, _, topic, _ in rows if topic == name
        )
        for message in found:
            if message.key is not None:
                assert message.partition == partition_for_key(message.key, 4)
    assert {value.encode() for value, _, _, partition in rows if partition == 3} <= {
        message.value for message in topics.contents(red)[3]
    }


def test_a_task_that_fails_and_runs_again_loses_nothing(spark: SparkSession, topics: Topics) -> None:
    """At least once: what the failed attempt had published may be there twice, and is reported as such."""
    target = topics.new(2)

    def fail_once(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        context = TaskContext.get()
        for count, batch in enumerate(batches):
            yield batch
            if count == 1 and context is not None and context.attemptNumber() == 0 and context.partitionId() == 0:
                raise RuntimeError("planned failure")

    frame = spark.range(0, 60_000, numPartitions=2).select(f.col("id").cast("string").alias("value"))
    failing = frame.mapInArrow(fail_once, "value string")
    failing.write.format("martlet").options(**sink_options(topics, topic=target)).mode("append").save()
    found = topics.values(target)
    assert set(found) == {str(number).encode() for number in range(60_000)}, "nothing is lost"
    assert len(found) - 60_000 <= 30_000, "only what the failed attempt had published is there twice"


@pytest.mark.parametrize(
    ("columns", "options", "words"),
    [
        ("id AS amount, 'x' AS value", {"topic": "t"}, "columns amount are no part of a message"),
        ("id AS value", {"topic": "t"}, "column value is bigint, but a message's value is string or binary"),
        ("'x' AS value", {}, "which topic? Give the option topic, or the frame a column topic"),
        ("'x' AS value", {"topic": "t", "exactlyOnce": True}, "the sink publishes at least once"),
        ("'x' AS value", {"topic": "t", "acks": "1"}, "there is no option acks for writing; did you mean kafka.acks?"),
        ("'x' AS value, 9 AS partition", {"topic": "refused"}, "column partition says 9, but topic 'refused' has 1"),
    ],
)
def test_what_does_not_fit_is_refused_with_what_to_do(
    spark: SparkSession, topics: Topics, columns: str, options: dict[str, Option], words: str
) -> None:
    frame = spark.range(1).selectExpr(*columns.split(", "))
    with pytest.raises(PySparkException) as caught:
        frame.write.format("martlet").options(**sink_options(topics, **options)).mode("append").save()
    assert words in str(caught.value)


def test_a_topic_is_never_overwritten(spark: SparkSession, topics: Topics) -> None:
    with pytest.raises(PySparkException, match="a topic cannot be overwritten"):
        spark.range(1).selectExpr("'x' AS value").write.format("martlet").options(
            **sink_options(topics, topic="t")
        ).mode("overwrite").save()
