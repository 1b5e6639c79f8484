"""What `martlet pipeline run` refuses before Spark is started, each with the exit code it has everywhere."""

import json
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from martlet.testing.running_broker import RunningBroker
from tests.unit.cli.command_line import Ran, martlet

FLOW = """
from martlet.spark.pipelines import flow

raise RuntimeError("a file is not run to be checked")

@flow(reads="{topic}", writes="large")
def large(orders, limit=1000.0):
    return orders
"""


@pytest.fixture(scope="module")
def address() -> Iterator[str]:
    with RunningBroker() as running:
        assert martlet("topic", "create", "orders", "--bootstrap", running.bootstrap_servers).exit_code == 0
        yield running.bootstrap_servers


@pytest.fixture
def run(address: str, tmp_path: Path) -> Iterator["Pipelines"]:
    pipelines = Pipelines(address, tmp_path)
    yield pipelines
    assert not (tmp_path / "state").exists(), "what is refused leaves no trace"


class Pipelines:
    """`martlet pipeline run` with its state in one folder."""

    def __init__(self, address: str, folder: Path) -> None:
        self.folder = folder
        self._address = address

    def __call__(self, *arguments: str, **environment: str) -> Ran:
        options = ["--state", str(self.folder / "state"), "--timeout", "2"]
        if "--bootstrap" not in arguments:
            options += ["--bootstrap", self._address]
        return martlet("pipeline", "run", *arguments, *options, environment=environment)


def test_a_topic_that_is_not_there_is_named_with_the_nearest(run: Pipelines) -> None:
    refused = run("archive", "--topic", "orders,order", "--to", "lake")
    assert (refused.exit_code, "there is no topic 'order'\n hint: did you mean 'orders'?" in refused.stderr) == (
        3,
        True,
    )


def test_the_topics_of_a_file_are_looked_for_without_running_it(run: Pipelines) -> None:
    (run.folder / "a.py").write_text(FLOW.format(topic="order"))
    refused = run(str(run.folder / "a.py"))
    assert (refused.exit_code, "there is no topic 'order'" in refused.stderr) == (3, True)


def test_a_parameter_that_no_flow_has_is_refused_with_the_nearest(run: Pipelines) -> None:
    (run.folder / "a.py").write_text(FLOW.format(topic="orders"))
    refused = run(str(run.folder / "a.py"), "--set", "limits=5")
    assert (refused.exit_code, "did you mean 'limit'" in refused.stderr) == (2, True)
    refused = run(str(run.folder / "a.py"), "--set", "limit=many")
    assert (refused.exit_code, "limit must be a number like 1000.0, not 'many'" in refused.stderr) == (2, True)


@pytest.mark.parametrize(
    ("command", "words"),
    [
        (("quality", "--topic", "orders", "--to", "a", "--columns", "id long", "--rule", "?"), "'?' is not NAME="),
        (("dedupe", "--topic", "orders", "--to", "a", "--by", "id"), "allowed are key, value, or a field like $.id"),
        (("replay", "--archive", "nowhere", "--to", "a"), "nowhere is no archive"),
        (("replay", "--archive", "nowhere", "--to", "a", "--since", "noon"), "'noon' is no time"),
        (("archive", "--topic", "orders", "--to", "a", "--master", "sparc://a:1"), "'sparc://a:1' is no master"),
        (("archive", "--topic", "orders", "--to", "a", "--name", "a/b"), "'a/b' cannot name a pipeline"),
    ],
)
def test_an_option_that_cannot_work_is_a_wrong_command_line(
    run: Pipelines, command: tuple[str, ...], words: str
) -> None:
    refused = run(*command)
    assert (refused.exit_code, words in refused.stderr) == (2, True), refused.stderr


def test_a_machine_without_java_is_told_what_to_install(run: Pipelines, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("JAVA_HOME", raising=False)
    refused = run("archive", "--topic", "orders", "--to", "a", PATH="/nowhere")
    assert (refused.exit_code, "install Java 17 or newer" in refused.stderr) == (2, True)


def test_brokers_that_do_not_answer_are_not_reachable(run: Pipelines) -> None:
    refused = run("archive", "--topic", "orders", "--to", "a", "--bootstrap", "127.0.0.1:1")
    assert (refused.exit_code, "127.0.0.1:1" in refused.stderr) == (6, True)


def test_an_interpreter_that_cannot_serve_is_named_with_the_variable(run: Pipelines) -> None:
    bare = run.folder / "python3"
    version = json.dumps(".".join(map(str, sys.version_info[:2])))
    bare.write_text(f"#!/bin/sh\necho {version}\necho \"No module named 'martlet'\" >&2\nexit 1\n")
    bare.chmod(0o755)
    refused = run("archive", "--topic", "orders", "--to", "a", PYSPARK_PYTHON=str(bare))
    assert refused.exit_code == 2
    assert f"with {bare}, which does not have what is needed (No module named 'martlet')" in refused.stderr
    assert f"set PYSPARK_PYTHON={sys.executable}" in refused.stderr
