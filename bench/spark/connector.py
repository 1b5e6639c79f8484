"""Spark's own Kafka connector, which PySpark does not bring: its jars, fetched once by Maven into the cache.

`python -m bench.spark.connector` fetches them, or says why not. `./dev test` does so before its processes begin, which
then look at the cache only: all must find the same.

They are named one by one: what they depend on is in PySpark, but for the client. There is none of every Spark version
everywhere, so the newest that can be had stands beside a Spark that may be newer.
"""

from pathlib import Path
from typing import Final

from bench.peers.systems.cache import Missing, maven_jars
from bench.report import say

VERSION: Final = "4.2.0"
_JARS: Final = (
    ("org.apache.spark", "spark-sql-kafka-0-10_2.13", VERSION),
    ("org.apache.spark", "spark-token-provider-kafka-0-10_2.13", "4.0.0"),
    ("org.apache.kafka", "kafka-clients", "3.9.2"),
    ("org.apache.commons", "commons-pool2", "2.13.1"),
)


def connector_jars(*, may_fetch: bool = True) -> list[Path]:
    """The jars for `spark.jars`; raises Missing."""
    return sorted(maven_jars(f"spark-kafka-{VERSION}", _JARS, alone=True, may_fetch=may_fetch).glob("*.jar"))


if __name__ == "__main__":
    try:
        connector_jars()
    except Missing as missing:
        say(f"The tests of Spark's Kafka connector are left out: {missing}")
