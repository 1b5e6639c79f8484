"""Spark's own Kafka connector against Martlet: batches, micro-batches and real-time mode, in a session of its own.

Its jars are no part of PySpark: where Maven cannot fetch them, this file is left out (`conftest.py`).
"""

import json
import os
import subprocess
import sys
from collections import Counter
from typing import Any

import pytest
from bench.spark.connector import connector_jars

from tests.spark.conftest import SETTINGS
from tests.spark.topics import Topics

PATIENCE_SECONDS = 300
COUNT = 500

# The session is made of settings, options for topics and checkpoints; what each test does is added.
SESSION = """
import json, sys, time
from pyspark.sql import SparkSession

given = json.loads(sys.argv[1])
builder = SparkSession.builder.master("local[4]")
for name, value in given["settings"].items():
    builder = builder.config(name, value)
spark = builder.getOrCreate()
source, target = given["source"], given["target"]
options = {"kafka.bootstrap.servers": given["bootstrap"], "startingOffsets": "earliest"}


def read(topic):
    return spark.read.format("kafka").options(subscribe=topic, **options).load()


def copy(**trigger):
    stream = spark.readStream.format("kafka").options(subscribe=source, **options).load()
    writer = stream.select("key", "value").writeStream.format("kafka").options(topic=target, **options)
    return writer.option("checkpointLocation", given["checkpoint"]).outputMode("update").trigger(**trigger).start()


"""

BATCH = """
rows = read(source)
rows.select("key", "value").write.format("kafka").options(topic=target, **options).save()
found = [[row.partition, row.offset, bytes(row.value).decode()] for row in rows.collect()]
print(json.dumps(found))
"""

MICRO_BATCHES = """
query = copy(availableNow=True)
query.awaitTermination()
print(json.dumps(sum(progress.numInputRows for progress in query.recentProgress)))
"""

REAL_TIME = """
query = copy(realTime="2 minutes")
while read(target).count() < given["count"] and query.isActive:
    time.sleep(0.5)
print(json.dumps({"active": query.isActive, "batches ended": len(query.recentProgress)}))
query.stop()
"""


class Copying:
    """A filled topic and an empty one, and sessions with the connector to copy one into the other."""

    def __init__(self, topics: Topics, checkpoint: str) -> None:
        self.topics = topics
        self.source, self.target = topics.new(2), topics.new(2)
        topics.fill(self.source, COUNT, partitions=2)
        self._given = {
            "settings": SETTINGS | {"spark.jars": ",".join(map(str, connector_jars()))},
            "bootstrap": topics.bootstrap,
            "source": self.source,
            "target": self.target,
            "checkpoint": checkpoint,
            "count": COUNT,
        }

    def run(self, script: str) -> Any:
        """What the script prints, at the end of a session of its own."""
        done = subprocess.run(
            [sys.executable, "-c", SESSION + script, json.dumps(self._given)],
            capture_output=True,
            text=True,
            timeout=PATIENCE_SECONDS,
            env=os.environ | {"PYSPARK_PYTHON": sys.executable},
        )
        assert done.returncode == 0, done.stderr[-3000:]
        return json.loads(done.stdout.splitlines()[-1])

    def assert_copied_once(self) -> None:
        assert Counter(self.topics.values(self.target)) == Counter(self.topics.values(self.source))


@pytest.fixture
def copying(topics: Topics, checkpoint: str) -> Copying:
    return Copying(topics, checkpoint)


@pytest.mark.timeout(2 * PATIENCE_SECONDS)
def test_the_connector_reads_and_writes_batches(copying: Copying) -> None:
    found = copying.run(BATCH)
    assert sorted(found) == [
        [partition, offset, (message.value or b"").decode()]
        for partition, messages in sorted(copying.topics.contents(copying.source).items())
        for offset, message in enumerate(messages)
    ]
    copying.assert_copied_once()


@pytest.mark.timeout(2 * PATIENCE_SECONDS)
def test_the_connector_copies_a_topic_in_micro_batches(copying: Copying) -> None:
    assert copying.run(MICRO_BATCHES) == COUNT
    copying.assert_copied_once()


@pytest.mark.timeout(2 * PATIENCE_SECONDS)
def test_the_connector_copies_a_topic_in_real_time_mode(copying: Copying) -> None:
    # All of it arrived while the first batch, of two minutes, was still under way.
    assert copying.run(REAL_TIME) == {"active": True, "batches ended": 0}
    copying.assert_copied_once()
