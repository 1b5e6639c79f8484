"""aiokafka doing what the tests ask of every client; each call runs an event loop of its own."""

import asyncio
from collections.abc import AsyncIterator, Iterable, Sequence
from contextlib import asynccontextmanager
from typing import Any

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition  # type: ignore[import-untyped]
from aiokafka.admin import AIOKafkaAdminClient, NewTopic  # type: ignore[import-untyped]

from tests.clients.messages import Message, Place

TIMEOUT_MS = 30_000


class AiokafkaAdapter:
    """See `ClientAdapter`."""

    name = "aiokafka"

    def create_topic(self, servers: str, topic: str, partitions: int) -> None:
        asyncio.run(_create_topic(servers, topic, partitions))

    def publish(
        self,
        servers: str,
        topic: str,
        messages: Sequence[Message],
        *,
        compression: str = "none",
        idempotent: bool = False,
    ) -> list[Place]:
        return asyncio.run(_publish(servers, topic, messages, compression, idempotent))

    def read(self, servers: str, topic: str, starts: dict[int, int]) -> dict[Place, Message]:
        return asyncio.run(_read(servers, topic, starts))

    def offsets_for_time(
        self, servers: str, topic: str, partitions: Iterable[int], timestamp_ms: int
    ) -> dict[int, int | None]:
        return asyncio.run(_offsets_for_time(servers, topic, list(partitions), timestamp_ms))


@asynccontextmanager
async def running(client: Any) -> AsyncIterator[Any]:
    """Start an aiokafka client and stop it afterwards; its admin client calls these two otherwise."""
    await client.start()
    try:
        yield client
    finally:
        await (client.close() if isinstance(client, AIOKafkaAdminClient) else client.stop())


async def _create_topic(servers: str, topic: str, partitions: int) -> None:
    async with running(AIOKafkaAdminClient(bootstrap_servers=servers)) as admin:
        response = await admin.create_topics([NewTopic(topic, partitions, 1)])
        (result,) = response.topic_errors
        assert result[1] == 0, result


async def _publish(
    servers: str, topic: str, messages: Sequence[Message], compression: str, idempotent: bool
) -> list[Place]:
    producer = AIOKafkaProducer(
        bootstrap_servers=servers,
        compression_type=None if compression == "none" else compression,
        enable_idempotence=idempotent,
        max_batch_size=64 * 1024,
    )
    async with running(producer):
        sent = [
            await producer.send(
                topic,
                key=message.key,
                value=message.value,
                headers=list(message.headers),
                timestamp_ms=message.timestamp_ms,
            )
            for message in messages
        ]
        done = await asyncio.wait_for(asyncio.gather(*sent), TIMEOUT_MS / 1000)
        return [Place(one.partition, one.offset) for one in done]


async def _read(servers: str, topic: str, starts: dict[int, int]) -> dict[Place, Message]:
    async with running(new_consumer(servers)) as consumer:
        partitions = {partition: TopicPartition(topic, partition) for partition in starts}
        consumer.assign(list(partitions.values()))
        for partition, offset in starts.items():
            consumer.seek(partitions[partition], offset)
        ends = await consumer.end_offsets(list(partitions.values()))
        return await consume(consumer, starts, {one.partition: end for one, end in ends.items()})


async def _offsets_for_time(
    servers: str, topic: str, partitions: list[int], timestamp_ms: int
) -> dict[int, int | None]:
    async with running(new_consumer(servers)) as consumer:
        asked = {TopicPartition(topic, partition): timestamp_ms for partition in partitions}
        consumer.assign(list(asked))
        found = await consumer.offsets_for_times(asked)
        return {one.partition: None if place is None else place.offset for one, place in found.items()}


def new_consumer(servers: str, **settings: Any) -> Any:
    """A consumer without a group."""
    return AIOKafkaConsumer(bootstrap_servers=servers, group_id=None, enable_auto_commit=False, **settings)


async def consume(consumer: Any, starts: dict[int, int], ends: dict[int, int]) -> dict[Place, Message]:
    """All messages from the starts to the ends."""
    positions = dict(starts)
    read: dict[Place, Message] = {}
    while any(positions[partition] < ends[partition] for partition in positions):
        batch = await consumer.getmany(timeout_ms=TIMEOUT_MS)
        assert batch, f"nothing came; at {positions} of {ends}"
        for received in (one for some in batch.values() for one in some):
            place = Place(received.partition, received.offset)
            assert place.offset == positions[place.partition]
            positions[place.partition] += 1
            headers = tuple((name, bytes(value)) for name, value in received.headers)
            read[place] = Message(received.key, received.value, headers, received.timestamp)
    return read
