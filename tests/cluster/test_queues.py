"""Queues in a cluster of three whose brokers are killed: nothing lost, nothing delivered after its acknowledgement."""

import asyncio
import os
from collections.abc import Iterator

import pytest
from confluent_kafka import Producer

from martlet.base.addresses import parse_address
from martlet.client.cluster import Cluster
from martlet.client.queues import Queues
from tests.cluster.queue_workload import History, Workers
from tests.cluster.running_cluster import RunningCluster

PARTITIONS = 3
WORKERS = 8
KILLS = int(os.environ.get("MARTLET_QUEUE_KILLS", "4"))
"""Fifty for the long run."""
PER_KILL = 300
TIMEOUT_SECONDS = 90


@pytest.fixture(scope="module")
def cluster() -> Iterator[RunningCluster]:
    with RunningCluster(brokers=3) as running:
        yield running


async def _unfinished(bootstrap: str, subscription: str) -> int:
    async with Cluster([parse_address(one) for one in bootstrap.split(",")]) as connected:
        queues = await Queues(connected).describe(subscription)
    if len(queues) < PARTITIONS or any(queue.error_code for queue in queues):
        return -1
    return sum(q.waiting + q.leased + q.closing + q.backing_off + q.copying for q in queues)


async def _finish(bootstrap: str, subscription: str) -> None:
    async with asyncio.timeout(TIMEOUT_SECONDS):
        while await _unfinished(bootstrap, subscription):
            await asyncio.sleep(0.5)


def _publish(cluster: RunningCluster, topic: str, first: int, count: int) -> None:
    producer = Producer({"bootstrap.servers": cluster.bootstrap_servers, "enable.idempotence": True, "linger.ms": 5})
    for number in range(first, first + count):
        producer.produce(topic, str(number), partition=number % PARTITIONS)
    assert producer.flush(TIMEOUT_SECONDS) == 0


@pytest.mark.timeout(150 + 30 * KILLS)
async def test_leases_and_acknowledgements_hold_while_brokers_are_killed(cluster: RunningCluster) -> None:
    topic, subscription = "work", "workers"
    cluster.create_topic(topic, partitions=PARTITIONS, replication=3, config={"min.insync.replicas": "2"})
    cluster.wait_in_sync(topic)
    async with Cluster([parse_address(one) for one in cluster.bootstrap_servers.split(",")]) as connected:
        settings = {"start": "earliest", "attempts.max": "250"}
        await Queues(connected).create(subscription, [topic], settings=settings)
    await asyncio.to_thread(_publish, cluster, topic, 0, PER_KILL)
    history = History()
    workers = Workers(cluster.bootstrap_servers, subscription, WORKERS, history)
    running = asyncio.create_task(workers.run())
    for number in range(KILLS):
        await asyncio.sleep(1)
        killed = await asyncio.to_thread(cluster.leader_of, topic, number % PARTITIONS)
        await asyncio.to_thread(cluster.kill, killed)
        await asyncio.to_thread(_publish, cluster, topic, (number + 1) * PER_KILL, PER_KILL)
        await asyncio.to_thread(cluster.start, killed)
        await asyncio.to_thread(cluster.wait_in_sync, topic)
    await _finish(cluster.bootstrap_servers, subscription)
    workers.stop()
    await running
    assert history.violations() == []
    published = {str(number).encode() for number in range((KILLS + 1) * PER_KILL)}
    assert set(history.values.values()) == published, "every message was delivered"
    print(
        f"{KILLS} kills: {len(published)} messages, {sum(map(len, history.delivered.values()))} deliveries,"
        f" {len(history.acknowledged)} acknowledgements answered, {history.failures} failed calls"
    )
