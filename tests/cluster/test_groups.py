"""Groups when their coordinator goes: members go on elsewhere, and no acknowledged offset is lost."""

import time
from collections.abc import Iterator

import pytest
from confluent_kafka import Consumer, TopicPartition

from martlet.broker.coordinators.internal_topic import partition_of_key
from martlet.cluster.topic_names import CONSUMER_OFFSETS_TOPIC
from tests.cluster.publishing import publish
from tests.cluster.running_cluster import RunningCluster

SHARDS = 8
SECONDS_MAX = 60.0


@pytest.fixture(scope="module")
def cluster() -> Iterator[RunningCluster]:
    with RunningCluster(brokers=3, offsets_topic_partitions=SHARDS) as running:
        yield running


def filled(cluster: RunningCluster, topic: str, values: range) -> None:
    """Make the topic, three partitions on all brokers, and fill it."""
    cluster.create_topic(topic, partitions=3, replication=3, config={"min.insync.replicas": "2"})
    cluster.wait_in_sync(topic)
    publish(cluster, topic, values, partition_of=lambda value: value % 3)


def member(cluster: RunningCluster, group: str, protocol: str) -> Consumer:
    """A member that reads the topic named like its group."""
    options = {
        "bootstrap.servers": cluster.bootstrap_servers,
        "group.id": group,
        "group.protocol": protocol,
        "auto.offset.reset": "earliest",
        "enable.auto.commit": False,
    }
    if protocol == "classic":
        options["session.timeout.ms"] = 10_000
    consumer = Consumer(options)
    consumer.subscribe([group])
    return consumer


def coordinator(cluster: RunningCluster, group: str) -> int:
    return cluster.leader_of(CONSUMER_OFFSETS_TOPIC, partition_of_key(group, SHARDS))


def read_and_commit(consumer: Consumer, count: int) -> list[int]:
    """Read this many messages, committing after each; the values."""
    values: list[int] = []
    deadline = time.monotonic() + SECONDS_MAX
    while len(values) < count:
        assert time.monotonic() < deadline, f"{len(values)} of {count} messages"
        message = consumer.poll(0.5)
        if message is None or message.error() is not None:
            continue
        content = message.value()
        assert content is not None
        values.append(int(content))
        consumer.commit(message=message, asynchronous=False)
    return values


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_a_member_goes_on_after_its_coordinator_is_killed(cluster: RunningCluster, protocol: str) -> None:
    group = f"killed-{protocol}"
    filled(cluster, group, range(60))
    consumer = member(cluster, group, protocol)
    try:
        seen = read_and_commit(consumer, 20)
        cluster.wait_in_sync(CONSUMER_OFFSETS_TOPIC)
        first = coordinator(cluster, group)
        cluster.kill(first)
        seen += read_and_commit(consumer, 20)
        assert coordinator(cluster, group) != first
        cluster.start(first)
        seen += read_and_commit(consumer, 20)
    finally:
        consumer.close()
    # No rebalance took anything from the only member, so nothing comes twice either.
    assert sorted(seen) == list(range(60))
    cluster.wait_in_sync(group, CONSUMER_OFFSETS_TOPIC)


def test_an_acknowledged_commit_is_there_after_every_broker_has_been_killed_once(cluster: RunningCluster) -> None:
    group = "kept"
    filled(cluster, group, range(60))
    consumer = Consumer(
        {"bootstrap.servers": cluster.bootstrap_servers, "group.id": group, "enable.auto.commit": False}
    )
    try:
        for number in range(1, 4):
            wanted = [TopicPartition(group, index, 5 * number + index) for index in range(3)]
            consumer.commit(offsets=wanted, asynchronous=False)
            cluster.wait_in_sync(CONSUMER_OFFSETS_TOPIC)
            cluster.kill(number)
            found = consumer.committed([TopicPartition(group, index) for index in range(3)], timeout=SECONDS_MAX)
            assert [position.offset for position in found] == [position.offset for position in wanted]
            cluster.start(number)
            cluster.wait_in_sync(CONSUMER_OFFSETS_TOPIC)
    finally:
        consumer.close()


def test_a_clean_stop_of_the_coordinator_is_hardly_noticed(cluster: RunningCluster) -> None:
    group = "stopped"
    filled(cluster, group, range(30))
    consumer = member(cluster, group, "classic")
    try:
        read_and_commit(consumer, 10)
        cluster.wait_in_sync(CONSUMER_OFFSETS_TOPIC)
        first = coordinator(cluster, group)
        cluster.stop(first)
        started = time.monotonic()
        read_and_commit(consumer, 10)
        assert time.monotonic() - started < cluster.lease_seconds + 5
        assert coordinator(cluster, group) != first
        cluster.start(first)
    finally:
        consumer.close()
