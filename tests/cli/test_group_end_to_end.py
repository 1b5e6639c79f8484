"""Groups through the real command and a real broker, with librdkafka's consumers as their members."""

import json
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from confluent_kafka import Consumer, Producer
from confluent_kafka import TopicPartition as Place
from confluent_kafka.admin import AdminClient

from martlet.testing.running_broker import RunningBroker
from tests.cli.conftest import Martlet

PATIENCE_S = 30
PROTOCOLS = ["classic", "consumer"]


def consumer_of(broker: RunningBroker, group: str, protocol: str = "classic", **settings: Any) -> Consumer:
    return Consumer(
        {
            "bootstrap.servers": broker.bootstrap_servers,
            "group.id": group,
            "group.protocol": protocol,
            "client.id": f"client-of-{group}",
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
        }
        | settings
    )


@contextmanager
def reading(consumer: Consumer, topic: str) -> Iterator[Consumer]:
    """Subscribed, and leaving the group afterwards."""
    consumer.subscribe([topic])
    try:
        yield consumer
    finally:
        consumer.close()


def take(consumer: Consumer, count: int) -> list[bytes]:
    """So many values, or a failure."""
    values: list[bytes] = []
    deadline = time.monotonic() + PATIENCE_S
    while len(values) < count:
        assert time.monotonic() < deadline, f"{len(values)} of {count} messages after {PATIENCE_S} s"
        message = consumer.poll(0.2)
        if message is not None:
            assert message.error() is None, message.error()
            values.append(message.value() or b"")
    return values


def publish(broker: RunningBroker, topic: str, messages: list[tuple[int, int]]) -> None:
    """A message for each (partition, timestamp in ms); its value is its number."""
    producer = Producer({"bootstrap.servers": broker.bootstrap_servers, "linger.ms": 20})
    for number, (partition, timestamp_ms) in enumerate(messages):
        producer.produce(topic, str(number).encode(), partition=partition, timestamp=timestamp_ms)
    assert producer.flush(PATIENCE_S) == 0


def lag_of(martlet: Martlet, group: str) -> dict[str, Any]:
    ran = martlet("group", "lag", group, "--json")
    assert (ran.exit_code, ran.stderr) == (0, "")
    shown: dict[str, Any] = json.loads(ran.stdout)
    return shown


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_a_group_is_listed_and_described_while_it_lives_and_afterwards(
    broker: RunningBroker, martlet: Martlet, protocol: str
) -> None:
    topic, group = f"life-{protocol}", f"life-of-{protocol}"
    assert martlet("topic", "create", topic, "--partitions", "2").exit_code == 0
    publish(broker, topic, [(0, 1_000), (1, 1_000)])
    with reading(consumer_of(broker, group, protocol), topic) as consumer:
        take(consumer, 2)
        consumer.commit(asynchronous=False)
        described = json.loads(martlet("group", "describe", group, "--json").stdout)
        assert (described["group"], described["type"], described["state"]) == (group, protocol, "Stable")
        [member] = described["members"]
        assert member["client"] == f"client-of-{group}"
        assert member["topics"] == [topic]
        assert member["assigned"] == [{"topic": topic, "partition": number} for number in (0, 1)]
        listed = json.loads(martlet("group", "list", "--type", protocol, "--state", "Stable", "--json").stdout)
        assert group in [row["group"] for row in listed]
        text = martlet("group", "describe", group)
        assert text.stdout.splitlines()[-1].endswith(f"{topic}:0,1")
    rows = {row["group"]: row for row in json.loads(martlet("group", "list", "--json").stdout)}
    assert (rows[group]["type"], rows[group]["state"]) == (protocol, "Empty")
    assert json.loads(martlet("group", "describe", group, "--json").stdout)["members"] == []


def test_lag_agrees_with_an_independent_count_in_messages_and_seconds(broker: RunningBroker, martlet: Martlet) -> None:
    """Every message has an age of its own; what the group has not read is counted here, one by one."""
    topic, group = "measured", "measures"
    assert martlet("topic", "create", topic, "--partitions", "3").exit_code == 0
    begun_ms = int(time.time() * 1000)
    messages = [(number % 3, begun_ms - (600 - number) * 1_000) for number in range(300)]
    publish(broker, topic, messages)
    stamps: dict[int, list[int]] = {
        partition: [stamp for at, stamp in messages if at == partition] for partition in range(3)
    }
    # Partition 0 is read to the end, partition 1 in part, partition 2 not at all.
    committed = {0: 100, 1: 37, 2: 0}
    consumer = consumer_of(broker, group)
    consumer.commit(offsets=[Place(topic, p, offset) for p, offset in committed.items()], asynchronous=False)
    consumer.close()

    shown = lag_of(martlet, group)
    ended_ms = int(time.time() * 1000)

    assert shown["lag"] == sum(len(stamps[p][offset:]) for p, offset in committed.items()) == 163
    for entry in shown["partitions"]:
        unread = stamps[entry["partition"]][committed[entry["partition"]] :]
        assert entry["committed"] == committed[entry["partition"]]
        assert (entry["first_offset"], entry["end_offset"], entry["lag"]) == (0, 100, len(unread))
        if unread:
            assert begun_ms - unread[0] <= entry["lag_seconds"] * 1000 <= ended_ms - unread[0]
        else:
            assert entry["lag_seconds"] == 0
    oldest = min(stamps[p][offset] for p, offset in committed.items() if offset < 100)
    assert begun_ms - oldest <= shown["lag_seconds"] * 1000 <= ended_ms - oldest


def test_lag_follows_a_consumer_and_does_not_count_deleted_messages(broker: RunningBroker, martlet: Martlet) -> None:
    topic, group = "followed", "follows"
    assert martlet("topic", "create", topic).exit_code == 0
    begun_ms = int(time.time() * 1000)
    publish(broker, topic, [(0, begun_ms - 60_000)] * 10)
    with reading(consumer_of(broker, group), topic) as consumer:
        take(consumer, 10)
        consumer.commit(offsets=[Place(topic, 0, 4)], asynchronous=False)
        assert [entry["lag"] for entry in lag_of(martlet, group)["partitions"]] == [6]
        assert lag_of(martlet, group)["partitions"][0]["reader"] == f"client-of-{group}"
        consumer.commit(offsets=[Place(topic, 0, 10)], asynchronous=False)
        assert lag_of(martlet, group)["partitions"][0]["lag_seconds"] == 0
    text = martlet("group", "lag", group)
    assert (text.exit_code, text.stderr) == (0, "0 messages behind\n")
    assert martlet("group", "reset", group, "--all-topics", "--to", "2").exit_code == 0
    rows = {row["group"]: row for row in json.loads(martlet("group", "lag", "--all", "--json").stdout)}
    assert rows[group]["lag"] == 8
    assert 60 <= rows[group]["lag_seconds"] < 60 + PATIENCE_S
    admin = AdminClient({"bootstrap.servers": broker.bootstrap_servers})
    for done in admin.delete_records([Place(topic, 0, 5)]).values():
        assert done.result(PATIENCE_S).low_watermark == 5
    [entry] = lag_of(martlet, group)["partitions"]
    assert (entry["committed"], entry["first_offset"], entry["lag"]) == (2, 5, 5)


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_a_reset_waits_until_no_member_is_connected_and_decides_where_reading_goes_on(
    broker: RunningBroker, martlet: Martlet, protocol: str
) -> None:
    topic, group = f"again-{protocol}", f"reads-again-{protocol}"
    assert martlet("topic", "create", topic).exit_code == 0
    publish(broker, topic, [(0, 1_000 + 1_000 * number) for number in range(10)])
    with reading(consumer_of(broker, group, protocol), topic) as consumer:
        assert take(consumer, 10)[-1] == b"9"
        consumer.commit(asynchronous=False)
        refused = martlet("group", "reset", group, "--topic", topic, "--to", "earliest")
        assert (refused.exit_code, refused.stdout) == (5, "")
        assert f"group '{group}' has 1 member connected (client-of-{group} at " in refused.stderr
    before_after = martlet("group", "reset", group, "--topic", f"{topic}:0", "--to", "@7500", "--dry-run")
    assert before_after.stdout.splitlines()[1].split() == [topic, "0", "10", "7"]
    assert lag_of(martlet, group)["lag"] == 0
    assert martlet("group", "reset", group, "--topic", f"{topic}:0", "--to", "@7500").exit_code == 0
    assert lag_of(martlet, group)["lag"] == 3
    with reading(consumer_of(broker, group, protocol), topic) as consumer:
        assert take(consumer, 3) == [b"7", b"8", b"9"]


def test_a_group_is_deleted_when_no_member_is_connected(broker: RunningBroker, martlet: Martlet) -> None:
    topic, group = "forgotten", "forgets"
    assert martlet("topic", "create", topic).exit_code == 0
    publish(broker, topic, [(0, 1_000)])
    with reading(consumer_of(broker, group), topic) as consumer:
        take(consumer, 1)
        consumer.commit(asynchronous=False)
        refused = martlet("group", "delete", group, "--yes")
        assert (refused.exit_code, refused.stdout) == (5, "")
        assert f"group '{group}' was not deleted" in refused.stderr
    assert martlet("group", "delete", group, "--yes") == (0, "", f"deleted {group}\n")
    assert martlet("group", "delete", group, "--yes").exit_code == 3
    assert martlet("group", "describe", group).exit_code == 3
    with reading(consumer_of(broker, group), topic) as consumer:
        assert take(consumer, 1) == [b"0"]


def test_offsets_of_one_topic_are_deleted(broker: RunningBroker, martlet: Martlet) -> None:
    for topic in ("kept", "dropped"):
        assert martlet("topic", "create", topic, "--if-not-exists").exit_code == 0
    for topic in ("kept", "dropped"):
        assert martlet("group", "reset", "chooses", "--topic", topic, "--to", "latest").exit_code == 0
    ran = martlet("group", "delete", "chooses", "--topic", "dropped", "--yes")
    assert ran == (0, "", "deleted 1 offset of chooses: dropped:0\n")
    assert [entry["topic"] for entry in lag_of(martlet, "chooses")["partitions"]] == ["kept"]
