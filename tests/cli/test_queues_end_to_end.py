"""`martlet sub` and `martlet receive` against a real broker."""

import json
import time
from itertools import count

from tests.cli.conftest import Martlet

_numbers = count()


def _topic(martlet: Martlet, *values: str) -> str:
    name = f"orders-{next(_numbers)}"
    assert martlet("topic", "create", name, "--partitions", "1").exit_code == 0
    if values:
        assert martlet("publish", name, stdin="\n".join(values).encode() + b"\n").exit_code == 0
    return name


def test_a_subscription_is_made_worked_off_looked_into_and_deleted(martlet: Martlet) -> None:
    topic = _topic(martlet, "one", "two", "three")
    name = f"{topic}-work"
    made = martlet("sub", "create", name, "--topic", topic, "--from", "earliest", "--lease-ms", "60000")
    assert made.exit_code == 0, made.stderr
    got = martlet("receive", name, "--count", "2", "--wait", "10")
    assert got.stdout.splitlines() == ["one", "two"]
    peeked = martlet("sub", "peek", name, "--json")
    assert [(one["offset"], one["state"]) for one in json.loads(peeked.stdout)] == [(2, "waiting")]
    shown = json.loads(martlet("sub", "describe", name, "--json").stdout)
    assert shown["settings"] == {"lease.ms": "60000", "start": "earliest"}
    assert [(queue["waiting"], queue["oldest"]) for queue in shown["queues"]] == [(1, 2)]
    assert "finished" in martlet("sub", "status", name, f"{topic}:0", "0").stdout
    status = json.loads(martlet("sub", "status", name, f"{topic}:0", "0", "--json").stdout)
    assert (status["offset"], status["state"]) == (0, "finished")
    assert martlet("sub", "seek", name, f"{topic}:0", "0").exit_code == 0
    assert (
        martlet("receive", name, "--count", "3", "--wait", "10", "--format", "%o:%s\\n").stdout
        == "0:one\n1:two\n2:three\n"
    )
    assert name in martlet("sub", "list").stdout
    assert martlet("sub", "delete", name, "--yes").exit_code == 0
    assert martlet("sub", "describe", name).exit_code != 0


def test_a_delayed_message_is_shown_and_cancelled(martlet: Martlet) -> None:
    topic = f"orders-{next(_numbers)}"
    assert (
        martlet("topic", "create", topic, "--partitions", "1", "--config", "martlet.queue.features=delay").exit_code
        == 0
    )
    name = f"{topic}-work"
    assert martlet("sub", "create", name, "--topic", topic, "--from", "earliest").exit_code == 0
    later = martlet("publish", topic, "--header", "martlet-delay-ms=3600000", stdin=b"later\n")
    assert later.exit_code == 0, later.stderr
    assert martlet("publish", topic, stdin=b"now\n").exit_code == 0
    assert martlet("receive", name, "--count", "1", "--wait", "10").stdout == "now\n"
    (queue,) = json.loads(martlet("sub", "describe", name, "--json").stdout)["queues"]
    assert (queue["waiting"], queue["scheduled"]) == (0, 1)
    assert "scheduled" in martlet("sub", "status", name, f"{topic}:0", "0").stdout
    assert martlet("sub", "cancel", name, f"{topic}:0", "0").exit_code == 0
    assert "cancelled" in martlet("sub", "status", name, f"{topic}:0", "0").stdout
    refused = martlet("sub", "cancel", name, f"{topic}:0", "1")
    assert refused.exit_code != 0
    assert "cannot be cancelled" in refused.stderr
    soon = martlet("publish", topic, "--header", "martlet-delay-ms=soon", stdin=b"x\n")
    assert soon.exit_code != 0
    assert "martlet-delay-ms is 'soon'" in soon.stderr


def test_a_paused_subscription_delivers_nothing_until_it_goes_on(martlet: Martlet) -> None:
    topic = _topic(martlet, "one")
    name = f"{topic}-work"
    assert martlet("sub", "create", name, "--topic", topic, "--from", "earliest", "--paused").exit_code == 0
    assert martlet("receive", name, "--wait", "0.2").stdout == ""
    assert "the subscription is paused" in martlet("sub", "describe", name).stdout
    assert json.loads(martlet("sub", "resume", name, "--json").stdout) == {"subscription": name}
    received = json.loads(martlet("receive", name, "--count", "1", "--wait", "10", "--json").stdout)
    assert (received["topic"], received["offset"], received["value"]) == (topic, 0, "one")
    assert martlet("sub", "pause", name).exit_code == 0


def test_mistakes_are_said_with_the_reason(martlet: Martlet) -> None:
    topic = _topic(martlet)
    wrong = martlet("sub", "create", "x", "--topic", topic, "--set", "lease.ms=soon")
    assert wrong.exit_code != 0
    assert "a whole number" in wrong.stderr
    assert martlet("sub", "create", "x").exit_code != 0
    assert martlet("receive", "no-such-subscription", "--wait", "1").exit_code != 0
    altered = martlet("sub", "alter", "no-such-subscription", "--set", "lease.ms=1000")
    assert "there is no subscription" in altered.stderr


def test_dead_letters_are_listed_shown_published_again_and_purged(martlet: Martlet) -> None:
    topic, dead = _topic(martlet, "one", "two"), _topic(martlet)
    name = f"{topic}-work"
    options = ("--topic", topic, "--from", "earliest", "--dead-letters", dead)
    assert martlet("sub", "create", name, *options).exit_code == 0
    got = martlet("receive", name, "--count", "2", "--wait", "10", "--then", "reject", "--reason", "no such customer")
    assert got.stdout.splitlines() == ["one", "two"]
    deadline = time.monotonic() + 20
    while len(letters := json.loads(martlet("dlq", "show", dead, "--json").stdout)) < 2:
        assert time.monotonic() < deadline
    assert [(one["from"], one["reason"], one["detail"]) for one in letters] == [
        (f"{topic}:0@0", "rejected", "no such customer"),
        (f"{topic}:0@1", "rejected", "no such customer"),
    ]
    listed = [one for one in json.loads(martlet("dlq", "list", "--json").stdout) if one["topic"] == dead]
    assert [(one["subscription"], one["letters"]) for one in listed] == [(name, 2)]
    assert "would publish 2 letters again" in martlet("dlq", "redrive", dead, "--dry-run").stderr
    assert "published 0 letters again" in martlet("dlq", "redrive", dead, "--reason", "expired").stderr
    assert "published 1 letter again" in martlet("dlq", "redrive", dead, "--count", "1").stderr
    again = martlet("receive", name, "--count", "1", "--wait", "10", "--format", "%o %s %h\\n").stdout
    assert again.startswith("2 one ")
    assert "martlet-was-dead-reason=rejected" in again
    assert martlet("dlq", "purge", dead, "--yes").exit_code == 0
    assert json.loads(martlet("dlq", "show", dead, "--json").stdout) == []
