"""What a newcomer to Spark types: every block of docs/pipelines.md, and the README's, as they are printed there.

Only addresses and places differ, since a test takes any free port and writes nowhere but in its own folder. Pipelines
that would run until they are stopped get `--until-end`; one is stopped as the document says. The declarative project
is run by test_declarative.py.
"""

import json
import os
import shlex
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from martlet.testing.running_broker import RunningBroker
from tests.documented_code import code_blocks
from tests.spark.test_fraud import payment
from tests.spark.topics import Message, Topics

DOCUMENT = "docs/pipelines.md"
ADDRESS = "127.0.0.1:9092"
HALF_PAST_EIGHT_MS = 1_793_521_800_000
"""2026-11-01T08:30Z, within the span that the document replays."""
SETTINGS = ("spark.driver.memory=768m", "spark.sql.shuffle.partitions=2")
IN_ONE_PROCESS = """
import json, sys
from martlet.cli.main import run
for line in json.loads(sys.argv[1]):
    print(json.dumps([line[2], run(line)]), flush=True)
"""

pytestmark = pytest.mark.timeout(400)


class Newcomer:
    """Types in a folder of its own, with `martlet` on PATH."""

    def __init__(self, bootstrap: str, folder: Path) -> None:
        self.folder = folder
        self._bootstrap = bootstrap
        programs = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
        self._environment = os.environ | {"PATH": programs, "MARTLET_BOOTSTRAP": bootstrap}

    def types(self, *command: str, exit_code: int = 0) -> str:
        ran = subprocess.run(
            command, cwd=self.folder, env=self._environment, capture_output=True, text=True, timeout=380
        )
        assert ran.returncode == exit_code, ran.stderr[-3000:]
        return ran.stdout

    def starts(self, command: str) -> "subprocess.Popen[bytes]":
        with open(self.folder / "output", "wb") as output:
            return subprocess.Popen(
                shlex.split(command), cwd=self.folder, env=self._environment, stdout=output, stderr=output
            )

    def here(self, text: str) -> str:
        """A block of the document, with this test's address."""
        return text.replace(ADDRESS, self._bootstrap)


@pytest.fixture(scope="module")
def newcomer(broker: RunningBroker, topics: Topics, tmp_path_factory: pytest.TempPathFactory) -> Newcomer:
    for name in ("orders", "refunds", "accounts"):
        topics.new(name=name, configs={"retention.ms": "-1"})
    topics.new(name="payments", partitions=2, configs={"retention.ms": "-1"})
    orders = [json.dumps({"id": number, "amount": number * 100.0}).encode() for number in range(1, 11)]
    topics.publish("orders", [Message(value, b"customer", timestamp_ms=HALF_PAST_EIGHT_MS) for value in orders])
    topics.publish("orders", [Message(orders[0], b"customer", timestamp_ms=HALF_PAST_EIGHT_MS)])
    topics.publish("refunds", [Message(b'{"id": 1}')])
    topics.publish("accounts", [Message(b'{"id": 1, "name": "ada", "balance": 7.5}', b"1")])
    topics.publish("payments", [payment(1, "card", 9_000.0, 0)])
    return Newcomer(broker.bootstrap_servers, tmp_path_factory.mktemp("newcomer"))


def test_the_examples_of_reading_streaming_and_writing_run_as_printed(newcomer: Newcomer, topics: Topics) -> None:
    readme = [block.text for block in code_blocks("README.md") if "start_session" in block.text]
    examples = [block.text for block in code_blocks(DOCUMENT) if block.language == "python" and "@" not in block.text]
    assert (len(readme), len(examples)) == (1, 4)
    script = "\n".join([*readme, *examples, "query.awaitTermination()", 'print(spark.read.parquet("orders").count())'])
    printed = newcomer.types(sys.executable, "-c", newcomer.here(script))
    assert printed.count("customer|") == 22, "the README's table and the document's"
    assert printed.splitlines()[-1] == "11"
    assert sorted(topics.values("results"), key=str) == [b'{"id":0}', b'{"id":1}', b'{"id":2}']


def test_a_pipeline_is_listed_run_looked_at_and_stopped_as_printed(newcomer: Newcomer) -> None:
    listed, run, status, stop = _command_lines()[0]
    assert "archive" in newcomer.types(*shlex.split(listed))
    process = newcomer.starts(run)
    deadline = time.monotonic() + 120
    while _rows(newcomer) < 11:
        assert process.poll() is None, (newcomer.folder / "output").read_text("utf-8")
        assert time.monotonic() < deadline
        time.sleep(0.2)
    assert "state       running" in newcomer.types(*shlex.split(status))
    assert process.poll() is None
    newcomer.types(*shlex.split(stop))
    assert process.wait(10) == 0
    assert list((newcomer.folder / "archive").glob("date=2026-11-01/*.parquet"))


def test_every_ready_pipeline_and_ones_own_run_as_printed(
    newcomer: Newcomer, broker: RunningBroker, topics: Topics
) -> None:
    file = next(block.text for block in code_blocks(DOCUMENT) if "@flow" in block.text)
    (newcomer.folder / "orders.py").write_text(file, "utf-8")
    ready, own, production = (lines for lines in _command_lines()[1:] if "my-project/" not in lines[0])
    places = {"other:9092": broker.bootstrap_servers, "/shared/": f"{newcomer.folder}/shared/"}
    masters = {"spark://master:7077": "local[2]"}
    typed = []
    for line in (*ready, *own, *production):
        for there, here in (places | masters).items():
            line = line.replace(there, here)
        ends = [] if " replay " in line else ["--until-end"]
        confs = [part for setting in SETTINGS for part in ("--conf", setting)]
        typed.append([*shlex.split(line)[1:], *ends, *confs])
    printed = newcomer.types(sys.executable, "-c", IN_ONE_PROCESS, json.dumps(typed))
    outcomes = [json.loads(line) for line in printed.splitlines() if line.startswith("[")]
    names = ["archive", "replay", "quality", "metrics", "cdc", "mirror", "dedupe", "fraud", "orders.py", "archive"]
    assert outcomes == [[name, 0] for name in names]
    found = {name: len(topics.values(name)) for name in ("orders-again", "orders-clean", "orders-once", "here.orders")}
    assert found == {"orders-again": 11, "orders-clean": 11, "orders-once": 10, "here.orders": 11}
    assert len(topics.values("large-orders")) == 5
    assert len(topics.values("fraud-alerts")) == 1
    for table in ("lake/orders/_delta_log", "lake/accounts", "lake/metrics", "lake/by-hour", "shared/lake/orders"):
        assert (newcomer.folder / table).is_dir()


def _command_lines() -> list[list[str]]:
    """The blocks of the document that hold commands, each as its lines."""
    return [block.text.splitlines() for block in code_blocks(DOCUMENT) if block.text.startswith("martlet ")]


def _rows(newcomer: Newcomer) -> int:
    status = newcomer.folder / "martlet-pipelines" / "archive" / "status.json"
    if not status.exists():
        return 0
    data: dict[str, Any] = json.loads(status.read_text("utf-8"))
    return sum(flow["rows"] for flow in data["flows"])
