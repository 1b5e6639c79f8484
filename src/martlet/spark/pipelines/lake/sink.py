"""The Spark sink for lake tables, format `martlet-lake`: tasks write files, the driver commits the batch.

Options: `path`, `layout` (parquet or delta), `partitionBy` (one column, optional). A batch write also takes `writer`
and `batch`, under which it is committed; `foreachBatch` passes those of its query.

Where each method runs: `streamWriter`, `writer` and `commit` in planner processes at the driver, each time in a new
object; `write` in tasks. Nothing survives from `write` to `commit` but the messages, so these carry the writer's name.
Tasks never open the table: executors need not have the packages that a layout's log is kept with.

Invariant: the writer of a stream is Spark's query id, which is kept in the checkpoint. A name chosen by people would
make a stream that starts again skip its first batches without a word.

Proved by: tests/spark/test_archive.py.
"""

import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from pyspark import TaskContext
from pyspark.sql.datasource import (
    DataSource,
    DataSourceArrowWriter,
    DataSourceStreamArrowWriter,
    WriterCommitMessage,
)
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import StructType

from martlet.spark.pipelines.lake.data_file import DataFile, FilesWriter, staging_folder
from martlet.spark.pipelines.lake.layouts import open_table
from martlet.spark.pipelines.lake.table import LakeError, LakeTable, commit_in_sight

if TYPE_CHECKING:
    import pyarrow as pa

FORMAT: Final = "martlet-lake"

QUERY_PROPERTY: Final = "sql.streaming.queryId"
BATCH_PROPERTY: Final = "streaming.sql.batchId"


@dataclass
class FilesWritten(WriterCommitMessage):
    """What one task leaves for the commit."""

    writer: str
    batch: int
    files: list[DataFile]


class LakeSource(DataSource):
    """What Spark finds under the format's name; it can only be written."""

    @classmethod
    def name(cls) -> str:
        return FORMAT

    def writer(self, schema: StructType, overwrite: bool) -> "LakeWriter":
        if overwrite:
            raise LakeError("a lake table is only appended to; use mode('append')")
        return LakeWriter(self.options, schema)

    def streamWriter(self, schema: StructType, overwrite: bool) -> "LakeStreamWriter":
        return LakeStreamWriter(self.options, schema)


class _TaskWriter:
    """What both writers share: the table, and turning rows into files."""

    def __init__(self, options: Mapping[str, str], schema: StructType) -> None:
        # Tasks run in directories of their own.
        self._path = os.path.abspath(options["path"])
        self._layout = options.get("layout", "parquet")
        self._partition_by = options.get("partitionBy")
        table = self._table()
        table.prepare(to_arrow_schema(schema, timezone="UTC"), self._partition_by)
        self._stages_files = table.stages_files

    def _table(self) -> LakeTable:
        return open_table(self._path, self._layout)

    def _write_files(self, rows: "Iterator[pa.RecordBatch]", writer: str, batch: int) -> FilesWritten:
        files = FilesWriter(
            self._path,
            staging=staging_folder(writer, batch) if self._stages_files else None,
            partition_by=self._partition_by,
            prefix=f"batch-{batch}",
        )
        return FilesWritten(writer, batch, files.write_all(rows))

    def _commit(self, messages: list[Any]) -> None:
        written = [message for message in messages if isinstance(message, FilesWritten)]
        if written:
            files = [file for message in written for file in message.files]
            commit_in_sight(self._table(), written[0].writer, written[0].batch, files)


class LakeStreamWriter(_TaskWriter, DataSourceStreamArrowWriter):
    """A stream into a table: one commit for each micro-batch."""

    def write(self, iterator: "Iterator[pa.RecordBatch]") -> FilesWritten:
        query, batch = _task_property(QUERY_PROPERTY), int(_task_property(BATCH_PROPERTY))
        return self._write_files(iterator, query, batch)

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        self._commit(messages)

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        """Files of a batch that was not committed belong to none; the next attempt writes others."""


class LakeWriter(_TaskWriter, DataSourceArrowWriter):
    """One batch into a table, committed under the name and number given."""

    def __init__(self, options: Mapping[str, str], schema: StructType) -> None:
        super().__init__(options, schema)
        try:
            self._writer, self._batch = options["writer"], int(options["batch"])
        except KeyError as error:
            raise LakeError(f"a batch write needs the option {error}: under which it is committed, once") from None

    def write(self, iterator: "Iterator[pa.RecordBatch]") -> FilesWritten:
        return self._write_files(iterator, self._writer, self._batch)

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        self._commit(messages)

    def abort(self, messages: list[WriterCommitMessage | None]) -> None:
        """As with a stream's."""


def _task_property(name: str) -> str:
    context = TaskContext.get()
    value = None if context is None else context.getLocalProperty(name)
    if value is None:
        raise LakeError(f"Spark did not say {name} to a task of a streaming query")
    return value
