"""Transactions in a cluster of three: coordinators, leaders and groups on different brokers, which are killed."""

import time
from collections.abc import Iterator

import pytest
from confluent_kafka import Producer

from martlet.broker.coordinators.internal_topic import partition_of_key
from martlet.cluster.topic_names import TRANSACTION_STATE_TOPIC
from tests.cluster.running_cluster import RunningCluster
from tests.cluster.transaction_workload import TIMEOUT_SECONDS, Worker, check_exactly_once, read_committed

PARTITIONS = 4
SHARDS = 6
ALL_IN_SYNC = {"min.insync.replicas": "2"}


@pytest.fixture(scope="module")
def cluster() -> Iterator[RunningCluster]:
    with RunningCluster(brokers=3, offsets_topic_partitions=SHARDS, transactions_topic_partitions=SHARDS) as running:
        yield running


def make_topics(cluster: RunningCluster, name: str, count: int) -> tuple[str, str]:
    """A source with `count` messages in each partition, and an empty target."""
    source, target = f"{name}-source", f"{name}-target"
    for topic in (source, target):
        cluster.create_topic(topic, partitions=PARTITIONS, replication=3, config=ALL_IN_SYNC)
    cluster.wait_in_sync(source, target)
    producer = Producer({"bootstrap.servers": cluster.bootstrap_servers, "enable.idempotence": True})
    for number in range(count):
        for partition in range(PARTITIONS):
            producer.produce(source, str(number), partition=partition)
    assert producer.flush(TIMEOUT_SECONDS) == 0
    return source, target


def new_producer(cluster: RunningCluster, name: str, timeout_ms: int = 60_000) -> Producer:
    producer = Producer(
        {
            "bootstrap.servers": cluster.bootstrap_servers,
            "transactional.id": name,
            "transaction.timeout.ms": timeout_ms,
            "linger.ms": 0,
        }
    )
    producer.init_transactions(TIMEOUT_SECONDS)
    return producer


def coordinator(cluster: RunningCluster, name: str) -> int:
    return cluster.leader_of(TRANSACTION_STATE_TOPIC, partition_of_key(name, SHARDS))


def test_a_transaction_over_partitions_of_all_brokers_is_seen_whole(cluster: RunningCluster) -> None:
    cluster.create_topic("spread", partitions=PARTITIONS, replication=3, config=ALL_IN_SYNC)
    cluster.wait_in_sync("spread")
    producer = new_producer(cluster, "spread")
    for number in range(10):
        producer.begin_transaction()
        for partition in range(PARTITIONS):
            producer.produce("spread", f"{partition}:{number}", partition=partition)
        if number % 2:
            producer.flush(TIMEOUT_SECONDS)
            producer.abort_transaction(TIMEOUT_SECONDS)
        else:
            producer.commit_transaction(TIMEOUT_SECONDS)
    found = read_committed(cluster.bootstrap_servers, "spread", PARTITIONS)
    assert found == {index: [f"{index}:{number}" for number in range(0, 10, 2)] for index in range(PARTITIONS)}


def test_a_transaction_goes_on_after_its_coordinator_is_killed(cluster: RunningCluster) -> None:
    cluster.create_topic("moved", partitions=PARTITIONS, replication=3, config=ALL_IN_SYNC)
    cluster.wait_in_sync("moved")
    producer = new_producer(cluster, "moved")
    cluster.wait_in_sync(TRANSACTION_STATE_TOPIC)
    for number in range(2):
        producer.begin_transaction()
        for partition in range(PARTITIONS):
            producer.produce("moved", f"{partition}:{number}", partition=partition)
        producer.flush(TIMEOUT_SECONDS)
        killed = coordinator(cluster, "moved")
        cluster.kill(killed)
        producer.commit_transaction(TIMEOUT_SECONDS)
        cluster.start(killed)
        cluster.wait_in_sync("moved", TRANSACTION_STATE_TOPIC)
    found = read_committed(cluster.bootstrap_servers, "moved", PARTITIONS)
    assert found == {index: [f"{index}:{number}" for number in range(2)] for index in range(PARTITIONS)}


def test_what_a_dead_client_left_open_is_aborted_by_the_coordinator_of_then(cluster: RunningCluster) -> None:
    cluster.create_topic("left", partitions=PARTITIONS, replication=3, config=ALL_IN_SYNC)
    cluster.wait_in_sync("left")
    producer = new_producer(cluster, "left", timeout_ms=8_000)
    cluster.wait_in_sync(TRANSACTION_STATE_TOPIC)
    producer.begin_transaction()
    for partition in range(PARTITIONS):
        producer.produce("left", b"left open", partition=partition)
    producer.flush(TIMEOUT_SECONDS)
    killed = coordinator(cluster, "left")
    cluster.kill(killed)
    cluster.start(killed)
    other = new_producer(cluster, "other")
    other.begin_transaction()
    for partition in range(PARTITIONS):
        other.produce("left", b"kept", partition=partition)
    other.commit_transaction(TIMEOUT_SECONDS)
    expected = {index: ["kept"] for index in range(PARTITIONS)}
    deadline = time.monotonic() + TIMEOUT_SECONDS
    while read_committed(cluster.bootstrap_servers, "left", PARTITIONS) != expected:
        assert time.monotonic() < deadline


def test_messages_are_carried_over_exactly_once_while_brokers_are_killed(cluster: RunningCluster) -> None:
    count = 200
    source, target = make_topics(cluster, "carried", count)
    workers = [Worker(cluster.bootstrap_servers, source, target, number, count) for number in range(PARTITIONS)]
    for worker in workers:
        worker.start()
    for number in (1, 2, 3):
        time.sleep(1)
        cluster.kill(number)
        time.sleep(1)
        cluster.start(number)
        cluster.wait_in_sync(source, target, TRANSACTION_STATE_TOPIC)
    for worker in workers:
        worker.join(TIMEOUT_SECONDS)
        if worker.error is not None:
            raise worker.error
    assert not any(worker.is_alive() for worker in workers)
    check_exactly_once(read_committed(cluster.bootstrap_servers, target, PARTITIONS), count)
