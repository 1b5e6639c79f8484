"""A pipeline's lag is seen like any consumer's: `martlet group lag` says what Spark's own progress says."""

import json

from pyspark.sql import SparkSession

from martlet.base.ids import TopicPartition
from martlet.spark.progress import lag_between
from tests.spark.frames import Collected, Option, stream_frame, wait_until
from tests.spark.topics import Topics
from tests.unit.cli.command_line import martlet


def lag_shown(bootstrap: str, group: str) -> dict[TopicPartition, int]:
    """What the command line shows."""
    ran = martlet("group", "lag", group, "--json", environment={"MARTLET_BOOTSTRAP": bootstrap})
    assert ran.exit_code == 0, ran.stderr
    return {TopicPartition(row["topic"], row["partition"]): row["lag"] for row in json.loads(ran.stdout)["partitions"]}


def test_lag_seen_by_the_command_line_equals_sparks_progress(
    spark: SparkSession, topics: Topics, checkpoint: str
) -> None:
    name = topics.new(2)
    topics.fill(name, 400, partitions=2)
    options: dict[str, Option] = {"subscribe": name, "startingOffsets": "earliest", "maxOffsetsPerTrigger": 100}
    options["group"] = "pipeline"
    collected = Collected()
    query = collected.start(stream_frame(spark, topics.bootstrap, options), checkpoint)
    try:
        wait_until(lambda: collected.batch_sizes, query)
        collected.allow.clear()
        # At most one more micro-batch passes; the one after that waits, and nothing moves until it may go on.
        wait_until(
            lambda: collected.waiting.is_set() and len(query.recentProgress) == len(collected.batch_sizes), query
        )
        progress = query.recentProgress[-1].sources[0]
        lags = lag_between(progress.endOffset, progress.latestOffset)
        assert sum(lags.values()) in (300, 200, 100)
        assert lag_shown(topics.bootstrap, "pipeline") == lags
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
