"""Pipelines by their command line on a Spark standalone cluster: a master and two workers, each a process of its own.

Nothing of a pipeline is changed for it but `--master`. The executors' Python has nothing but what is sent to them.
"""

import json
import os
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from bench.spark.cluster import SparkCluster

from martlet.spark.pipelines.lake.layouts import open_table
from martlet.spark.pipelines.shipping import FOLDER
from martlet.testing.running_broker import RunningBroker
from tests.spark.test_archive import two_days
from tests.spark.test_fraud import alerts, payment
from tests.spark.topics import Message, Topics

FLOW = """
from pyspark.sql.functions import udf
from martlet.spark.pipelines import flow

@udf("string")
def place(_value):
    import martlet
    return martlet.__file__

@flow(reads="{source}", writes="{target}")
def where(messages):
    return messages.withColumn("value", place("value"))
"""
RUN_SECONDS = 480

pytestmark = pytest.mark.timeout(RUN_SECONDS + 120)


class Cluster:
    """The command line with a cluster as its master."""

    def __init__(self, url: str, bootstrap: str, folder: Path) -> None:
        self._url = url
        self._bootstrap = bootstrap
        self.folder = folder

    def finish(self, *pipeline: str) -> None:
        """Run until all that is there is processed; fails unless it finishes."""
        settings = {"spark.driver.memory": "512m", "spark.executor.memory": "600m", "spark.sql.shuffle.partitions": "2"}
        confs = [part for name, value in settings.items() for part in ("--conf", f"{name}={value}")]
        command = [sys.executable, "-c", "from martlet.cli.main import main; main()", "pipeline", "run", *pipeline]
        ran = subprocess.run(
            [*command, "--until-end", "--state", "state", "--master", self._url, "--json", *confs],
            cwd=self.folder,
            env=os.environ
            | {
                "MARTLET_BOOTSTRAP": self._bootstrap,
                "PYSPARK_PYTHON": os.path.realpath(sys.executable),
                "SPARK_LOCAL_IP": "127.0.0.1",
            },
            capture_output=True,
            text=True,
            timeout=RUN_SECONDS,
        )
        assert ran.returncode == 0, ran.stderr
        assert json.loads(ran.stdout.splitlines()[-1])["master"] == self._url


@pytest.fixture(scope="module")
def cluster(broker: RunningBroker, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    folder = tmp_path_factory.mktemp("standalone")
    with SparkCluster(folder / "spark") as spark:
        yield Cluster(spark.url, broker.bootstrap_servers, folder)


def test_executors_elsewhere_get_the_packages_with_the_pipeline(cluster: Cluster, topics: Topics) -> None:
    source, target = topics.new(partitions=2), topics.new()
    topics.fill(source, 20, partitions=2)
    (cluster.folder / "where.py").write_text(FLOW.format(source=source, target=target), "utf-8")
    cluster.finish("where.py")
    places = [(value or b"").decode() for value in topics.values(target)]
    assert len(places) == 20
    assert all(f"/{FOLDER}/martlet/__init__.py" in place for place in places)
    assert {place.partition("/app-")[0] for place in places} <= {
        str(cluster.folder / "spark" / f"work-{number}") for number in range(2)
    }


@pytest.mark.parametrize("layout", ["parquet", "delta"])
def test_an_archive_made_on_a_cluster_holds_each_message_once(cluster: Cluster, topics: Topics, layout: str) -> None:
    # The messages are older than a topic keeps them by default.
    topic = topics.new(partitions=2, configs={"retention.ms": "-1"})
    messages = two_days(500)
    topics.publish(topic, messages)
    path = cluster.folder / f"archive-{layout}"
    options = ("--topic", topic, "--to", path.name, "--layout", layout, "--name", f"archive-{layout}")
    cluster.finish("archive", *options, "--messages-per-batch", "200")
    table = open_table(str(path), layout)
    found: Counter[tuple[object, ...]] = Counter()
    for file in table.files():
        rows = pq.read_table(table.location(file), partitioning=None)
        columns = [rows[name].to_pylist() for name in ("partition", "key", "value")]
        found.update((file.partition["date"], *row) for row in zip(*columns, strict=True))
    assert found == Counter(
        (f"2026-03-0{1 + message.partition}", message.partition, message.key, message.value) for message in messages
    )


def test_a_stateful_pipeline_on_a_cluster_finds_what_the_rules_say(cluster: Cluster, topics: Topics) -> None:
    topic, found = topics.new(partitions=2), topics.new()
    calm = [payment(n, f"calm-{n % 20}", 20.0 + n % 7, n * 5) for n in range(100)]
    burst = [payment(200 + n, "burst", 5.0, 100 + n) for n in range(6)]
    topics.publish(topic, [*calm, *burst, payment(300, "large", 9_000.0, 10)])
    options = ("--topic", topic, "--to", found, "--messages-per-batch", "60")
    cluster.finish("fraud", *options)
    assert alerts(topics, found) == [("amount", "large", "p300"), ("velocity", "burst", "p204")]
    # What a card usually pays is remembered by the cluster's checkpoint.
    topics.publish(topic, [payment(400, "calm-3", 900.0, 600), Message(b"garbage", b"?")])
    cluster.finish("fraud", *options)
    kinds = Counter(rule for rule, _, _ in alerts(topics, found))
    assert kinds == {"amount": 1, "velocity": 1, "unusual": 1, "unreadable": 1}
