"""Transactions by aiokafka: committed, aborted, fenced, and with a group's offsets."""

import asyncio
from contextlib import suppress

import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition  # type: ignore[import-untyped]
from aiokafka.errors import ProducerFenced  # type: ignore[import-untyped]

from tests.broker.requests import unique_topic
from tests.clients.with_aiokafka import AiokafkaAdapter, running


def new_producer(servers: str, name: str) -> AIOKafkaProducer:
    return AIOKafkaProducer(bootstrap_servers=servers, transactional_id=name)


async def read(servers: str, topic: str, isolation: str = "read_committed") -> list[bytes]:
    """Everything up to the end that this isolation level sees."""
    place = TopicPartition(topic, 0)
    consumer = AIOKafkaConsumer(
        bootstrap_servers=servers, group_id=None, isolation_level=isolation, enable_auto_commit=False
    )
    values: list[bytes] = []
    async with running(consumer):
        consumer.assign([place])
        end = (await consumer.end_offsets([place]))[place]
        consumer.seek(place, 0)
        while await consumer.position(place) < end:
            batches = await consumer.getmany(timeout_ms=200)
            values += [record.value for record in batches.get(place, [])]
    return values


@pytest.fixture
async def topic(servers: str) -> str:
    name = unique_topic("transactions-aiokafka")
    await asyncio.to_thread(AiokafkaAdapter().create_topic, servers, name, 1)
    return name


async def test_readers_of_committed_data_see_committed_transactions_and_nothing_else(servers: str, topic: str) -> None:
    async with running(new_producer(servers, topic)) as producer:
        for number in range(4):
            await producer.begin_transaction()
            for index in range(5):
                await producer.send_and_wait(topic, b"%d-%d" % (number, index))
            if number % 2:
                await producer.abort_transaction()
            else:
                await producer.commit_transaction()
    assert await read(servers, topic) == [b"%d-%d" % (number, index) for number in (0, 2) for index in range(5)]
    assert len(await read(servers, topic, "read_uncommitted")) == 20


async def test_a_new_producer_fences_the_old_one(servers: str, topic: str) -> None:
    old = new_producer(servers, topic)
    await old.start()
    await old.begin_transaction()
    await old.send_and_wait(topic, b"left open")
    async with running(new_producer(servers, topic)) as new:
        with pytest.raises(ProducerFenced):
            await old.commit_transaction()
        await new.begin_transaction()
        await new.send_and_wait(topic, b"kept")
        await new.commit_transaction()
    with suppress(ProducerFenced):
        await old.stop()
    assert await read(servers, topic) == [b"kept"]


@pytest.mark.parametrize("is_commit", [True, False])
async def test_offsets_of_a_group_are_committed_with_the_transaction_or_not_at_all(
    servers: str, topic: str, is_commit: bool
) -> None:
    place, group = TopicPartition(topic, 0), f"group-{topic}"
    async with running(new_producer(servers, topic)) as producer:
        await producer.begin_transaction()
        await producer.send_offsets_to_transaction({place: 7}, group)
        if is_commit:
            await producer.commit_transaction()
        else:
            await producer.abort_transaction()
    async with running(AIOKafkaConsumer(bootstrap_servers=servers, group_id=group)) as consumer:
        consumer.assign([place])
        assert await consumer.committed(place) == (7 if is_commit else None)
