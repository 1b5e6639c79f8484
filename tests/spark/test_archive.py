"""The archive pipeline on a real broker and real Spark: the table holds what was published, each message once."""

from collections import Counter
from datetime import UTC, datetime
from pathlib import Path

import deltalake
import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession

from martlet.spark.pipelines.archive import DATE
from martlet.spark.pipelines.lake.data_file import FilesWriter, staging_folder
from martlet.spark.pipelines.lake.layouts import open_table
from martlet.spark.pipelines.replay import read_archive
from martlet.spark.pipelines.status import RunState
from tests.spark.pipeline_runs import PipelineRuns, forget
from tests.spark.topics import Message, Topics

DAY_MS = 86_400_000
LAYOUTS = ["parquet", "delta"]
KEPT = {"retention.ms": "-1"}
"""The messages are older than a topic keeps them by default."""


def two_days(count: int, *, first: int = 0) -> list[Message]:
    """Messages of two days and two partitions; some without a key, without a value, with headers."""
    start_ms = int(datetime(2026, 3, 1, 12, tzinfo=UTC).timestamp() * 1000)
    return [
        Message(
            None if number % 17 == 0 else f"value-{number}".encode(),
            None if number % 5 == 0 else f"key-{number}".encode(),
            number % 2,
            start_ms + number % 2 * DAY_MS + number,
            [("number", str(number).encode()), ("empty", None)] if number % 3 == 0 else [],
        )
        for number in range(first, first + count)
    ]


def archived(spark: SparkSession, path: Path) -> Counter[tuple[object, ...]]:
    rows = read_archive(spark, str(path)).collect()
    return Counter(
        (
            None if row["value"] is None else bytes(row["value"]),
            None if row["key"] is None else bytes(row["key"]),
            row["partition"],
            row["timestamp"].replace(tzinfo=UTC) if row["timestamp"].tzinfo is None else row["timestamp"],
            tuple((header["key"], header["value"] and bytes(header["value"])) for header in row["headers"] or ()),
        )
        for row in rows
    )


def published(messages: list[Message]) -> Counter[tuple[object, ...]]:
    return Counter(
        (
            message.value,
            message.key,
            message.partition,
            datetime.fromtimestamp((message.timestamp_ms or 0) / 1000, UTC),
            tuple(message.headers),
        )
        for message in messages
    )


@pytest.mark.parametrize("layout", LAYOUTS)
def test_an_archive_holds_each_message_once_by_date_and_goes_on_where_it_stopped(
    spark: SparkSession, topics: Topics, pipelines: PipelineRuns, tmp_path: Path, layout: str
) -> None:
    topic, path = topics.new(partitions=2, configs=KEPT), tmp_path / "archive"
    messages = two_days(300)
    topics.publish(topic, messages)
    status = pipelines.finish("archive", topic=topic, to=str(path), layout=layout, messages_per_batch=100)
    assert (status.flows[0].rows, status.flows[0].lag_messages) == (300, 0)
    assert archived(spark, path) == published(messages)
    more = two_days(50, first=300)
    topics.publish(topic, more)
    assert pipelines.finish("archive", topic=topic, to=str(path), layout=layout).flows[0].rows == 50
    assert archived(spark, path) == published(messages + more)
    days = {file.partition[DATE] for file in open_table(str(path), layout).files()}
    assert days == {"2026-03-01", "2026-03-02"}


@pytest.mark.parametrize("layout", LAYOUTS)
def test_a_batch_that_spark_runs_again_after_it_was_committed_is_in_the_archive_once(
    spark: SparkSession, topics: Topics, pipelines: PipelineRuns, tmp_path: Path, layout: str
) -> None:
    topic, path = topics.new(partitions=2, configs=KEPT), tmp_path / "archive"
    messages = two_days(200)
    topics.publish(topic, messages)
    pipelines.finish("archive", topic=topic, to=str(path), layout=layout, compact_files=0)
    # As if the driver had died between the sink's commit and Spark's own: the batch is not known to be done.
    commits = Path(pipelines.directory("archive").checkpoint("archive")) / "commits"
    forget(commits, 0)
    status = pipelines.finish("archive", topic=topic, to=str(path), layout=layout, compact_files=0)
    assert status.flows[0].rows == 200
    assert archived(spark, path) == published(messages)


@pytest.mark.parametrize("layout", LAYOUTS)
def test_small_files_of_a_day_are_merged_and_any_tool_reads_the_same_rows(
    spark: SparkSession, topics: Topics, pipelines: PipelineRuns, tmp_path: Path, layout: str
) -> None:
    topic, path = topics.new(partitions=2, configs=KEPT), tmp_path / "archive"
    messages = two_days(200)
    topics.publish(topic, messages)
    pipelines.finish("archive", topic=topic, to=str(path), layout=layout, compact_files=3, messages_per_batch=40)
    files = open_table(str(path), layout).files()
    assert sorted(str(file.partition[DATE]) for file in files) == ["2026-03-01", "2026-03-02"]
    assert archived(spark, path) == published(messages)
    if layout == "parquet":
        assert spark.read.parquet(str(path)).groupBy(DATE).count().count() == 2
        assert spark.read.parquet(str(path)).count() == len(messages)


def test_an_archive_keeps_its_columns_and_refuses_others_with_a_sentence(
    topics: Topics, pipelines: PipelineRuns, tmp_path: Path
) -> None:
    topic, path = topics.new(), tmp_path / "archive"
    topics.publish(topic, two_days(1))
    pipelines.finish("archive", topic=topic, to=str(path))
    status = pipelines.run(
        "other",
        lambda run: run.write_lake(run.read_stream(topic).select("value"), str(path)),
        until_end=True,
    )
    assert status.state is RunState.FAILED
    assert "but the pipeline writes value binary; give another directory" in str(status.last_error)


@pytest.mark.parametrize("layout", LAYOUTS)
def test_files_of_a_batch_that_was_not_committed_are_not_seen(
    spark: SparkSession, topics: Topics, pipelines: PipelineRuns, tmp_path: Path, layout: str
) -> None:
    topic, path = topics.new(partitions=2, configs=KEPT), tmp_path / "archive"
    messages = two_days(20)
    topics.publish(topic, messages)
    pipelines.finish("archive", topic=topic, to=str(path), layout=layout)
    table = open_table(str(path), layout)
    # What a task has written when its driver dies before the commit: the same rows once more.
    rows = [pq.read_table(table.location(file), partitioning=None) for file in table.files()]
    staging = staging_folder("query", 1) if table.stages_files else None
    uncommitted = FilesWriter(str(path), staging=staging, partition_by=None, prefix="batch-1").write_all(
        batch for content in rows for batch in content.to_batches()
    )
    assert sum(file.rows for file in uncommitted) == len(messages)
    assert all((path / file.staged).exists() for file in uncommitted)
    assert archived(spark, path) == published(messages)
    if layout == "parquet":
        assert spark.read.parquet(str(path)).count() == len(messages)
    else:
        assert deltalake.DeltaTable(str(path)).to_pyarrow_table().num_rows == len(messages)
