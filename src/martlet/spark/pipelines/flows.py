"""What a pipeline works with: reading topics, and handing over what is to be written. Nothing runs yet here.

A pipeline's `start` calls these; each write becomes a flow, which the runner starts, watches, starts again after a
failure and ends between batches. Every flow has a checkpoint of its own below the run's directory, named after the
flow, so a flow keeps its place in the topic as long as it keeps its name.

Guarantees: `write_topic` is at least once (a batch that was interrupted is published again); `write_lake` is exactly
once; `write_batches` is what its function makes of it: the batch's number comes with the rows, and stays the same when
a batch is repeated.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final, NamedTuple

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery
from pyspark.sql.streaming.readwriter import DataStreamWriter

from martlet.spark.pipelines.lake import sink
from martlet.spark.pipelines.lake.table import LakeError
from martlet.spark.pipelines.state_directory import RunDirectory

MESSAGES: Final = "martlet"
"""The format of topics."""
_PUBLISHED_COLUMNS: Final = ("key", "value", "headers", "topic", "partition", "timestamp")


@dataclass(frozen=True, slots=True, kw_only=True)
class RunOptions:
    """What the command line says about every pipeline."""

    bootstrap: str
    group: str
    starting: Mapping[str, str]
    """The source's options for where to begin, when there is no checkpoint yet."""
    every_seconds: float = 0.0
    until_end: bool = False
    """Process what is there now, then finish."""
    messages_per_batch: int | None = None


class StreamFlow(NamedTuple):
    """A query to be started, and the maintenance done now and then while it runs."""

    name: str
    start: Callable[[], StreamingQuery]
    maintenance: Callable[[], object] | None


class BatchFlow(NamedTuple):
    """Work with an end of its own; returns how many rows it has processed."""

    name: str
    work: Callable[[], int]


class BatchOfRows(NamedTuple):
    """One micro-batch, with the name and number under which a table takes it once."""

    rows: DataFrame
    writer: str
    number: int


class PipelineRun:
    """One run of a pipeline: gathers its flows."""

    def __init__(self, spark: SparkSession, directory: RunDirectory, options: RunOptions) -> None:
        self.spark = spark
        self.options = options
        self.flows: list[StreamFlow | BatchFlow] = []
        self._directory = directory
        spark.dataSource.register(sink.LakeSource)

    def read_stream(self, topics: str, *, group: str | None = None) -> DataFrame:
        """The messages of topics (several by commas) as a stream, with headers."""
        reader = (
            self.spark.readStream.format(MESSAGES)
            .option("kafka.bootstrap.servers", self.options.bootstrap)
            .option("subscribe", topics)
            .option("includeHeaders", "true")
            .option("group", group or self.options.group)
            .option("pauseFile", str(self._directory.stop_file))
            .options(**self.options.starting)
        )
        if self.options.messages_per_batch is not None:
            reader = reader.option("maxOffsetsPerTrigger", str(self.options.messages_per_batch))
        return reader.load()

    def write_topic(
        self,
        frame: DataFrame,
        topic: str | None,
        *,
        name: str = "publish",
        bootstrap: str | None = None,
        keep: tuple[str, ...] = (),
    ) -> None:
        """Publish a stream; with no topic, to that of its `topic` column.

        Of the columns a message came with, `partition` and `timestamp` go on only if `keep` names them.
        """
        writer = _published(frame, topic, keep).writeStream.format(MESSAGES)
        for option, value in self._publishing(topic, bootstrap, keep).items():
            writer = writer.option(option, value)
        self._add(name, writer)

    def publish_batch(self, frame: DataFrame, topic: str, *, keep: tuple[str, ...] = ()) -> None:
        """Publish a batch now; for the inside of `write_batches` and `do_batch`."""
        writer = _published(frame, topic, keep).write.format(MESSAGES).mode("append")
        writer.options(**self._publishing(topic, None, keep)).save()

    def write_lake(
        self,
        frame: DataFrame,
        path: str,
        *,
        layout: str = "parquet",
        partition_by: str | None = None,
        name: str = "lake",
        maintenance: Callable[[], object] | None = None,
    ) -> None:
        """Append a stream to a lake table, each row once."""
        writer = frame.writeStream.format(sink.FORMAT).option("path", path).option("layout", layout)
        if partition_by is not None:
            writer = writer.option("partitionBy", partition_by)
        self._add(name, writer, maintenance)

    def write_batches(self, frame: DataFrame, function: Callable[[BatchOfRows], None], *, name: str) -> None:
        """Give every micro-batch to a function."""

        def each(rows: DataFrame, number: int) -> None:
            writer = rows.sparkSession.sparkContext.getLocalProperty(sink.QUERY_PROPERTY)
            if writer is None:
                raise LakeError(f"Spark did not say {sink.QUERY_PROPERTY} to a batch of {name}")
            function(BatchOfRows(rows, writer, number))

        self._add(name, frame.writeStream.foreachBatch(each))

    def do_batch(self, work: Callable[[], int], *, name: str) -> None:
        """Work with an end of its own instead of a stream."""
        self.flows.append(BatchFlow(name, work))

    def _publishing(self, topic: str | None, bootstrap: str | None, keep: tuple[str, ...]) -> dict[str, str]:
        options = {"kafka.bootstrap.servers": bootstrap or self.options.bootstrap}
        if topic is not None:
            options["topic"] = topic
        if "timestamp" in keep:
            options["keepTimestamp"] = "true"
        return options

    def _add(self, name: str, writer: DataStreamWriter, maintenance: Callable[[], object] | None = None) -> None:
        writer = writer.queryName(f"{self._directory.name}.{name}")
        writer = writer.option("checkpointLocation", self._directory.checkpoint(name))
        if self.options.until_end:
            writer = writer.trigger(availableNow=True)
        else:
            writer = writer.trigger(processingTime=f"{self.options.every_seconds} seconds")
        self.flows.append(StreamFlow(name, writer.start, maintenance))


def append_to_lake(batch: BatchOfRows, path: str, *, layout: str, partition_by: str | None = None) -> None:
    """Put a micro-batch into a lake table, once however often it is repeated."""
    writer = batch.rows.write.format(sink.FORMAT).mode("append").option("path", path).option("layout", layout)
    if partition_by is not None:
        writer = writer.option("partitionBy", partition_by)
    writer.option("writer", batch.writer).option("batch", str(batch.number)).save()


def _published(frame: DataFrame, topic: str | None, keep: tuple[str, ...]) -> DataFrame:
    """The columns that make a message; where it came from is none of them."""
    dropped = {"partition", "timestamp"} - set(keep)
    if topic is not None:
        dropped.add("topic")
    return frame.select(*(name for name in _PUBLISHED_COLUMNS if name in frame.columns and name not in dropped))
