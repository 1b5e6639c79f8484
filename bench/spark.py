"""`./dev bench spark`: rows a second read and written by Spark on two cores, and the shortest micro-batch.

    python -m bench.spark [--quick] [--only NAME]... [--rounds N] [--json FILE] [--markdown FILE] [--work-dir DIR]

Every figure stands beside Spark's own Kafka connector on the same broker, in the same session, measured in turn. Its
jars are not part of PySpark: put them (spark-sql-kafka, spark-token-provider-kafka, kafka-clients, commons-pool2, all
for the Spark in use) into a directory and name it in MARTLET_BENCH_KAFKA_JARS. Without them the other side is a Parquet
file with the same rows, which says how much Spark can take at all, and nothing is judged.

Where the time goes is told by reading the same offsets without Spark, in one process: fetched only, and fetched and
decoded into Arrow. What a Spark task takes beyond that is Arrow over a socket and the JVM making rows of it.
"""

import asyncio
import os
import statistics
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f

from bench.command import Suites, run_command
from bench.processes import BrokerProcess
from bench.report import Figure, ratio_at_least, say
from bench.rounds import Context, in_turn, settle
from martlet.base.ids import TopicPartition
from martlet.client.addresses import parse_bootstrap
from martlet.client.cluster import Cluster
from martlet.client.fetcher import Fetcher, FetcherOptions
from martlet.spark.range_reading import read_range
from martlet.spark.ranges import OffsetRange
from martlet.spark.read_options import parse_read_options
from martlet.spark.session import start_session

KAFKA_JARS: Final = "MARTLET_BENCH_KAFKA_JARS"
GOAL: Final = 1.0
_PARTITIONS: Final = 2
_SIZES: Final = {100: 4_000_000, 1_000: 600_000}
"""Bytes of a value, and how many such messages are read or written in one round."""


def _jars() -> list[Path]:
    return sorted(Path(os.environ[KAFKA_JARS]).glob("*.jar")) if os.environ.get(KAFKA_JARS) else []


def _session() -> SparkSession:
    settings = {
        "spark.sql.shuffle.partitions": "2",
        "spark.driver.memory": "2g",
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.log.level": "ERROR",
    }
    jars = _jars()
    if jars:
        settings["spark.jars"] = ",".join(str(jar) for jar in jars)
    return start_session("martlet-bench", master="local[2]", settings=settings)


@contextmanager
def _broker(context: Context) -> Iterator[BrokerProcess]:
    with context.directory("spark") as directory, BrokerProcess(directory / "broker") as broker:
        yield broker.start_and_wait()


def _bootstrap(broker: BrokerProcess) -> str:
    return f"127.0.0.1:{broker.port}"


def _rows(spark: SparkSession, count: int, size: int) -> DataFrame:
    """So many values of this size, made in the JVM; half of the bytes differ from row to row."""
    filler = "x" * (size - 16)
    return spark.range(0, count, numPartitions=_PARTITIONS).select(
        f.concat(f.lpad(f.col("id").cast("string"), 16, "0"), f.lit(filler)).cast("binary").alias("value")
    )


def _publish(frame: DataFrame, form: str, broker: BrokerProcess, topic: str) -> None:
    frame.write.format(form).option("kafka.bootstrap.servers", _bootstrap(broker)).option("topic", topic).mode(
        "append"
    ).save()


def _topic(spark: SparkSession, form: str, broker: BrokerProcess, topic: str) -> DataFrame:
    options = {"kafka.bootstrap.servers": _bootstrap(broker), "subscribe": topic, "startingOffsets": "earliest"}
    return spark.read.format(form).options(**options).load()


def _drop(frame: DataFrame) -> None:
    """Take every row and every column, and keep nothing."""
    frame.write.format("noop").mode("overwrite").save()


def _rate(work: Callable[[], None], count: int) -> float:
    settle()
    began = time.perf_counter()
    work()
    return count / (time.perf_counter() - began) / 1000


def _beside() -> str:
    return "beside Spark's Kafka connector" if _jars() else f"beside a Parquet file ({KAFKA_JARS} names no jars)"


def measure_reading(context: Context) -> list[Figure]:
    """Batch reads of a whole topic, all columns."""
    figures = []
    spark = _session()
    for size, full in _SIZES.items():
        count = context.sized(full, 20_000)
        with _broker(context) as broker, context.directory("file") as directory:
            with broker.client() as client:
                client.create_topics(["work"], partitions=_PARTITIONS)
            _publish(_rows(spark, count, size), "martlet", broker, "work")
            there = _topic(spark, "martlet", broker, "work")
            if _jars():
                other = _topic(spark, "kafka", broker, "work")
            else:
                there.write.parquet(str(directory / "rows"))
                other = spark.read.parquet(str(directory / "rows"))
            for frame in (there, other):
                _drop(frame)
            figure = Figure(f"read, {size} B", "k rows/s", note=_beside())
            figure.target = ratio_at_least(GOAL) if _jars() else None
            for value, limit in in_turn(
                context,
                figure.name,
                lambda frame=there, count=count: _rate(lambda: _drop(frame), count),  # type: ignore[misc]
                lambda frame=other, count=count: _rate(lambda: _drop(frame), count),  # type: ignore[misc]
            ):
                figure.add(value, limit)
            figures += [figure, *_measure_without_spark(context, broker, size)]
    return figures


def _measure_without_spark(context: Context, broker: BrokerProcess, size: int) -> list[Figure]:
    """The same offsets in one process: fetched only, then fetched and decoded."""
    given = {"bootstrap": _bootstrap(broker), "assign": '{"work": [0]}'}
    options = parse_read_options(given, streaming=False)
    fetched = Figure(f"  of which fetched only, {size} B", "k rows/s", note="one process, without Spark")
    decoded = Figure(f"  of which fetched and decoded, {size} B", "k rows/s", note="one process, without Spark")
    end = asyncio.run(_fetch_all(_bootstrap(broker)))[0]
    for _ in range(context.rounds):
        _, seconds = asyncio.run(_fetch_all(_bootstrap(broker)))
        fetched.add(end / seconds / 1000)
        began = time.perf_counter()
        rows = sum(batch.num_rows for batch in read_range(OffsetRange(TopicPartition("work", 0), 0, end), options))
        decoded.add(rows / (time.perf_counter() - began) / 1000)
    return [fetched, decoded]


async def _fetch_all(bootstrap: str) -> tuple[int, float]:
    """Fetch partition 0 to its end without a look inside; its end, and how long it took."""
    began = time.perf_counter()
    async with (
        Cluster(parse_bootstrap(bootstrap)) as cluster,
        Fetcher(cluster, FetcherOptions(max_wait_ms=1)) as reader,
    ):
        reader.assign({TopicPartition("work", 0): 0})
        position = 0
        while True:
            arrived = await reader.fetch()
            if arrived:
                position = arrived[-1].next_position
            if not arrived or position >= arrived[-1].high_watermark:
                return position, time.perf_counter() - began


def measure_writing(context: Context) -> list[Figure]:
    """Batch writes of rows that the JVM makes, values only."""
    figures = []
    spark = _session()
    for size, full in _SIZES.items():
        count = context.sized(full // 2, 20_000)
        frame = _rows(spark, count, size)
        with _broker(context) as broker, context.directory("file") as directory:
            with broker.client() as client:
                client.create_topics(["ours", "theirs"], partitions=_PARTITIONS)

            def theirs(frame: DataFrame = frame, broker: BrokerProcess = broker, place: Path = directory) -> None:
                if _jars():
                    _publish(frame, "kafka", broker, "theirs")
                else:
                    frame.write.mode("overwrite").parquet(str(place / "rows"))

            def ours(frame: DataFrame = frame, broker: BrokerProcess = broker) -> None:
                _publish(frame, "martlet", broker, "ours")

            ours()
            theirs()
            figure = Figure(f"write, {size} B", "k rows/s", note=_beside())
            figure.target = ratio_at_least(GOAL) if _jars() else None
            for value, limit in in_turn(
                context,
                figure.name,
                lambda ours=ours, count=count: _rate(ours, count),  # type: ignore[misc]
                lambda theirs=theirs, count=count: _rate(theirs, count),  # type: ignore[misc]
            ):
                figure.add(value, limit)
            figures.append(figure)
    return figures


def measure_latency(context: Context) -> list[Figure]:
    """How long a micro-batch of a few rows takes from its trigger to its commit: the floor of latency."""
    spark = _session()
    figure = Figure("micro-batch of 100 rows, median", "ms", note=_beside() if _jars() else "nothing beside it")
    with _broker(context) as broker, context.directory("checkpoints") as directory:
        with broker.client() as client:
            client.create_topics(["work"], partitions=_PARTITIONS)
        for number in range(context.rounds):
            value = _micro_batch_ms(spark, "martlet", broker, str(directory / f"ours-{number}"), context)
            theirs = str(directory / f"theirs-{number}")
            limit = _micro_batch_ms(spark, "kafka", broker, theirs, context) if _jars() else None
            figure.add(value, limit)
            say(f"  {figure.name}, round {number + 1}: {value:,.0f} ms")
    return [figure]


def _micro_batch_ms(spark: SparkSession, form: str, broker: BrokerProcess, checkpoint: str, context: Context) -> float:
    options = {"kafka.bootstrap.servers": _bootstrap(broker), "subscribe": "work", "startingOffsets": "latest"}
    frame = spark.readStream.format(form).options(**options).load()
    query = frame.writeStream.format("noop").option("checkpointLocation", checkpoint).start()
    few = _rows(spark, 100, 100)
    try:
        for _ in range(context.sized(12, 2)):
            _publish(few, "martlet", broker, "work")
            query.processAllAvailable()
        spent = [progress.durationMs["triggerExecution"] for progress in query.recentProgress if progress.numInputRows]
        # The first ones warm the JVM up.
        return float(statistics.median(spent[len(spent) // 3 :]))
    finally:
        query.stop()


SUITES: Final[Suites] = {"reading": measure_reading, "writing": measure_writing, "latency": measure_latency}


def main() -> int:
    return run_command("spark", "Spark reading and writing topics", SUITES, rounds=5, quick_rounds=1)


if __name__ == "__main__":
    sys.exit(main())
