"""confluent-kafka (librdkafka) doing what the tests ask of every client."""

import time
from collections.abc import Iterable, Sequence
from functools import partial
from typing import Any

import confluent_kafka.admin
from confluent_kafka import Consumer, KafkaError, Producer, TopicPartition
from confluent_kafka import Message as Received
from confluent_kafka.admin import AdminClient

from tests.clients.messages import Message, Place

TIMEOUT_SECONDS = 30.0

names: Any = confluent_kafka.admin
"""The package re-exports its admin classes without saying so to type checkers."""


class ConfluentAdapter:
    """See `ClientAdapter`."""

    name = "confluent"

    def create_topic(self, servers: str, topic: str, partitions: int) -> None:
        admin = AdminClient({"bootstrap.servers": servers})
        created = admin.create_topics([names.NewTopic(topic, partitions, 1)])
        created[topic].result(TIMEOUT_SECONDS)

    def publish(
        self,
        servers: str,
        topic: str,
        messages: Sequence[Message],
        *,
        compression: str = "none",
        idempotent: bool = False,
    ) -> list[Place]:
        settings = {
            "bootstrap.servers": servers,
            "compression.type": compression,
            "enable.idempotence": idempotent,
            "linger.ms": 5,
            "partitioner": "murmur2_random",
        }
        places: list[Place | None] = [None] * len(messages)
        producer = Producer(settings)
        for number, message in enumerate(messages):
            producer.produce(
                topic,
                key=message.key,
                value=message.value,
                headers=list(message.headers),
                timestamp=message.timestamp_ms,
                on_delivery=partial(_note, places, number),
            )
            producer.poll(0)
        assert producer.flush(TIMEOUT_SECONDS) == 0
        return [place for place in places if place is not None]

    def read(self, servers: str, topic: str, starts: dict[int, int]) -> dict[Place, Message]:
        consumer = new_consumer(servers)
        try:
            ends = {
                partition: consumer.get_watermark_offsets(TopicPartition(topic, partition), TIMEOUT_SECONDS)[1]
                for partition in starts
            }
            consumer.assign([TopicPartition(topic, partition, offset) for partition, offset in starts.items()])
            return consume(consumer, starts, ends)
        finally:
            consumer.close()

    def offsets_for_time(
        self, servers: str, topic: str, partitions: Iterable[int], timestamp_ms: int
    ) -> dict[int, int | None]:
        consumer = new_consumer(servers)
        try:
            asked = [TopicPartition(topic, partition, timestamp_ms) for partition in partitions]
            found = consumer.offsets_for_times(asked, TIMEOUT_SECONDS)
            assert not any(one.error for one in found)
            return {one.partition: one.offset if one.offset >= 0 else None for one in found}
        finally:
            consumer.close()


def new_consumer(servers: str, **settings: Any) -> Consumer:
    """A consumer that never commits; librdkafka wants a group id even so."""
    return Consumer(
        {"bootstrap.servers": servers, "group.id": "unused", "enable.auto.commit": False}
        | {name.replace("_", "."): value for name, value in settings.items()}
    )


def consume(consumer: Consumer, starts: dict[int, int], ends: dict[int, int]) -> dict[Place, Message]:
    """All messages from the starts to the ends."""
    positions = dict(starts)
    read: dict[Place, Message] = {}
    deadline = time.monotonic() + TIMEOUT_SECONDS
    while any(positions[partition] < ends[partition] for partition in positions):
        # It waits until it has that many or the time is over, so the time is short.
        batch = consumer.consume(1000, 0.05)
        assert time.monotonic() < deadline, f"at {positions} of {ends}"
        for received in batch:
            error = received.error()
            assert error is None, error
            place = Place(_known(received.partition()), _known(received.offset()))
            assert place.offset == positions[place.partition]
            positions[place.partition] += 1
            read[place] = _to_message(received)
    return read


def _to_message(received: Received) -> Message:
    listed: Any = received.headers() or ()
    headers = tuple((name, value) for name, value in listed)
    return Message(received.key(), received.value(), headers, received.timestamp()[1])


def _note(places: list[Place | None], number: int, error: KafkaError | None, done: Received) -> None:
    assert error is None, error
    places[number] = Place(_known(done.partition()), _known(done.offset()))


def _known(number: int | None) -> int:
    assert number is not None
    return number
