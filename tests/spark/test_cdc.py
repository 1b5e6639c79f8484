"""Change events merged into a table: the last state of each key, deletes gone, nothing twice."""

import json
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from martlet.spark.pipelines.cdc import read_table
from martlet.spark.pipelines.columns import parse_columns
from martlet.spark.pipelines.lake import parquet_table
from martlet.spark.pipelines.status import RunState
from tests.spark.pipeline_runs import PipelineRuns, forget
from tests.spark.topics import Message, Topics

COLUMNS = "id long, name string, balance double"


def change(operation: str, row: int, name: str, balance: float) -> Message:
    """Debezium's envelope."""
    state = {"id": row, "name": name, "balance": balance}
    before, after = (state, None) if operation == "d" else (None, state)
    value = {"payload": {"op": operation, "before": before, "after": after, "ts_ms": 1}}
    return Message(json.dumps(value).encode(), str(row).encode(), row % 2)


def table(spark: SparkSession, path: Path) -> dict[int, tuple[str, float]]:
    rows = read_table(spark, str(path), parse_columns(COLUMNS)).collect()
    assert len({row["id"] for row in rows}) == len(rows)
    return {row["id"]: (row["name"], row["balance"]) for row in rows}


@pytest.mark.parametrize("layout", ["parquet", "delta"])
def test_the_table_holds_the_last_state_of_each_key_after_updates_and_deletes(
    spark: SparkSession, topics: Topics, pipelines: PipelineRuns, tmp_path: Path, layout: str
) -> None:
    topic, path = topics.new(partitions=2), tmp_path / "accounts"
    options: dict[str, Any] = {"topic": topic, "to": str(path), "layout": layout, "columns": COLUMNS, "buckets": 3}
    topics.publish(topic, [change("c", row, f"n{row}", 0.0) for row in range(20)])
    topics.publish(topic, [change("u", row, f"n{row}", 1.5) for row in range(0, 20, 2)])
    pipelines.finish("cdc", messages_per_batch=12, **options)
    assert table(spark, path) == {row: (f"n{row}", 0.0 if row % 2 else 1.5) for row in range(20)}
    topics.publish(topic, [change("d", 3, "n3", 0.0), Message(None, b"4", 0), change("u", 5, "five", 5.0)])
    # A plain row, and one with a column that is called as the envelope's is.
    topics.publish(topic, [Message(b'{"id": 6, "name": "plain", "balance": 6}', b"6", 0)])
    topics.publish(topic, [Message(b'{"id": 7, "name": "own", "balance": 7, "payload": {"size": 1}}', b"7", 1)])
    pipelines.finish("cdc", **options)
    found = table(spark, path)
    assert 3 not in found
    assert 4 not in found
    assert (found[5], found[6], found[7], len(found)) == (("five", 5.0), ("plain", 6.0), ("own", 7.0), 18)
    # Spark runs the last batch again when the driver dies right after it.
    commits = Path(pipelines.directory("cdc").checkpoint("cdc")) / "commits"
    forget(commits, max(int(file.name) for file in commits.iterdir() if file.name.isdigit()))
    pipelines.finish("cdc", **options)
    assert table(spark, path) == found


def test_the_log_of_a_merged_table_does_not_grow_with_every_batch(
    spark: SparkSession, topics: Topics, pipelines: PipelineRuns, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(parquet_table, "_CHECKPOINT_ENTRIES_MIN", 2)
    monkeypatch.setattr(parquet_table, "_UNCHECKPOINTED_BATCHES", 2)
    topic, path = topics.new(), tmp_path / "accounts"
    topics.publish(topic, [change("u", row % 5, f"n{row}", 1.0)._replace(partition=0) for row in range(40)])
    pipelines.finish("cdc", messages_per_batch=5, topic=topic, to=str(path), columns=COLUMNS, buckets=2)
    assert len(list((path / "_martlet_log" / "entries").glob("*.json"))) <= 4
    assert table(spark, path) == {row: (f"n{35 + row}", 1.0) for row in range(5)}


def test_an_event_that_is_no_change_ends_the_pipeline_with_its_place(
    topics: Topics, pipelines: PipelineRuns, tmp_path: Path
) -> None:
    from martlet.spark.pipelines.catalogue import READY, CdcOptions

    topic = topics.new()
    topics.publish(topic, [change("c", 0, "n", 1.0), Message(b"what is this", b"1")])
    options = CdcOptions(topic=topic, to=str(tmp_path / "table"), columns=COLUMNS)
    status = pipelines.run("cdc", lambda run: READY["cdc"].start(run, options), until_end=True)
    assert status.state is RunState.FAILED
    assert f"this is no change event with a key and a row: {topic}/0/1" in str(status.last_error)
