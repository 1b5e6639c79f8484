"""`metrics`: how many messages went through topics, how old they were when read, and how far groups are behind.

Two kinds of rows, as JSON into a topic and, if asked, into a lake table: for each window and topic the messages, bytes,
rates, and percentiles of the age (the time from the message's own timestamp to the batch that read it); for each batch
and group the messages it is behind and the age of the oldest one it has not read, at the moment in `window_end`.

A window is reported once, when no message of it can come any more, that is `late_seconds` after its end by the
messages' own time. Proved by: tests/spark/test_metrics.py.
"""

import asyncio
from collections.abc import Collection
from datetime import UTC, datetime
from typing import Any, Final

from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812

from martlet.base.addresses import parse_bootstrap
from martlet.base.clock import SystemClock
from martlet.client.cluster import Cluster
from martlet.client.groups import Groups
from martlet.client.lag import partition_lags
from martlet.spark.pipelines.catalogue import MetricsOptions
from martlet.spark.pipelines.flows import BatchOfRows, PipelineRun, append_to_lake

ROW: Final = (
    "kind string, name string, window_start timestamp, window_end timestamp, messages long, bytes long, "
    "messages_per_second double, bytes_per_second double, age_ms_p50 long, age_ms_p95 long, age_ms_p99 long, "
    "age_ms_max long, lag_messages long"
)
_PERCENTILES: Final = {"age_ms_p50": 0.5, "age_ms_p95": 0.95, "age_ms_p99": 0.99}


def start(run: PipelineRun, options: MetricsOptions) -> None:
    topics = [topic.strip() for topic in options.topic.split(",")]

    def tell(batch: BatchOfRows) -> None:
        groups = asyncio.run(group_rows(run.options.bootstrap, topics, SystemClock().now_ms()))
        rows = batch.rows.unionByName(run.spark.createDataFrame(groups, ROW)).persist()
        try:
            run.publish_batch(as_messages(rows), options.to)
            if options.table:
                append_to_lake(batch._replace(rows=rows), options.table, layout="parquet")
        finally:
            rows.unpersist()

    windows = measured(run.read_stream(options.topic), options.window_seconds, options.late_seconds)
    run.write_batches(windows, tell, name="metrics")


def measured(messages: DataFrame, window_seconds: int, late_seconds: int) -> DataFrame:
    """A row for each window and topic."""
    age = F.unix_millis(F.current_timestamp()) - F.unix_millis("timestamp")
    size = F.coalesce(F.octet_length("key"), F.lit(0)) + F.coalesce(F.octet_length("value"), F.lit(0))
    windows = (
        messages.select("topic", "timestamp", age.alias("age"), size.alias("size"))
        .withWatermark("timestamp", f"{late_seconds} seconds")
        .groupBy(F.window("timestamp", f"{window_seconds} seconds").alias("window"), "topic")
        .agg(
            F.count("*").alias("messages"),
            F.sum("size").cast("long").alias("bytes"),
            F.percentile_approx("age", list(_PERCENTILES.values())).alias("ages"),
            F.max("age").alias("age_ms_max"),
        )
    )
    return windows.select(
        F.lit("topic").alias("kind"),
        F.col("topic").alias("name"),
        F.col("window.start").alias("window_start"),
        F.col("window.end").alias("window_end"),
        "messages",
        "bytes",
        (F.col("messages") / F.lit(window_seconds)).alias("messages_per_second"),
        (F.col("bytes") / F.lit(window_seconds)).alias("bytes_per_second"),
        *(F.col("ages")[position].alias(name) for position, name in enumerate(_PERCENTILES)),
        "age_ms_max",
        F.lit(None).cast("long").alias("lag_messages"),
    )


async def group_rows(bootstrap: str, topics: Collection[str], now_ms: int) -> list[tuple[Any, ...]]:
    """A row for each group that has committed something in one of the topics, with the moment it was asked."""
    rows: list[tuple[Any, ...]] = []
    at = datetime.fromtimestamp(now_ms / 1000, UTC)
    async with Cluster(parse_bootstrap(bootstrap)) as cluster:
        groups = Groups(cluster)
        for listing in await groups.listings():
            committed = await groups.committed(listing.group_id)
            ours = {partition: offset for partition, offset in committed.items() if partition.topic in topics}
            lags = await partition_lags(cluster, ours, (), now_ms) if ours else []
            behind = [lag.messages for lag in lags if lag.messages is not None]
            if behind:
                oldest = max((lag.age_ms for lag in lags if lag.age_ms is not None), default=None)
                rows.append(("group", listing.group_id, None, at, *[None] * 7, oldest, sum(behind)))
    return rows


def as_messages(rows: DataFrame) -> DataFrame:
    """Each row as a JSON message, keyed by what it is about."""
    key = F.concat_ws(":", "kind", "name")
    return rows.select(key.alias("key"), F.to_json(F.struct(*rows.columns)).alias("value"))
