"""How Spark comes to know the format: by itself, from any session, without importing Martlet before it is needed."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.spark import class_archive
from tests.spark.topics import Topics

NOTHING_OF_OURS = """
import sys
import pyspark_martlet
ours = [name for name in sys.modules if name == "martlet" or name.startswith("martlet.")]
print(len(ours), pyspark_martlet.DefaultSource.name())
"""

ON_A_CLUSTER = """
import json, sys
from pyspark.sql import SparkSession

bootstrap, source, target, checkpoint = sys.argv[1:]
spark = (
    SparkSession.builder.master("local-cluster[2,1,600]")
    .config("spark.ui.enabled", "false")
    .config("spark.driver.host", "127.0.0.1")
    .config("spark.driver.bindAddress", "127.0.0.1")
    .config("spark.executor.memory", "512m")
    .config("spark.log.level", "ERROR")
    .getOrCreate()
)
stream = (
    spark.readStream.format("martlet")
    .options(**{"kafka.bootstrap.servers": bootstrap, "subscribe": source, "startingOffsets": "earliest"})
    .option("minPartitions", 4)
    .load()
)
query = (
    stream.select("key", "value")
    .writeStream.format("martlet")
    .options(**{"kafka.bootstrap.servers": bootstrap, "topic": target, "checkpointLocation": checkpoint})
    .trigger(availableNow=True)
    .start()
)
query.awaitTermination()
back = spark.read.format("martlet").options(**{"kafka.bootstrap.servers": bootstrap, "subscribe": target}).load()
executors = spark.sparkContext._jsc.sc().getExecutorMemoryStatus().size() - 1
print(json.dumps({"rows": back.count(), "executors": executors}))
spark.stop()
"""


def test_the_shim_imports_nothing_of_martlet() -> None:
    answer = subprocess.run([sys.executable, "-c", NOTHING_OF_OURS], capture_output=True, text=True, check=True)
    assert answer.stdout.split() == ["0", "martlet"]


@pytest.mark.timeout(400)
def test_an_ordinary_session_on_a_cluster_finds_the_format_by_itself(topics: Topics, tmp_path: Path) -> None:
    """Two executors in processes of their own, no registration, none of our settings."""
    source, target = topics.new(2), topics.new(2)
    topics.fill(source, 1000, partitions=2)
    script = tmp_path / "job.py"
    script.write_text(ON_A_CLUSTER)
    answer = subprocess.run(
        [sys.executable, str(script), topics.bootstrap, source, target, str(tmp_path / "checkpoint")],
        capture_output=True,
        text=True,
        env={
            "PATH": "/usr/bin:/bin",
            "PYSPARK_PYTHON": sys.executable,
            "LANG": "C.UTF-8",
            class_archive.VARIABLE: class_archive.java_options(),
        },
        timeout=300,
        check=False,
    )
    assert answer.returncode == 0, answer.stderr[:3000]
    assert json.loads(answer.stdout.splitlines()[-1]) == {"rows": 1000, "executors": 2}
    assert sorted(topics.values(target), key=str) == sorted(topics.values(source), key=str)
