"""A Spark Declarative Pipelines project with Martlet as source and sink, by the command line, run twice."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from martlet.testing.running_broker import RunningBroker
from tests.spark.topics import Message, Topics

SPECIFICATION = """
name: orders
storage: {storage}
libraries:
  - glob:
      include: transformations/**
"""
TRANSFORMATION = """
from pyspark import pipelines as dp
from pyspark.sql import SparkSession

spark = SparkSession.active()
BROKER = {{"kafka.bootstrap.servers": "{bootstrap}"}}

@dp.table
def orders():
    options = BROKER | {{"subscribe": "{source}", "startingOffsets": "earliest"}}
    return spark.readStream.format("martlet").options(**options).load()

dp.create_sink("long", "martlet", BROKER | {{"topic": "{target}"}})

@dp.append_flow(target="long")
def long_orders():
    return spark.readStream.table("orders").where("length(value) > 3").select("key", "value")
"""


def run(project: Path, state: Path) -> list[dict[str, Any]]:
    """`martlet pipeline run PROJECT`; its statuses."""
    command = [sys.executable, "-c", "from martlet.cli.main import main; main()", "pipeline", "run", f"{project}/"]
    ran = subprocess.run(
        [*command, "--state", str(state), "--json", "--conf", "spark.driver.memory=768m", "--master", "local[2]"],
        env=os.environ,
        capture_output=True,
        text=True,
        timeout=280,
    )
    log = state / project.name / "spark.log"
    assert ran.returncode == 0, ran.stderr + log.read_text("utf-8")[-3000:]
    return [json.loads(line) for line in ran.stdout.splitlines()]


@pytest.mark.timeout(580)
def test_a_declarative_project_reads_and_writes_topics_and_its_second_run_only_takes_what_is_new(
    broker: RunningBroker, topics: Topics, tmp_path: Path
) -> None:
    source, target = topics.new(), topics.new()
    project = tmp_path / "project"
    (project / "transformations").mkdir(parents=True)
    (project / "spark-pipeline.yml").write_text(SPECIFICATION.format(storage=(tmp_path / "storage").as_uri()), "utf-8")
    text = TRANSFORMATION.format(bootstrap=broker.bootstrap_servers, source=source, target=target)
    (project / "transformations" / "orders.py").write_text(text, "utf-8")
    topics.publish(source, [Message(b"a"), Message(b"first", b"k")])
    statuses = run(project, tmp_path / "state")
    assert [status["state"] for status in statuses] == ["running", "finished"]
    topics.publish(source, [Message(b"second")])
    run(project, tmp_path / "state")
    assert topics.values(target) == [b"first", b"second"]
