"""`dedupe`: a topic without its repeats, however far apart within the time they are remembered.

Two messages are the same by their key, their value, or a field of a JSON value. The first one goes on as it came. A
message without what it is compared by is never a repeat.

How long a message is remembered counts from the batch that read it, not from the message's own time: by that, Spark
would drop every message older than what is remembered, without a word, and a replay would lose most of what it brings.

Proved by: tests/spark/test_dedupe.py.
"""

from typing import Final

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812

from martlet.base.errors import MartletError
from martlet.spark.pipelines.catalogue import DedupeOptions
from martlet.spark.pipelines.flows import PipelineRun

_WHOLE: Final = ("key", "value")
_FIELD: Final = "$."
_IDENTITY: Final = "_identity"
_READ_AT: Final = "_read_at"


class IdentityError(MartletError):
    """What messages are compared by cannot be understood."""


def check(options: DedupeOptions) -> None:
    if options.by not in _WHOLE and not options.by.startswith(_FIELD):
        raise IdentityError(f"{options.by!r} is nothing to compare by; allowed are key, value, or a field like $.id")


def start(run: PipelineRun, options: DedupeOptions) -> None:
    check(options)
    unique = without_repeats(run.read_stream(options.topic), options.by, options.within_seconds)
    run.write_topic(unique, options.to, name="dedupe")


def without_repeats(messages: DataFrame, by: str, within_seconds: int) -> DataFrame:
    """The first of all messages that are the same."""
    # By the minute, rounded up: whenever this time moves, Spark runs a batch without data to forget what is old.
    minute = F.date_trunc("minute", F.current_timestamp() + F.expr("interval 1 minute"))
    named = messages.withColumn(_IDENTITY, identity(by)).withColumn(_READ_AT, minute)
    remembered = named.withWatermark(_READ_AT, f"{within_seconds} seconds")
    return remembered.dropDuplicatesWithinWatermark([_IDENTITY]).drop(_IDENTITY, _READ_AT)


def identity(by: str) -> Column:
    """What makes a message the one it is, short; its place, if it lacks that."""
    place = F.concat_ws("/", "topic", F.col("partition").cast("string"), F.col("offset").cast("string"))
    what = F.col(by) if by in _WHOLE else F.get_json_object(F.col("value").cast("string"), by).cast("binary")
    return F.coalesce(F.sha2(what, 256), place)
