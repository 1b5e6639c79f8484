"""`replay`: messages of an archive back into a topic, by time and filter, with their keys and headers.

The archive is read by its log, so a replay sees whole batches only, also while the archive grows. Messages of one
partition are published in their order. At least once: a replay that failed and is run again publishes from its start.

Proved by: tests/spark/test_replay.py.
"""

from datetime import UTC, datetime

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812

from martlet.spark.pipelines.archive import DATE
from martlet.spark.pipelines.catalogue import ReplayOptions
from martlet.spark.pipelines.flows import PipelineRun
from martlet.spark.pipelines.lake.layouts import layout_of, open_table
from martlet.spark.pipelines.lake.table import LakeError


def check(options: ReplayOptions) -> None:
    _moment(options.since)
    _moment(options.until)
    _layout(options.archive)


def start(run: PipelineRun, options: ReplayOptions) -> None:
    since, until = _moment(options.since), _moment(options.until)
    keep = ("partition",) * options.keep_partitions + ("timestamp",) * options.keep_time

    def work() -> int:
        messages = read_archive(run.spark, options.archive, since=since, until=until)
        chosen = in_order(select_messages(messages, options, since=since, until=until)).persist()
        try:
            count = chosen.count()
            run.publish_batch(chosen, options.to, keep=keep)
        finally:
            chosen.unpersist()
        return count

    run.do_batch(work, name="replay")


def read_archive(
    spark: SparkSession, path: str, *, since: datetime | None = None, until: datetime | None = None
) -> DataFrame:
    """An archive as it is now; only the files of days between the two moments are opened."""
    table = open_table(path, _layout(path))
    days = [file for file in table.files() if _may_hold(file.partition.get(DATE), since, until)]
    if not days:
        raise LakeError(f"the archive {path} has no messages of that time")
    return spark.read.parquet(*(table.location(file) for file in days))


def _layout(path: str) -> str:
    layout = layout_of(path)
    if layout is None:
        raise LakeError(f"{path} is no archive; `martlet pipeline run archive --to {path} …` makes one")
    return layout


def _may_hold(day: str | None, since: datetime | None, until: datetime | None) -> bool:
    """Whether a day can have messages between the moments; rows without a day are looked at one by one."""
    if day is None:
        return True
    return (since is None or day >= f"{since:%Y-%m-%d}") and (until is None or day <= f"{until:%Y-%m-%d}")


def select_messages(
    messages: DataFrame, options: ReplayOptions, *, since: datetime | None, until: datetime | None
) -> DataFrame:
    """The messages asked for: from `since` on, before `until`, of the topic, and as the filter says."""
    if options.topic:
        messages = messages.where(F.col("topic") == options.topic)
    if since is not None:
        messages = messages.where(F.col("timestamp") >= F.lit(since))
    if until is not None:
        messages = messages.where(F.col("timestamp") < F.lit(until))
    return messages.where(options.where) if options.where else messages


def in_order(messages: DataFrame) -> DataFrame:
    """All messages of one partition in one task, in their order."""
    return messages.repartition("topic", "partition").sortWithinPartitions("topic", "partition", "offset")


def _moment(text: str) -> datetime | None:
    """A time as people write it; without a zone it is UTC, as the archive's days are."""
    if not text:
        return None
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        raise LakeError(f"{text!r} is no time; write it like 2026-11-01T08:00Z") from None
    return moment.replace(tzinfo=UTC) if moment.tzinfo is None else moment.astimezone(UTC)
