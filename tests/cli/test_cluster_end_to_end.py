"""`martlet cluster` and `martlet partition` against one real broker: what is printed, and how each refusal reads.

What needs several brokers is in `tests/cluster/test_administration.py`.
"""

import json

import pytest

from martlet.testing.running_broker import RunningBroker
from tests.cli.conftest import Martlet
from tests.unit.cli.command_line import martlet as run_martlet


def test_status_shows_the_broker_and_that_all_is_well(broker: RunningBroker, martlet: Martlet) -> None:
    assert martlet("topic", "create", "well", "--partitions", "2").exit_code == 0
    ran = martlet("cluster", "status", "--check")
    assert (ran.exit_code, ran.stderr) == (0, "")
    facts, table = ran.stdout.split("\n\n")
    assert "brokers           1 running" in facts.splitlines()
    assert table.splitlines()[0].split() == [
        *("BROKER", "ADDRESS", "RACK", "STATE", "LEADS", "REPLICAS", "IN", "SYNC", "CONTROLLER"),
    ]
    assert table.splitlines()[1].split()[:4] == ["1", broker.bootstrap_servers, "-", "running"]
    report = json.loads(martlet("cluster", "status", "--json").stdout)
    assert report["problems"] == []
    assert [(one["id"], one["running"], one["draining"]) for one in report["brokers"]] == [(1, True, False)]


def test_partitions_are_listed_by_topic_and_number(martlet: Martlet) -> None:
    assert martlet("topic", "create", "listed", "--partitions", "3").exit_code == 0
    ran = martlet("partition", "list", "listed:0,2")
    assert [line.split() for line in ran.stdout.splitlines()] == [
        ["TOPIC", "PARTITION", "LEADER", "EPOCH", "REPLICAS", "IN", "SYNC", "STATE"],
        ["listed", "0", "1", "0", "1", "1", "ok"],
        ["listed", "2", "1", "0", "1", "1", "ok"],
    ]
    (row,) = json.loads(martlet("partition", "list", "listed:1", "--json").stdout)
    assert row == {
        "topic": "listed",
        "partition": 1,
        "leader": 1,
        "leader_epoch": 0,
        "replicas": [1],
        "in_sync": [1],
        "offline": [],
        "problem": None,
        "moving_to": None,
    }
    for option in ("--problems", "--moving"):
        ran = martlet("partition", "list", option)
        assert (ran.exit_code, ran.stdout, ran.stderr) == (0, "", "no partition is like that\n")


@pytest.mark.parametrize(
    ("arguments", "exit_code", "sentence"),
    [
        (["partition", "list", "nobody"], 3, "there is no topic 'nobody'"),
        (["partition", "list", "refusals:7"], 3, "has no partition 7; it has 1"),
        (["partition", "move", "nobody", "--to", "1"], 3, "there is no topic 'nobody'"),
        (["partition", "move", "refusals", "--to", "2"], 3, "there is no broker 2; the only one is 1"),
        (["partition", "move", "refusals", "--replicas", "1,2"], 3, "there is no broker 2"),
        (["partition", "move", "refusals", "--replication", "2"], 2, "2 replicas need as many brokers, and 1 can take"),
        (["partition", "move"], 2, "say which partitions"),
        (["partition", "move", "refusals", "--all-topics"], 2, "say which partitions"),
        (["partition", "move", "refusals", "--to", "1,x"], 2, "is not a list of broker numbers"),
        (["partition", "move", "refusals", "--to", "1,1"], 2, "names a broker twice"),
        (["partition", "move", "refusals", "--replicas", "1", "--to", "1"], 2, "--replicas says everything"),
        (["partition", "move", "refusals", "--cancel", "--to", "1"], 2, "--cancel goes with a selection only"),
        (["partition", "elect"], 2, "say which partitions"),
        (["partition", "elect", "refusals", "--unclean"], 2, "not a terminal: use --yes, which goes on"),
        (["cluster", "drain", "1"], 5, "no other broker could take them"),
        (["cluster", "drain", "7"], 3, "there is no broker 7"),
        (["cluster", "drain", "one"], 2, "is not the number of a broker"),
        (["cluster", "undrain", "7"], 3, "there is no broker 7"),
        (["cluster", "remove", "7", "--yes"], 3, "there is no broker 7"),
        (["cluster", "remove", "7"], 2, "not a terminal: use --yes, which goes on"),
        (["cluster", "remove", "1", "--yes"], 5, "drain it first"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_a_refusal_says_why(martlet: Martlet, arguments: list[str], exit_code: int, sentence: str) -> None:
    martlet("topic", "create", "refusals", "--if-not-exists")
    ran = martlet(*arguments)
    assert (ran.exit_code, ran.stdout) == (exit_code, "")
    assert sentence in ran.stderr


def test_what_is_so_already_needs_nothing(martlet: Martlet) -> None:
    assert martlet("topic", "create", "settled", "--partitions", "2", "--replication", "1").exit_code == 0
    assert (
        martlet("partition", "move", "settled", "--to", "1").stderr == "nothing to do: 2 partitions as wished already\n"
    )
    dry = martlet("partition", "move", "settled", "--dry-run")
    assert (dry.exit_code, dry.stdout, dry.stderr) == (0, "", "nothing was changed: 0 of 2 partitions to move\n")
    assert martlet("partition", "move", "settled", "--cancel").stderr == "none of these is moving\n"
    elected = martlet("partition", "elect", "settled", "--json")
    assert json.loads(elected.stdout) == {"elected": [], "unneeded": 2, "refused": []}
    assert martlet("cluster", "undrain", "1").stderr == "broker 1 takes partitions again\n"


def test_a_no_to_the_question_changes_nothing(martlet: Martlet) -> None:
    for arguments, answer in (
        (["cluster", "remove", "1"], "nothing was removed"),
        (["partition", "elect", "--all-topics", "--unclean"], "no leader was elected"),
    ):
        ran = martlet(*arguments, stdin=b"n\n")
        assert ran.exit_code == 1
        assert f"error: {answer}" in ran.stderr


def test_an_empty_broker_is_drained_at_once() -> None:
    with RunningBroker() as alone:
        environment = {"MARTLET_BOOTSTRAP": alone.bootstrap_servers}
        ran = run_martlet("cluster", "drain", "1", environment=environment)
        assert ran.stderr == "broker 1 is empty: stop it, then `martlet cluster remove 1`\n"
        assert "running, drained" in run_martlet("cluster", "status", environment=environment).stdout
        refused = run_martlet("cluster", "remove", "1", "--yes", environment=environment)
        assert (refused.exit_code, "broker 1 is running: stop it first" in refused.stderr) == (5, True)
