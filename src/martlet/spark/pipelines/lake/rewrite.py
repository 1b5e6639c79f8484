"""Rows in place of files: the new files of a table and the old ones they stand for change places in one commit.

The rows are written by tasks like any other batch; only the commit differs, so it is done here at the driver, with the
files that the tasks have reported.
"""

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from pyspark.sql import DataFrame
from pyspark.sql.pandas.types import to_arrow_schema

from martlet.spark.pipelines.lake.data_file import DataFile, FilesWriter, staging_folder
from martlet.spark.pipelines.lake.table import LakeTable, commit_in_sight

if TYPE_CHECKING:
    import pyarrow as pa


def rewrite_files(
    rows: DataFrame,
    table: LakeTable,
    *,
    partition_by: str,
    removes: Sequence[DataFile],
    writer: str,
    batch: int,
) -> None:
    """Commit the rows in place of the files, under the writer's name and the batch's number."""
    table.prepare(to_arrow_schema(rows.schema, timezone="UTC"), partition_by)
    path, staging = table.path, staging_folder(writer, batch) if table.stages_files else None

    def write(batches: "Iterator[pa.RecordBatch]") -> "Iterator[pa.RecordBatch]":
        import pyarrow as pa

        files = FilesWriter(path, staging=staging, partition_by=partition_by, prefix=f"batch-{batch}")
        written = [{**file.as_data(), "partition": file.partition[partition_by]} for file in files.write_all(batches)]
        yield pa.RecordBatch.from_pylist(written, schema=_written_schema())

    written = rows.repartition(partition_by).mapInArrow(write, _WRITTEN).collect()
    adds = [
        DataFile(row["path"], row["staged"], row["rows"], row["bytes"], {partition_by: row["partition"]})
        for row in written
    ]
    commit_in_sight(table, writer, batch, adds, removes)


_WRITTEN = "path string, staged string, rows long, bytes long, partition string"


def _written_schema() -> "pa.Schema":
    import pyarrow as pa

    text, number = pa.string(), pa.int64()
    return pa.schema([("path", text), ("staged", text), ("rows", number), ("bytes", number), ("partition", text)])
