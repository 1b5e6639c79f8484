"""Windows of a topic and the lag of its groups, in a topic and in a table."""

import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession

from martlet.base.ids import TopicPartition
from martlet.spark.pipelines.lake.layouts import open_table
from tests.spark.pipeline_runs import PipelineRuns
from tests.spark.topics import Message, Topics

MINUTE_MS = 60_000
START_MS = 1_770_000_000_000 // MINUTE_MS * MINUTE_MS


def test_windows_count_what_was_published_and_groups_show_their_lag(
    spark: SparkSession, topics: Topics, pipelines: PipelineRuns, tmp_path: Path
) -> None:
    topic, measurements = topics.new(configs={"retention.ms": "-1"}), topics.new()
    path = tmp_path / "metrics"
    # Two windows with 60 and 30 messages, and one much later that closes them.
    times = [START_MS + n * 1000 for n in range(60)] + [START_MS + MINUTE_MS + n * 2000 for n in range(30)]
    topics.publish(topic, [Message(b"12345678", b"ab", timestamp_ms=at) for at in [*times, START_MS + 60 * MINUTE_MS]])
    options: dict[str, Any] = {
        "topic": topic,
        "to": measurements,
        "table": str(path),
        "window_seconds": 60,
        "late_seconds": 10,
    }
    topics.commit("readers", {TopicPartition(topic, 0): 40})
    began_at = datetime.now(UTC)
    pipelines.finish("metrics", **options)
    topics.publish(topic, [Message(b"late comer", timestamp_ms=START_MS + 61 * MINUTE_MS)])
    pipelines.finish("metrics", **options)
    rows: list[dict[str, Any]] = [json.loads(value or b"") for value in topics.values(measurements)]
    windows = sorted((row for row in rows if row["kind"] == "topic"), key=lambda row: str(row["window_start"]))
    assert [(row["name"], row["messages"], row["bytes"]) for row in windows[:2]] == [(topic, 60, 600), (topic, 30, 300)]
    assert [row["messages_per_second"] for row in windows[:2]] == [1.0, 0.5]
    assert all(row["age_ms_p50"] <= row["age_ms_p95"] <= row["age_ms_p99"] <= row["age_ms_max"] for row in windows)
    groups = [row for row in rows if row["kind"] == "group"]
    assert {row["name"] for row in groups} == {"metrics", "readers"}
    behind = [row["lag_messages"] for row in groups if row["name"] == "readers"]
    assert (behind[0], behind[-1]) == (91 - 40, 92 - 40)
    assert sorted(behind) == behind
    oldest_ms = began_at.timestamp() * 1000 - (START_MS + 40_000)
    assert all(oldest_ms <= row["age_ms_max"] < oldest_ms + 600_000 for row in groups if row["name"] == "readers")
    reported_at = [datetime.fromisoformat(row["window_end"]) for row in groups]
    assert all(began_at <= at <= datetime.now(UTC) for at in reported_at)
    table = open_table(str(path), "parquet")
    assert spark.read.parquet(*(table.location(file) for file in table.files())).count() == len(rows)
