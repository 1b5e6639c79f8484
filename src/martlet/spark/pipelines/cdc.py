"""`cdc`: change events merged into a table that holds the last state of every key.

An event is a JSON value in one of two shapes: Debezium's envelope (`op`, `before`, `after`, also inside `payload`), or
just the row. A null value, or an envelope with op `d`, deletes the row. Which event of a key is the last is said by its
offset: events of one key are in one partition, as every producer with keys puts them. An event that is neither shape
ends the pipeline with its place, because to skip it would leave a wrong table.

How it works: the table is cut into buckets by a hash of the key. A batch takes the last event of each key, reads the
buckets it touches, and commits their new files in place of the old ones together with the batch's number: exactly once.

Proved by: tests/spark/test_cdc.py.
"""

from collections.abc import Sequence
from typing import Final

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql.types import BinaryType, StringType, StructField, StructType

from martlet.spark.pipelines.catalogue import CdcOptions
from martlet.spark.pipelines.columns import parse_columns
from martlet.spark.pipelines.flows import BatchOfRows, PipelineRun
from martlet.spark.pipelines.lake.data_file import DataFile
from martlet.spark.pipelines.lake.layouts import layout_of, open_table
from martlet.spark.pipelines.lake.rewrite import rewrite_files
from martlet.spark.pipelines.lake.table import LakeTable

KEY: Final = "_key"
BUCKET: Final = "bucket"

_UNREAD: Final = "_unread"


def start(run: PipelineRun, options: CdcOptions) -> None:
    columns = parse_columns(options.columns)
    table = open_table(options.to, options.layout)

    def merge(batch: BatchOfRows) -> None:
        if table.has_batch(batch.writer, batch.number):
            # Nothing is merged again, but what was interrupted in putting it in place is finished.
            table.commit(batch.writer, batch.number, [])
            return
        changes = last_changes(batch.rows, columns, options.buckets).persist()
        try:
            touched = {str(row[BUCKET]) for row in changes.select(BUCKET).distinct().collect()}
            old = [file for file in table.files() if file.partition[BUCKET] in touched]
            rows = merged(_rows_of(run.spark, table, old, columns), changes)
            rewrite_files(rows, table, partition_by=BUCKET, removes=old, writer=batch.writer, batch=batch.number)
        finally:
            changes.unpersist()
        # Here, and not in the background: whatever else changed the table while a batch merges would be undone by it.
        table.checkpoint_log()

    run.write_batches(run.read_stream(options.topic), merge, name="cdc")


def last_changes(messages: DataFrame, columns: StructType, buckets: int) -> DataFrame:
    """One row per key: its columns as the last event has them, whether it is deleted, and its bucket."""
    text = F.col("value").cast("string")
    # A row may have a column of that name: only with an operation in it is it Debezium's envelope.
    is_wrapped = F.get_json_object(text, "$.payload.op").isNotNull()
    event = F.when(is_wrapped, F.get_json_object(text, "$.payload")).otherwise(text)
    operation = F.get_json_object(event, "$.op")
    row = F.when(operation.isNotNull(), F.get_json_object(event, "$.after")).otherwise(event)
    is_deleted = F.col("value").isNull() | F.coalesce(operation == "d", F.lit(False))
    place = F.concat_ws("/", "topic", F.col("partition").cast("string"), F.col("offset").cast("string"))
    # Spark puts the text of what it cannot read into a column that is asked for by name.
    strict = StructType([*columns.fields, StructField(_UNREAD, StringType())])
    read = messages.select(
        F.col("key").alias(KEY),
        "offset",
        place.alias("place"),
        is_deleted.alias("is_deleted"),
        F.from_json(row, strict, {"columnNameOfCorruptRecord": _UNREAD}).alias("row"),
    )
    is_unread = ~F.col("is_deleted") & (F.col("row").isNull() | F.col(f"row.{_UNREAD}").isNotNull())
    wrong = F.raise_error(F.concat(F.lit("this is no change event with a key and a row: "), F.col("place")))
    fields = F.struct(*(F.col(f"row.{field.name}").alias(field.name) for field in columns))
    checked = read.withColumn("row", F.when(F.col(KEY).isNull() | is_unread, wrong.cast(columns)).otherwise(fields))
    newest = checked.groupBy(KEY).agg(F.max_by(F.struct("row", "is_deleted"), "offset").alias("last"))
    bucket = F.pmod(F.xxhash64(KEY), F.lit(buckets)).cast("string")
    return newest.select(KEY, "last.row.*", "last.is_deleted", bucket.alias(BUCKET))


def merged(table: DataFrame, changes: DataFrame) -> DataFrame:
    """The table's rows whose keys did not change, and the changed ones that are still there."""
    kept = table.join(changes.select(KEY), KEY, "left_anti")
    return kept.unionByName(changes.where(~F.col("is_deleted")).drop("is_deleted"))


def read_table(spark: SparkSession, path: str, columns: StructType) -> DataFrame:
    """The merged table as it is now, without our own columns."""
    table = open_table(path, layout_of(path) or "parquet")
    return _rows_of(spark, table, table.files(), columns).drop(KEY, BUCKET)


def _rows_of(spark: SparkSession, table: LakeTable, files: Sequence[DataFile], columns: StructType) -> DataFrame:
    """The rows of some files, with the bucket that only their paths tell."""
    schema = StructType([StructField(KEY, BinaryType()), *columns.fields])
    if not files:
        return spark.createDataFrame([], StructType([*schema.fields, StructField(BUCKET, StringType())]))
    by_bucket: dict[str | None, list[str]] = {}
    for file in files:
        by_bucket.setdefault(file.partition[BUCKET], []).append(table.location(file))
    frames = [
        spark.read.schema(schema).parquet(*paths).withColumn(BUCKET, F.lit(bucket))
        for bucket, paths in by_bucket.items()
    ]
    rows = frames[0]
    for frame in frames[1:]:
        rows = rows.unionByName(frame)
    return rows
