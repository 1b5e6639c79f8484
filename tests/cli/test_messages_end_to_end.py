"""Topics and messages through the real command and a real broker."""

import json
import re
from pathlib import Path

import pytest

from tests.cli.conftest import Martlet


def test_a_topic_lives_from_create_to_delete(martlet: Martlet) -> None:
    assert martlet("topic", "create", "life", "--partitions", "2", "--set", "retention.ms=60000") == (
        0,
        "",
        "created life: 2 partitions, 1 replica\n",
    )
    listed = martlet("topic", "list").stdout.splitlines()
    assert ["life", "2", "1"] in [line.split() for line in listed]
    described = martlet("topic", "describe", "life").stdout
    assert re.search(r"^settings +retention.ms=60000$", described, re.MULTILINE)
    assert martlet(
        "topic", "alter", "life", "--partitions", "3", "--set", "segment.ms=70000", "--unset", "retention.ms"
    ) == (
        0,
        "",
        "changed life: segment.ms=70000, retention.ms back to its default, 3 partitions\n",
    )
    description = json.loads(martlet("topic", "describe", "life", "--json").stdout)
    assert (description["partitions"], description["configs"]) == (3, {"segment.ms": "70000"})
    assert martlet("topic", "delete", "life", "--yes") == (0, "", "deleted life\n")
    assert martlet("topic", "describe", "life").exit_code == 3


def test_creating_twice_is_a_conflict_and_can_be_allowed(martlet: Martlet) -> None:
    assert martlet("topic", "create", "twice").exit_code == 0
    again = martlet("topic", "create", "twice")
    assert again.exit_code == 5
    assert again.stderr.startswith("error: ")
    assert "twice" in again.stderr
    assert "hint: " in again.stderr
    assert martlet("topic", "create", "twice", "--if-not-exists") == (0, "", "twice exists already\n")


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["topic", "create", "bad name"], "bad name"),
        (["topic", "create", "t9", "--replication-factor", "9"], "9"),
        (["topic", "create", "t9", "--set", "no.such=1"], "no.such"),
        (["topic", "create", "t9", "--set", "retention.ms=soon"], "retention.ms"),
    ],
)
def test_what_the_broker_refuses_is_shown_in_its_words(martlet: Martlet, arguments: list[str], sentence: str) -> None:
    ran = martlet(*arguments)
    assert (ran.exit_code, ran.stdout) == (2, "")
    assert ran.stderr.startswith("error: ")
    assert sentence in ran.stderr


def test_messages_go_in_and_come_out_in_order(martlet: Martlet) -> None:
    text = "".join(f"message {number}\n" for number in range(5000))
    ran = martlet("publish", "in-order", "--create", stdin=text.encode())
    assert (ran.exit_code, ran.stdout) == (0, "")
    assert ran.stderr.startswith("created in-order\npublished 5,000 messages to in-order in ")
    assert martlet("consume", "in-order") == (0, text, "")
    assert martlet("consume", "in-order", "--from", "-2").stdout == "message 4998\nmessage 4999\n"
    assert martlet("consume", "in-order", "--from", "4999").stdout == "message 4999\n"
    assert martlet("consume", "in-order", "--count", "2").stdout == "message 0\nmessage 1\n"
    assert martlet("consume", "in-order", "--from", "latest").stdout == ""


@pytest.mark.parametrize("compression", ["none", "gzip", "snappy", "lz4", "zstd"])
@pytest.mark.parametrize("acks", ["all", "1"])
def test_every_compression_and_acknowledgement_arrives(martlet: Martlet, compression: str, acks: str) -> None:
    topic = f"c-{compression}-{acks}"
    text = "".join(f"{number} {'x' * 100}\n" for number in range(500))
    assert (
        martlet(
            "publish", topic, "--create", "--compression", compression, "--acks", acks, stdin=text.encode()
        ).exit_code
        == 0
    )
    assert martlet("consume", topic).stdout == text


def test_unacknowledged_messages_arrive_too(martlet: Martlet) -> None:
    martlet("topic", "create", "fire")
    assert martlet("publish", "fire", "--create", "--acks", "0", stdin=b"a\nb\n").exit_code == 0
    assert martlet("consume", "fire", "--follow", "--count", "2").stdout == "a\nb\n"


def test_keys_headers_and_time_survive_the_round_trip_as_json(martlet: Martlet, tmp_path: Path) -> None:
    martlet("topic", "create", "source", "sink", "--partitions", "3")
    sent = [
        {
            "key": f"k{number}",
            "value": f"v{number} ü",
            "headers": [{"name": "h", "value": "1"}],
            "timestamp_ms": 1000 + number,
        }
        for number in range(50)
    ]
    sent.append({"key": None, "value": None})
    sent.append({"key_base64": "/w==", "value_base64": "/wA="})
    lines = "".join(json.dumps(message) + "\n" for message in sent)
    assert martlet("publish", "source", "--create", "--jsonl", stdin=lines.encode()).exit_code == 0
    first = martlet("consume", "source", "--json").stdout
    (tmp_path / "dump.jsonl").write_text(first)
    assert martlet("publish", "sink", "--create", "--jsonl", "--file", str(tmp_path / "dump.jsonl")).exit_code == 0
    second = martlet("consume", "sink", "--json").stdout
    assert [_without_topic(line) for line in sorted(second.splitlines(), key=_place)] == [
        _without_topic(line) for line in sorted(first.splitlines(), key=_place)
    ]
    assert len(first.splitlines()) == 52


def _place(line: str) -> tuple[int, int]:
    message = json.loads(line)
    return message["partition"], message["offset"]


def _without_topic(line: str) -> dict[str, object]:
    message: dict[str, object] = json.loads(line)
    del message["topic"]
    return message


def test_reading_starts_at_a_time(martlet: Martlet) -> None:
    lines = "".join(json.dumps({"value": str(number), "timestamp_ms": 1_000 * number}) + "\n" for number in range(10))
    martlet("publish", "timed", "--create", "--jsonl", stdin=lines.encode())
    assert martlet("consume", "timed", "--from", "@6500", "--format", "%s@%T ").stdout == "7@7000 8@8000 9@9000 "
    assert martlet("consume", "timed", "--from", "@1970-01-01T00:00:08+00:00").stdout == "8\n9\n"
    assert martlet("consume", "timed", "--from", "@-1h").stdout == ""


def test_formats_print_what_they_say(martlet: Martlet) -> None:
    martlet("publish", "shape", "value", "--create", "--key", "key", "--header", "a=1", "--header", "b=2")
    ran = martlet("consume", "shape", "--format", r"%t|%p|%o|%k|%K|%s|%S|%h|%%\n")
    assert ran.stdout == "shape|0|0|key|3|value|5|a=1,b=2|%\n"


def test_partitions_can_be_chosen_for_writing_and_reading(martlet: Martlet) -> None:
    martlet("topic", "create", "parts", "--partitions", "3")
    for partition in range(3):
        ran = martlet("publish", "parts", f"m{partition}", "--partition", str(partition))
        assert ran.stderr == f"published to parts, partition {partition}, offset 0\n"
    assert martlet("consume", "parts", "--partition", "1").stdout == "m1\n"
    missing = martlet("consume", "parts", "--partition", "9")
    assert (missing.exit_code, missing.stderr.splitlines()[0]) == (
        3,
        "error: topic 'parts' has no partition 9; it has 3, numbered from 0",
    )


def test_a_message_that_is_too_large_names_the_way_out(martlet: Martlet) -> None:
    martlet("topic", "create", "small", "--set", "max.message.bytes=1000")
    ran = martlet("publish", "small", stdin=b"x" * 2000)
    assert ran.exit_code == 1
    assert ran.stderr.startswith("error: 0 messages of 1 published, then: small-0: ")
    assert "hint: allow more with `martlet topic alter TOPIC --set max.message.bytes=N`" in ran.stderr
    # Small messages whose batch would be too large are split until they fit.
    assert martlet("publish", "small", stdin=b"y" * 300 + b"\n" + b"z\n" * 500).exit_code == 0
    assert len(martlet("consume", "small").stdout.splitlines()) == 501


def test_status_cluster_status_and_topic_list_count_alike(martlet: Martlet) -> None:
    martlet("topic", "create", "counted", "--partitions", "3")
    # The first group makes the cluster keep a topic for itself.
    martlet("group", "reset", "counted-group", "--topic", "counted", "--to", "earliest")
    listed = json.loads(martlet("topic", "list", "--json").stdout)
    internal = [row for row in json.loads(martlet("topic", "list", "--internal", "--json").stdout) if row["internal"]]
    assert internal
    for command in (["status"], ["cluster", "status"]):
        report = json.loads(martlet(*command, "--json").stdout)
        assert report["topics"] == len(listed)
        assert report["internal_topics"] == len(internal)
        assert report["partitions"] == sum(row["partitions"] for row in listed)
        assert report["internal_partitions"] == sum(row["partitions"] for row in internal)
        assert f"{len(listed)} and {len(internal)} internal" in martlet(*command).stdout


def test_status_and_settings_come_from_the_broker(martlet: Martlet) -> None:
    report = json.loads(martlet("status", "--json", "--check").stdout)
    assert report["reachable"] is True
    assert report["partitions_without_leader"] == report["partitions_under_replicated"] == 0
    assert [broker["id"] for broker in report["brokers"]] == [1]
    martlet("topic", "create", "set", "--set", "cleanup.policy=compact")
    settings = json.loads(martlet("config", "show", "--topic", "set", "--json").stdout)
    assert (settings["cleanup.policy"]["value"], settings["cleanup.policy"]["origin"]) == ("compact", "topic")
    assert settings["segment.ms"]["origin"] == "default"


def test_publishing_to_a_topic_that_does_not_exist_is_refused_unless_it_is_to_be_made(martlet: Martlet) -> None:
    ran = martlet("publish", "not-yet", "m")
    assert (ran.exit_code, ran.stderr) == (
        3,
        "error: there is no topic 'not-yet'\n hint: `martlet topic create not-yet` makes it, and so does --create\n",
    )
    made = martlet("publish", "not-yet", "m", "--create")
    assert (made.exit_code, made.stderr.splitlines()[0]) == (0, "created not-yet")
    assert martlet("publish", "not-yet", "m", "--create").stderr.startswith("published to not-yet")
    near = martlet("publish", "not-yt", "m")
    assert "hint: did you mean 'not-yet'?" in near.stderr
    assert martlet("consume", "not-yet").stdout == "m\nm\n"
