"""A damaged log never decides what the others keep, and is made whole again while its broker goes on.

Damage of one who was down: all brokers are killed at once, so that the damaged one is still in the in-sync set when it
comes back alone. With rare checkpoints nothing of what is damaged was flushed; with frequent ones everything was. And
damage of one who runs: it is found when a client reads, or in the background.
"""

import contextlib
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from bench.chaos.replicas import difference, differences
from confluent_kafka import Consumer, Producer, TopicPartition

from tests.cluster.running_cluster import NotReached, RunningCluster

_TOPIC = "orders"
_COUNT = 200
_RARE_MS = 600_000
_OFTEN_MS = 200


def publish_and_kill_all(cluster: RunningCluster) -> int:
    """Publish one message in each batch, kill everybody at once; a broker that followed."""
    cluster.create_topic(_TOPIC, partitions=1, replication=3, config={"min.insync.replicas": "2"})
    settings = {"bootstrap.servers": cluster.bootstrap_servers, "batch.num.messages": 1, "log_level": 0}
    producer = Producer({**settings, "enable.idempotence": True})
    for number in range(_COUNT):
        producer.produce(_TOPIC, f"message {number}".encode())
    assert producer.flush(30) == 0
    assert differences(cluster, _TOPIC, 1) == []
    leader = cluster.leader_of(_TOPIC)
    time.sleep(1)  # for what is flushed and noted in the background
    for number in cluster.brokers:
        cluster.kill(number)
    return next(number for number in cluster.brokers if number != leader)


def start_alone_then_all(cluster: RunningCluster, number: int) -> None:
    """Let the damaged one have its chance to lead, then start the others."""

    def leads() -> bool:
        return cluster.metadata(_TOPIC, from_broker=number).topics[_TOPIC].partitions[0].leader == number

    cluster.start(number)
    with contextlib.suppress(NotReached):
        # The leases of those that were killed have run out by then.
        cluster.wait_until(leads, "the damaged broker to lead", seconds=3 * cluster.lease_seconds)
    for other, broker in cluster.brokers.items():
        if not broker.is_running:
            assert other != number, "a broker does not end because a log of it is damaged"
            cluster.start(other)
    cluster.wait_in_sync(_TOPIC)


def messages(cluster: RunningCluster) -> list[bytes]:
    settings = {"bootstrap.servers": cluster.bootstrap_servers, "enable.partition.eof": True, "log_level": 0}
    consumer = Consumer({**settings, "group.id": "damage", "enable.auto.commit": False})
    consumer.assign([TopicPartition(_TOPIC, 0, 0)])
    found: list[bytes] = []
    try:
        while True:
            message = consumer.poll(30)
            assert message is not None
            if message.error() is not None:
                return found
            found.append(message.value() or b"")
    finally:
        consumer.close()


def wait_until_alike(cluster: RunningCluster) -> None:
    """The damage is found by the first reader, or in the background."""

    def are_alike() -> bool:
        return cluster.is_in_sync(_TOPIC) and difference_now(cluster) is None

    cluster.wait_until(are_alike, "three equal copies", seconds=60)


def difference_now(cluster: RunningCluster) -> str | None:
    name = f"{_TOPIC}-0"
    return difference(name, {number: broker.log_of(name) for number, broker in cluster.brokers.items()})


def flip_a_byte(log: Path) -> None:
    file = max(log.glob("*.log"))
    data = bytearray(file.read_bytes())
    data[len(data) // 2] ^= 0xFF
    file.write_bytes(data)


def lose_the_files(log: Path) -> None:
    for file in log.iterdir():
        file.unlink()


@pytest.mark.parametrize(
    ("damage", "checkpoint_interval_ms"),
    [
        pytest.param(flip_a_byte, _RARE_MS, id="a byte of what was not flushed"),
        pytest.param(flip_a_byte, _OFTEN_MS, id="a byte of what was flushed"),
        pytest.param(lose_the_files, _OFTEN_MS, id="all files"),
    ],
)
def test_a_damaged_replica_takes_nothing_from_the_others(
    damage: Callable[[Path], None], checkpoint_interval_ms: int
) -> None:
    settings: dict[str, Any] = {
        "checkpoint_interval_ms": checkpoint_interval_ms,
        "flush_interval_ms": checkpoint_interval_ms,
    }
    with RunningCluster(3, lease_ms=4_000, **settings) as cluster:
        number = publish_and_kill_all(cluster)
        damage(cluster.brokers[number].log_of(f"{_TOPIC}-0"))
        start_alone_then_all(cluster, number)
        assert messages(cluster) == [f"message {n}".encode() for n in range(_COUNT)]
        before = processes(cluster)
        wait_until_alike(cluster)
        assert processes(cluster) == before
        assert messages(cluster) == [f"message {n}".encode() for n in range(_COUNT)]


def publish_many(cluster: RunningCluster) -> None:
    """Several segments, so that most of it is only looked at when it is read."""
    config = {"min.insync.replicas": "2", "segment.bytes": "2000"}
    cluster.create_topic(_TOPIC, partitions=1, replication=3, config=config)
    settings = {"bootstrap.servers": cluster.bootstrap_servers, "batch.num.messages": 1, "log_level": 0}
    producer = Producer({**settings, "enable.idempotence": True})
    for number in range(_COUNT):
        producer.produce(_TOPIC, f"message {number}".encode())
    assert producer.flush(30) == 0
    assert differences(cluster, _TOPIC, 1) == []


def flip_a_sealed_byte(log: Path) -> None:
    file = sorted(log.glob("*.log"))[2]
    data = bytearray(file.read_bytes())
    data[len(data) - 1] ^= 0xFF  # in a record of its last batch
    file.write_bytes(data)


def make_unreadable(log: Path) -> None:
    """As if it might not be opened, which nothing may keep this test's user from."""
    file = sorted(log.glob("*.log"))[2]
    file.unlink()
    file.symlink_to(file.name)


def processes(cluster: RunningCluster) -> dict[int, int | None]:
    return {number: broker.process_id for number, broker in cluster.brokers.items()}


def wait_until_copied_again(cluster: RunningCluster, number: int) -> None:
    def is_copied() -> bool:
        broker = cluster.brokers[number]
        return any(broker.data.rglob(f"{_TOPIC}-0.*-stray")) and cluster.is_in_sync(_TOPIC)

    cluster.wait_until(is_copied, f"broker {number} to copy again", seconds=60)
    assert differences(cluster, _TOPIC, 1) == []


@pytest.mark.parametrize("damage", [flip_a_sealed_byte, make_unreadable])
def test_a_leader_that_is_read_where_it_is_damaged_hands_over_and_goes_on(damage: Callable[[Path], None]) -> None:
    with RunningCluster(3, leader_balance_interval_ms=1_000, scrub_bytes_per_second=0) as cluster:
        publish_many(cluster)
        number = cluster.metadata(_TOPIC).topics[_TOPIC].partitions[0].replicas[0]
        cluster.restart(number)  # what earlier processes wrote is checked when it is read

        def leads_again() -> bool:
            return cluster.is_in_sync(_TOPIC) and cluster.leader_of(_TOPIC) == number

        cluster.wait_until(leads_again, f"broker {number} to lead again")
        before = processes(cluster)
        damage(cluster.brokers[number].log_of(f"{_TOPIC}-0"))
        assert messages(cluster) == [f"message {n}".encode() for n in range(_COUNT)]
        wait_until_copied_again(cluster, number)
        assert processes(cluster) == before
        assert messages(cluster) == [f"message {n}".encode() for n in range(_COUNT)]


def test_a_follower_finds_its_damage_in_the_background_and_goes_on() -> None:
    with RunningCluster(3) as cluster:
        publish_many(cluster)
        leader = cluster.leader_of(_TOPIC)
        number = next(number for number in cluster.brokers if number != leader)
        cluster.stop(number)
        flip_a_sealed_byte(cluster.brokers[number].log_of(f"{_TOPIC}-0"))
        cluster.start(number)
        before = processes(cluster)
        wait_until_copied_again(cluster, number)
        assert processes(cluster) == before
        assert cluster.leader_of(_TOPIC) == leader, "no other broker had to lead"
        assert messages(cluster) == [f"message {n}".encode() for n in range(_COUNT)]
