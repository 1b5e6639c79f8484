"""Writing: the two writers that Spark makes for `.write.format("martlet")` and `.writeStream.format("martlet")`.

Where things run: the writer is made in a planner process and pickled into tasks, which run `write`; for a stream
`commit` and `abort` are called on yet another instance, so nothing passes from tasks to them but commit messages.

At least once: publishing is idempotent, so a request that is sent again writes nothing twice. But Spark runs tasks
again after a failure, twice at a time when it speculates, and whole micro-batches after a restart; what those publish
a second time is there a second time. Exactly once needs transactions: docs/decisions/0011-spark-exactly-once.md. Its
seam is `TaskIdentity`: query, micro-batch, task and attempt, known in every task and carried to `commit`.

Proved by: tests/spark/test_writing.py
"""

import concurrent.futures
import logging
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from pyspark import TaskContext
from pyspark.sql.datasource import DataSourceArrowWriter, DataSourceStreamArrowWriter, WriterCommitMessage

from martlet.base.ids import TopicPartition
from martlet.spark.blocking import BlockingLoop, loop_of_process
from martlet.spark.publishing import Publishing
from martlet.spark.records_from_arrow import RowColumns
from martlet.spark.write_options import WriteOptions

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class TaskIdentity:
    """Who publishes: the query and micro-batch (none in a batch write), the task in it, and which try of it this is."""

    query_id: str | None
    batch_id: int | None
    task: int
    attempt: int

    @classmethod
    def current(cls) -> "TaskIdentity":
        context = TaskContext.get()
        if context is None:
            return cls(None, None, 0, 0)
        # Not documented, but what Spark's own stateful operators read in tasks.
        batch_id = context.getLocalProperty("streaming.sql.batchId")
        return cls(
            context.getLocalProperty("sql.streaming.queryId"),
            None if batch_id is None else int(batch_id),
            context.partitionId(),
            context.attemptNumber(),
        )


@dataclass(frozen=True)
class Published(WriterCommitMessage):
    """What a task has written, as its commit message."""

    identity: TaskIdentity
    rows: dict[TopicPartition, int] = field(default_factory=dict)


class _Writing:
    """What both writers share. Pickled into tasks, so it holds values only."""

    def __init__(self, columns: RowColumns, options: WriteOptions) -> None:
        self.columns = columns
        self.options = options

    def publish_all(self, batches: Iterator[Any]) -> WriterCommitMessage:
        """Publish everything and wait until it is written. Runs in a task."""
        loop = loop_of_process()
        publishing: Publishing | None = None
        under_way: concurrent.futures.Future[None] | None = None
        try:
            for batch in batches:
                if not batch.num_rows:
                    continue
                if publishing is None:
                    publishing = loop.run(self._begin(loop))
                if under_way is not None:
                    under_way.result()
                # Spark hands over the next rows while these are sent.
                under_way = loop.submit(publishing.publish(batch))
            if publishing is None:
                return Published(TaskIdentity.current())
            if under_way is not None:
                under_way.result()
            return Published(TaskIdentity.current(), loop.run(publishing.finish()))
        finally:
            if publishing is not None:
                loop.run(publishing.aclose())

    async def _begin(self, loop: BlockingLoop) -> Publishing:
        connection = self.options.connection
        cluster = await loop.cluster(connection, first_contact_ms=connection.retry_timeout_ms)
        publishing = Publishing(cluster, self.columns, self.options)
        await publishing.start()
        return publishing


class MartletBatchWriter(DataSourceArrowWriter):
    """Publishes a frame once; a failed job may have published a part of it."""

    def __init__(self, columns: RowColumns, options: WriteOptions) -> None:
        self.writing = _Writing(columns, options)

    def write(self, iterator: Iterator[Any]) -> WriterCommitMessage:
        return self.writing.publish_all(iterator)

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        logger.debug("published %d rows", rows_of(messages))

    def abort(self, messages: list[WriterCommitMessage | None]) -> None:
        logger.warning(
            "the write failed after %d rows of finished tasks were published; they stay, and a repeated write "
            "publishes them again",
            rows_of(messages),
        )


class MartletStreamWriter(DataSourceStreamArrowWriter):
    """Publishes every micro-batch at least once."""

    def __init__(self, columns: RowColumns, options: WriteOptions) -> None:
        self.writing = _Writing(columns, options)

    def write(self, iterator: Iterator[Any]) -> WriterCommitMessage:
        return self.writing.publish_all(iterator)

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        logger.debug("micro-batch %d: published %d rows", batchId, rows_of(messages))

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        logger.warning(
            "micro-batch %d failed after %d rows of finished tasks were published; the sink is at-least-once: they "
            "stay, and the micro-batch publishes them again when it runs again",
            batchId,
            rows_of(messages),
        )


def rows_of(messages: list[WriterCommitMessage | None]) -> int:
    """How many rows the finished tasks have written."""
    return sum(sum(message.rows.values()) for message in messages if isinstance(message, Published))
