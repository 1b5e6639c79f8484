"""`./dev bench spark`: rows a second read and written by Spark on two cores, and the shortest micro-batch.

    python -m bench.spark [--quick] [--only NAME]... [--rounds N] [--json FILE] [--markdown FILE] [--work-dir DIR]

Every figure stands beside Spark's own Kafka connector on the same broker, in the same session, measured in turn. Its
jars are not part of PySpark; Maven fetches them where it is installed. Without them the other side is a Parquet file
with the same rows, which says how much Spark can take at all, and nothing is judged.

Where the time goes is found by doing parts of the same work. Reading, without Spark and in one process: fetched only,
and fetched and decoded into Arrow; a Spark task adds Arrow over a socket and the JVM making rows of it. Writing: Spark
handing the rows to Python, which drops them; and the rows published from Arrow by one process.
"""

import asyncio
import statistics
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f
from pyspark.sql.datasource import DataSource, DataSourceArrowWriter, DataSourceWriter, WriterCommitMessage
from pyspark.sql.types import StructType

from bench.command import Suites, run_command
from bench.peers.systems.cache import Missing
from bench.processes import BrokerProcess
from bench.report import Figure, ratio_at_least, say
from bench.rounds import Context, in_turn, settle
from bench.spark.connector import connector_jars
from martlet.base.addresses import parse_bootstrap
from martlet.base.ids import TopicPartition
from martlet.client.cluster import Cluster
from martlet.client.fetcher import Fetcher
from martlet.client.offsets import offset_ranges
from martlet.spark.range_reading import read_range
from martlet.spark.ranges import OffsetRange
from martlet.spark.read_options import parse_read_options
from martlet.spark.records_from_arrow import RowColumns
from martlet.spark.session import start_session
from martlet.spark.write_options import parse_write_options
from martlet.spark.writers import MartletBatchWriter

GOAL: Final = 1.0
_PARTITIONS: Final = 2
_SIZES: Final = {100: 4_000_000, 1_000: 600_000}
"""Bytes of a value, and how many such messages are read or written in one round."""


@cache
def _jars() -> list[Path]:
    try:
        return connector_jars()
    except Missing as error:
        say(f"Spark's Kafka connector is missing: {error}")
        return []


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
    """This many values of this size, made in the JVM; half of the bytes differ from row to row."""
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


def _rate(work: Callable[[], object], count: int) -> float:
    settle()
    began = time.perf_counter()
    work()
    return count / (time.perf_counter() - began) / 1000


def _beside() -> str:
    return "beside Spark's Kafka connector" if _jars() else "beside a Parquet file"


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
    given = {"bootstrap": _bootstrap(broker), "subscribe": "work"}
    options = parse_read_options(given, streaming=False)
    fetched = Figure(f"  of which fetched only, {size} B", "k rows/s", note="one process, without Spark")
    decoded = Figure(f"  of which fetched and decoded, {size} B", "k rows/s", note="one process, without Spark")
    held = asyncio.run(_held(_bootstrap(broker)))
    count = sum(len(offsets) for offsets in held.values())

    def decode() -> None:
        for partition, offsets in held.items():
            for _ in read_range(OffsetRange(partition, offsets.start, offsets.stop), options):
                pass

    for _ in range(context.rounds):
        fetched.add(_rate(lambda: asyncio.run(_fetch_all(_bootstrap(broker), held)), count))
        decoded.add(_rate(decode, count))
    return [fetched, decoded]


async def _held(bootstrap: str) -> dict[TopicPartition, range]:
    async with Cluster(parse_bootstrap(bootstrap)) as cluster:
        return await offset_ranges(cluster, [TopicPartition("work", index) for index in range(_PARTITIONS)])


async def _fetch_all(bootstrap: str, held: dict[TopicPartition, range]) -> None:
    """Fetch everything, one partition after the other, without a look inside."""
    async with Cluster(parse_bootstrap(bootstrap)) as cluster, Fetcher(cluster) as reader:
        for partition, offsets in held.items():
            reader.assign({partition: offsets.start})
            while reader.positions[partition] < offsets.stop:
                await reader.fetch()


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
            figures += [figure, *_measure_parts_of_writing(context, spark, broker, size, count)]
    return figures


class _DroppingWriter(DataSourceArrowWriter):
    """Takes the rows as Arrow and keeps none."""

    def write(self, iterator: Iterator[Any]) -> WriterCommitMessage:
        for _ in iterator:
            pass
        return WriterCommitMessage()


class _DroppingSource(DataSource):
    """The format "dropping", for writing only."""

    @classmethod
    def name(cls) -> str:
        return "dropping"

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:
        return _DroppingWriter()


def _measure_parts_of_writing(
    context: Context, spark: SparkSession, broker: BrokerProcess, size: int, count: int
) -> list[Figure]:
    """The same rows handed to Python and dropped, and published by one process without Spark."""
    spark.dataSource.register(_DroppingSource)
    frame = _rows(spark, count, size)
    options = parse_write_options({"bootstrap": _bootstrap(broker), "topic": "ours"})
    writer = MartletBatchWriter(RowColumns("value"), options)
    batch = pa.RecordBatch.from_pydict({"value": [b"%016d" % number + b"x" * (size - 16) for number in range(10_000)]})
    handed = Figure(f"  of which handed to Python, {size} B", "k rows/s", note="by two tasks, and dropped there")
    published = Figure(f"  of which published, {size} B", "k rows/s", note="one process, without Spark")
    for _ in range(context.rounds):
        handed.add(_rate(frame.write.format("dropping").mode("append").save, count))
        published.add(_rate(lambda: writer.write(iter([batch] * (count // 10_000))), count))
    return [handed, published]


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
