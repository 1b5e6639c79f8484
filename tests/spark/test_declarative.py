"""The declarative project of docs/pipelines.md as it is printed there, by the command line, run twice.

Only the address and the place of its storage differ.
"""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from martlet.testing.running_broker import RunningBroker
from tests.documented_code import code_blocks
from tests.spark.topics import Message, Topics


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
    topics.new(name="orders")
    topics.new(name="large-orders")
    specification, transformation = _documented(broker.bootstrap_servers, (tmp_path / "storage").as_uri())
    project = tmp_path / "my-project"
    (project / "transformations").mkdir(parents=True)
    (project / "spark-pipeline.yml").write_text(specification, "utf-8")
    (project / "transformations" / "orders.py").write_text(transformation, "utf-8")
    large = [bytes([kind]) * 1001 for kind in b"ab"]
    topics.publish("orders", [Message(b"small"), Message(large[0], b"k")])
    statuses = run(project, tmp_path / "state")
    assert [status["state"] for status in statuses] == ["running", "finished"]
    topics.publish("orders", [Message(large[1])])
    run(project, tmp_path / "state")
    assert topics.values("large-orders") == large


def _documented(address: str, storage: str) -> tuple[str, str]:
    """The two files of the project."""
    blocks = [block for block in code_blocks("docs/pipelines.md") if block.language in ("yaml", "python")]
    first = next(index for index, block in enumerate(blocks) if block.language == "yaml")
    specification, transformation = (block.text for block in blocks[first : first + 2])
    return (
        specification.replace("file:///srv/my-project", storage),
        transformation.replace("127.0.0.1:9092", address),
    )
