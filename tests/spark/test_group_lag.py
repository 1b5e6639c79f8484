"""A pipeline's lag is seen like any consumer's: `martlet group lag` says what Spark's own progress says."""

import json

from click.testing import CliRunner
from pyspark.sql import SparkSession

from martlet.base.ids import TopicPartition
from martlet.cli.main import main
from martlet.spark.progress import lag_between
from tests.spark.frames import Collected, stream_frame
from tests.spark.topics import Topics


def lag_shown(bootstrap: str, group: str) -> dict[TopicPartition, int]:
    """What the command line shows."""
    outcome = CliRunner().invoke(main, ["--bootstrap", bootstrap, "group", "lag", group, "--json"])
    assert outcome.exit_code == 0, outcome.output
    return {TopicPartition(row["topic"], row["partition"]): row["lag"] for row in json.loads(outcome.output)}


def test_lag_seen_by_the_command_line_equals_sparks_progress(
    spark: SparkSession, topics: Topics, checkpoint: str
) -> None:
    name = topics.new(2)
    topics.fill(name, 300, partitions=2)
    options = {
        "subscribe": name,
        "startingOffsets": "earliest",
        "maxOffsetsPerTrigger": 100,
        "group": "pipeline",
    }
    collected = Collected()
    query = collected.start(stream_frame(spark, topics.bootstrap, options), checkpoint)
    try:
        while not query.recentProgress and query.isActive:
            query.awaitTermination(0.05)
        collected.allow.clear()
        # The micro-batch under way now waits; nothing moves until it may go on.
        batches = -1
        while batches != len(collected.batch_sizes):
            batches = len(collected.batch_sizes)
            query.awaitTermination(2)
        progress = query.recentProgress[-1].sources[0]
        told = lag_between(progress.endOffset, progress.latestOffset)
        assert sum(told.values()) in (100, 200)
        assert lag_shown(topics.bootstrap, "pipeline") == told
    finally:
        collected.allow.set()
    query.processAllAvailable()
    query.stop()
    assert set(lag_shown(topics.bootstrap, "pipeline").values()) == {0}


def test_the_last_batch_of_an_available_now_run_is_committed_too(
    spark: SparkSession, topics: Topics, checkpoint: str
) -> None:
    name = topics.new()
    topics.fill(name, 10)
    options = {"subscribe": name, "startingOffsets": "earliest", "kafka.group.id": "drained"}
    Collected().drain(stream_frame(spark, topics.bootstrap, options), checkpoint)
    assert topics.group_lag("drained") == {TopicPartition(name, 0): 0}
