"""Frames over topics, and what has been read of them, for comparison with what was published."""

import threading
import time
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from pyspark.sql import DataFrame, Row, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from tests.spark.topics import Message

Option = str | int | bool


def batch_frame(spark: SparkSession, bootstrap: str, options: Mapping[str, Option]) -> DataFrame:
    return spark.read.format("martlet").options(**{"kafka.bootstrap.servers": bootstrap, **options}).load()


def stream_frame(spark: SparkSession, bootstrap: str, options: Mapping[str, Option]) -> DataFrame:
    return spark.readStream.format("martlet").options(**{"kafka.bootstrap.servers": bootstrap, **options}).load()


def by_partition(rows: Sequence[Row]) -> dict[int, list[tuple[int, bytes]]]:
    """Offset and value of every row, by partition, in the order they came."""
    found: dict[int, list[tuple[int, bytes]]] = defaultdict(list)
    for row in rows:
        found[row.partition].append((row.offset, bytes(row.value)))
    return dict(found)


def published(messages: Sequence[Message], partitions: int, first: int = 0) -> dict[int, list[tuple[int, bytes]]]:
    """What `by_partition` finds when all of these have been read; they lie at offsets from `first` on."""
    found: dict[int, list[tuple[int, bytes]]] = {}
    for partition in range(partitions):
        values = [message.value or b"" for message in messages if message.partition == partition]
        if values:
            found[partition] = list(enumerate(values, first))
    return found


def wait_until(condition: Callable[[], object], query: StreamingQuery, seconds: float = 90) -> None:
    """Until the condition holds; a query that ends before that is a failure of the test."""
    deadline = time.monotonic() + seconds
    while not condition():
        assert query.isActive, query.exception()
        assert time.monotonic() < deadline, query.lastProgress
        time.sleep(0.02)


class Collected:
    """Gathers the rows of a stream's micro-batches; used as the function of `foreachBatch`."""

    def __init__(self) -> None:
        self.rows: list[Row] = []
        self.batch_sizes: list[int] = []
        self.batches: dict[int, list[Row]] = {}
        """The rows of each micro-batch; one that ran again is there once, and must have been the same."""
        self.allow = threading.Event()
        self.allow.set()
        self.waiting = threading.Event()

    def __call__(self, frame: DataFrame, batch_id: int) -> None:
        rows = frame.collect()
        if not self.allow.is_set():
            self.waiting.set()
            self.allow.wait(60)
        assert self.batches.setdefault(batch_id, rows) == rows, f"micro-batch {batch_id} was another the first time"
        self.rows += rows
        self.batch_sizes.append(len(rows))

    @property
    def rows_once(self) -> list[Row]:
        """What an idempotent sink would hold: every micro-batch once, in order."""
        return [row for batch_id in sorted(self.batches) for row in self.batches[batch_id]]

    def start(self, frame: DataFrame, checkpoint: str, **trigger: Any) -> StreamingQuery:
        writer = frame.writeStream.foreachBatch(self).option("checkpointLocation", checkpoint)
        return (writer.trigger(**trigger) if trigger else writer).start()

    def drain(self, frame: DataFrame, checkpoint: str) -> StreamingQuery:
        """Run until everything that is there now has been read."""
        query = self.start(frame, checkpoint, availableNow=True)
        query.awaitTermination()
        return query
