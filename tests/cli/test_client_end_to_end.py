"""The client against a real broker that goes away and comes back."""

import asyncio

import pytest

from martlet.base.addresses import parse_bootstrap
from martlet.base.ids import TopicPartition
from martlet.client.admin import Admin, NewTopic
from martlet.client.cluster import Cluster
from martlet.client.fetcher import Fetcher
from martlet.client.offsets import offset_ranges
from martlet.client.options import ClientOptions
from martlet.client.producer import Producer, ProducerOptions
from martlet.testing.running_broker import RunningBroker
from martlet.wire.compression import Compression

MESSAGES = 3_000
PARTITIONS = 3


def client_of(broker: RunningBroker) -> Cluster:
    return Cluster(parse_bootstrap(broker.bootstrap_servers), ClientOptions(unknown_topic_wait_ms=0))


async def publish(cluster: Cluster, topic: str, restart_at: int, broker: RunningBroker) -> None:
    """Publish numbers by key while the broker restarts once."""
    restart: asyncio.Future[None] | None = None
    async with Producer(cluster, ProducerOptions(linger_ms=1, compression=Compression.LZ4)) as producer:
        for number in range(MESSAGES):
            key = b"%d" % (number % 10)
            await producer.send(topic, b"%d" % number, key=key)
            if number == restart_at:
                restart = asyncio.get_running_loop().run_in_executor(None, broker.restart)
            if number % 20 == 0:
                await asyncio.sleep(0.001)
        await producer.flush()
        assert (producer.statistics.delivered, producer.statistics.failed) == (MESSAGES, 0)
    assert restart is not None
    await restart


async def read_until(cluster: Cluster, topic: str, count: int) -> dict[int, list[int]]:
    """Numbers by partition in the order read."""
    found: dict[int, list[int]] = {partition: [] for partition in range(PARTITIONS)}
    async with Fetcher(cluster) as fetcher:
        fetcher.assign({TopicPartition(topic, partition): 0 for partition in range(PARTITIONS)})
        while sum(map(len, found.values())) < count:
            for fetched in await fetcher.fetch():
                found[fetched.partition.partition] += [
                    int(record.value or b"") for record in fetched.records(batch_bytes_max=1 << 24)
                ]
    return found


@pytest.mark.parametrize("restart_at", [100, 2_000])
async def test_a_restart_under_way_costs_neither_messages_nor_order_nor_duplicates(restart_at: int) -> None:
    broker = RunningBroker()
    await asyncio.to_thread(broker.start)
    try:
        async with client_of(broker) as cluster, client_of(broker) as reader:
            await Admin(cluster).create_topic(NewTopic(name="t", partitions=PARTITIONS))
            reading = asyncio.create_task(read_until(reader, "t", MESSAGES))
            await publish(cluster, "t", restart_at, broker)
            found = await asyncio.wait_for(reading, 60)
            held = await offset_ranges(cluster, [TopicPartition("t", partition) for partition in range(PARTITIONS)])
        assert sorted(number for numbers in found.values() for number in numbers) == list(range(MESSAGES))
        for numbers in found.values():
            for key in range(10):
                of_key = [number for number in numbers if number % 10 == key]
                assert of_key == sorted(of_key)
        assert sum(len(offsets) for offsets in held.values()) == MESSAGES
    finally:
        await asyncio.to_thread(broker.stop)
