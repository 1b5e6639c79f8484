"""`martlet topic trim` against a real broker."""

import json

from tests.cli.conftest import Martlet


def test_the_oldest_messages_are_deleted_up_to_an_offset_a_time_or_all_but_the_last(martlet: Martlet) -> None:
    assert martlet("topic", "create", "trimmed").exit_code == 0
    lines = "".join(json.dumps({"value": f"m{n}", "timestamp_ms": 1_000_000 + n * 1_000}) + "\n" for n in range(10))
    # Far from now, but in the time of retention's sight no message of this test is old.
    martlet("topic", "alter", "trimmed", "--set", "retention.ms=-1")
    assert martlet("publish", "trimmed", "--jsonl", stdin=lines.encode()).exit_code == 0
    shown = martlet("topic", "trim", "trimmed", "--before", "2", "--dry-run")
    assert shown.stderr == "would delete 2 messages of 1 partition\n"
    assert martlet("consume", "trimmed", "--count", "1").stdout == "m0\n"
    done = martlet("topic", "trim", "trimmed:0", "--before", "2", "--yes")
    assert (done.exit_code, done.stderr) == (0, "deleted 2 messages of 1 partition\n")
    assert done.stdout.splitlines()[1].split() == ["trimmed", "0", "0", "2", "2"]
    assert martlet("consume", "trimmed", "--count", "1").stdout == "m2\n"
    martlet("topic", "trim", "trimmed", "--before", "@1005000", "--yes")
    assert martlet("consume", "trimmed", "--count", "1").stdout == "m5\n"
    [row] = json.loads(martlet("topic", "trim", "trimmed", "--before", "-2", "--yes", "--json").stdout)
    assert row == {"topic": "trimmed", "partition": 0, "first_offset_before": 5, "first_offset": 8, "deleted": 3}
    assert martlet("consume", "trimmed").stdout == "m8\nm9\n"
    martlet("topic", "trim", "trimmed", "--before", "latest", "--yes")
    assert martlet("consume", "trimmed").stdout == ""
    again = martlet("topic", "trim", "trimmed", "--before", "3", "--yes")
    assert (again.exit_code, again.stderr) == (0, "there is nothing to delete before that\n")


def test_trimming_asks_and_names_what_is_missing(martlet: Martlet) -> None:
    martlet("topic", "create", "kept", "--partitions", "2")
    martlet("publish", "kept", "m")
    asked = martlet("topic", "trim", "kept", "--before", "latest")
    assert (asked.exit_code, "not a terminal: use --yes" in asked.stderr) == (2, True)
    assert martlet("consume", "kept").stdout == "m\n"
    beyond = martlet("topic", "trim", "kept", "--before", "99", "--yes")
    assert (beyond.exit_code, "has no offset 99 yet" in beyond.stderr) == (1, True)
    assert martlet("topic", "trim", "kept:5", "--before", "latest", "--yes").exit_code == 3
    assert martlet("topic", "trim", "no-such", "--before", "latest", "--yes").exit_code == 3
