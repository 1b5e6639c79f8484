"""`martlet consume` of several topics, up to an end, and as a member of a group, against a real broker."""

import asyncio
import json
import time

from martlet.base.addresses import parse_bootstrap
from martlet.client.cluster import Cluster
from martlet.client.groups import Groups
from martlet.testing.running_broker import RunningBroker
from tests.cli.conftest import Martlet


def fill(martlet: Martlet, topic: str, *messages: str, partitions: int = 1) -> None:
    assert martlet("topic", "create", topic, "--partitions", str(partitions)).exit_code == 0
    assert martlet("publish", topic, *messages).exit_code == 0


def test_several_topics_and_a_pattern_are_read_at_once(martlet: Martlet) -> None:
    fill(martlet, "several.a", "a1", "a2")
    fill(martlet, "several.b", "b1")
    fill(martlet, "severally", "no")
    both = martlet("consume", "several.a", "several.b", "--format", r"%t %s\n")
    assert sorted(both.stdout.splitlines()) == ["several.a a1", "several.a a2", "several.b b1"]
    matched = martlet("consume", "--pattern", r"several\..", "--format", r"%t %s\n")
    assert sorted(matched.stdout.splitlines()) == sorted(both.stdout.splitlines())
    none = martlet("consume", "--pattern", "nothing.*")
    assert (none.exit_code, none.stderr.splitlines()[0]) == (3, "error: no topic matches 'nothing.*'")


def test_reading_stops_before_an_offset_or_a_time(martlet: Martlet) -> None:
    assert martlet("topic", "create", "ends").exit_code == 0
    lines = "".join(json.dumps({"value": f"m{n}", "timestamp_ms": 1_000_000 + n * 1_000}) + "\n" for n in range(5))
    assert martlet("publish", "ends", "--jsonl", stdin=lines.encode()).exit_code == 0
    assert martlet("consume", "ends", "--until", "2").stdout == "m0\nm1\n"
    assert martlet("consume", "ends", "--until", "@1003000").stdout == "m0\nm1\nm2\n"
    assert martlet("consume", "ends", "--from", "1", "--until", "2").stdout == "m1\n"
    assert martlet("consume", "ends", "--from", "-1", "--until", "latest").stdout == "m4\n"
    assert martlet("consume", "ends", "--until", "99").stdout == "m0\nm1\nm2\nm3\nm4\n"
    assert martlet("consume", "ends", "--from", "3", "--until", "1").stdout == ""


def test_a_group_goes_on_where_it_has_got_to(martlet: Martlet) -> None:
    fill(martlet, "shared", *(f"m{n}" for n in range(6)))
    first = martlet("consume", "shared", "--group", "readers", "--count", "2")
    assert (first.exit_code, first.stdout) == (0, "m0\nm1\n")
    assert json.loads(martlet("group", "lag", "readers", "--json").stdout)["lag"] == 4
    assert martlet("consume", "shared", "--group", "readers").stdout == "m2\nm3\nm4\nm5\n"
    assert martlet("consume", "shared", "--group", "readers").stdout == ""
    assert json.loads(martlet("group", "lag", "readers", "--json").stdout)["lag"] == 0
    # The command has left, so its partitions are free at once.
    assert json.loads(martlet("group", "describe", "readers", "--json").stdout)["members"] == []


def test_a_new_group_begins_where_from_says(martlet: Martlet) -> None:
    fill(martlet, "begun", "old", partitions=2)
    assert martlet("consume", "begun", "--group", "late", "--from", "latest").stdout == ""
    martlet("publish", "begun", "new")
    assert martlet("consume", "begun", "--group", "late").stdout == "new\n"
    assert sorted(martlet("consume", "--pattern", "begu.", "--group", "early").stdout.split()) == ["new", "old"]


def test_what_cannot_go_together_is_refused(martlet: Martlet) -> None:
    for arguments, words in (
        ([], "give a TOPIC, or --pattern REGEX"),
        (["t", "--pattern", "x"], "give topics or --pattern, not both"),
        (["--pattern", "("], "'(' is not a regular expression"),
        (["a", "b", "--partition", "0"], "--partition goes with one topic"),
        (["t", "--until", "latest", "--follow"], "--until stops and --follow does not"),
        (["t", "--until", "earliest"], "'earliest' is not an end; allowed are latest"),
        (["t", "--group", "g", "--from", "-3"], "with --group give neither --until nor --partition"),
    ):
        ran = martlet("consume", *arguments)
        assert (ran.exit_code, words in ran.stderr) == (2, True), ran.stderr
    missing = martlet("consume", "no-such-topic", "--group", "g")
    assert (missing.exit_code, missing.stderr.splitlines()[0]) == (3, "error: there is no topic 'no-such-topic'")


def test_a_member_that_gets_no_partitions_ends_with_a_timeout(martlet: Martlet, broker: RunningBroker) -> None:
    fill(martlet, "taken", "m")

    async def owned_by_another() -> None:
        from martlet.client.consumer.group_consumer import GroupConsumer, GroupConsumerOptions
        from martlet.client.consumer.membership import MemberOptions

        async with Cluster(parse_bootstrap(broker.bootstrap_servers)) as cluster:
            options = GroupConsumerOptions(member=MemberOptions(group_id="full"))
            async with GroupConsumer(cluster, options) as consumer:
                consumer.subscribe(["taken"])
                while not consumer.assignment:
                    await consumer.poll(100)
                began = time.monotonic()
                ran = await asyncio.to_thread(martlet, "consume", "taken", "--group", "full", "--timeout", "1.5")
                assert (ran.exit_code, "has given this member no partitions" in ran.stderr) == (7, True)
                assert time.monotonic() - began < 15
                assert len((await Groups(cluster).describe("full")).members) == 1

    asyncio.run(owned_by_another())
