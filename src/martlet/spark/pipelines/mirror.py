"""`mirror`: topics of one cluster into another, with keys, headers and times, under the same names or with a prefix.

At least once: after a failure the batch that was interrupted is published again, to the same partitions. A message that
was mirrored carries a header with the id of the cluster it came from, and one that carries the target's own id is not
sent back, so two clusters may mirror each other. Ids and not addresses, of which a cluster has many.

Proved by: tests/spark/test_mirror.py.
"""

import asyncio
from typing import Final

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812

from martlet.base.addresses import parse_bootstrap
from martlet.base.errors import MartletError
from martlet.client.cluster import Cluster
from martlet.spark.pipelines.catalogue import MirrorOptions
from martlet.spark.pipelines.flows import PipelineRun

ORIGIN: Final = "martlet-mirrored-from"


class MirrorError(MartletError):
    """These two clusters cannot be mirrored as asked."""


def start(run: PipelineRun, options: MirrorOptions) -> None:
    keep = ("timestamp", "partition") if options.keep_partitions else ("timestamp",)
    origin, target = (asyncio.run(cluster_id(place)) for place in (run.options.bootstrap, options.to_bootstrap))
    if origin == target and not options.prefix:
        raise MirrorError(
            f"{run.options.bootstrap} and {options.to_bootstrap} are the same cluster; give a --prefix for the names "
            "of the copies, or the address of another cluster"
        )
    messages = run.read_stream(options.topic)
    copies = mirrored(messages, origin=origin, target=target, prefix=options.prefix)
    run.write_topic(copies, None, name="mirror", bootstrap=options.to_bootstrap, keep=keep)


async def cluster_id(bootstrap: str) -> str:
    """By what a cluster is known, whichever of its addresses is used."""
    async with Cluster(parse_bootstrap(bootstrap)) as cluster:
        if cluster.metadata.cluster_id is None:
            raise MirrorError(f"the cluster at {bootstrap} does not tell its id, without which copies cannot be known")
        return cluster.metadata.cluster_id


def mirrored(messages: DataFrame, *, origin: str, target: str, prefix: str = "") -> DataFrame:
    """The messages as the other cluster gets them, without those that came from there."""
    headers = F.coalesce("headers", F.array().cast("array<struct<key:string,value:binary>>"))
    mark = F.struct(F.lit(ORIGIN).alias("key"), F.lit(origin).cast("binary").alias("value"))
    return (
        messages.where(~F.coalesce(F.exists("headers", lambda header: _is_from(header, target)), F.lit(False)))
        .withColumn("headers", F.concat(headers, F.array(mark)))
        .withColumn("topic", F.concat(F.lit(prefix), F.col("topic")))
    )


def _is_from(header: Column, cluster: str) -> Column:
    return (header["key"] == F.lit(ORIGIN)) & (header["value"] == F.lit(cluster).cast("binary"))
