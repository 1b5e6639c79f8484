"""`mirror`: topics of one cluster into another, with keys, headers and times, under the same names or with a prefix.

At least once: after a failure the batch that was interrupted is published again, to the same partitions. A message that
was mirrored carries a header with the address it came from, and one that carries the target's own address is not sent
back, so two clusters may mirror each other.

Proved by: tests/spark/test_mirror.py.
"""

from typing import Final

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812

from martlet.spark.pipelines.catalogue import MirrorOptions
from martlet.spark.pipelines.run import PipelineRun

ORIGIN: Final = "martlet-mirrored-from"


def start(run: PipelineRun, options: MirrorOptions) -> None:
    keep = ("timestamp", "partition") if options.keep_partitions else ("timestamp",)
    messages = run.read_stream(options.topic)
    copies = mirrored(messages, origin=run.options.bootstrap, target=options.to_bootstrap, prefix=options.prefix)
    run.write_topic(copies, None, name="mirror", bootstrap=options.to_bootstrap, keep=keep)


def mirrored(messages: DataFrame, *, origin: str, target: str, prefix: str = "") -> DataFrame:
    """The messages as the other cluster gets them, without those that came from there."""
    headers = F.coalesce("headers", F.array().cast("array<struct<key:string,value:binary>>"))
    mark = F.struct(F.lit(ORIGIN).alias("key"), F.lit(origin).cast("binary").alias("value"))
    return (
        messages.where(~F.coalesce(F.exists("headers", lambda header: _is_from(header, target)), F.lit(False)))
        .withColumn("headers", F.concat(headers, F.array(mark)))
        .withColumn("topic", F.concat(F.lit(prefix), F.col("topic")))
    )


def _is_from(header: Column, address: str) -> Column:
    return (header["key"] == F.lit(ORIGIN)) & (header["value"] == F.lit(address).cast("binary"))
