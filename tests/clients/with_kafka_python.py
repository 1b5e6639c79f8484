"""kafka-python doing what the tests ask of every client."""

from collections.abc import Iterable, Sequence
from typing import Any

from kafka import KafkaAdminClient, KafkaConsumer, KafkaProducer, TopicPartition  # type: ignore[import-untyped]

from tests.clients.messages import Message, Place

TIMEOUT_MS = 30_000


class KafkaPythonAdapter:
    """See `ClientAdapter`."""

    name = "kafka_python"

    def create_topic(self, servers: str, topic: str, partitions: int) -> None:
        with KafkaAdminClient(bootstrap_servers=servers) as admin:
            admin.create_topics({topic: {"num_partitions": partitions, "replication_factor": 1}})

    def publish(
        self,
        servers: str,
        topic: str,
        messages: Sequence[Message],
        *,
        compression: str = "none",
        idempotent: bool = False,
    ) -> list[Place]:
        producer = KafkaProducer(
            bootstrap_servers=servers,
            compression_type=None if compression == "none" else compression,
            enable_idempotence=idempotent,
            linger_ms=5,
            batch_size=64 * 1024,
        )
        try:
            sent = [
                producer.send(
                    topic,
                    key=message.key,
                    value=message.value,
                    headers=list(message.headers),
                    timestamp_ms=message.timestamp_ms,
                )
                for message in messages
            ]
            producer.flush(timeout=TIMEOUT_MS / 1000)
            done = [future.get(timeout=TIMEOUT_MS / 1000) for future in sent]
            return [Place(one.partition, one.offset) for one in done]
        finally:
            producer.close()

    def read(self, servers: str, topic: str, starts: dict[int, int]) -> dict[Place, Message]:
        consumer = new_consumer(servers)
        try:
            partitions = {partition: TopicPartition(topic, partition) for partition in starts}
            consumer.assign(list(partitions.values()))
            for partition, offset in starts.items():
                consumer.seek(partitions[partition], offset)
            ends = consumer.end_offsets(list(partitions.values()))
            return consume(consumer, starts, {one.partition: end for one, end in ends.items()})
        finally:
            consumer.close()

    def offsets_for_time(
        self, servers: str, topic: str, partitions: Iterable[int], timestamp_ms: int
    ) -> dict[int, int | None]:
        consumer = new_consumer(servers)
        try:
            asked = {TopicPartition(topic, partition): timestamp_ms for partition in partitions}
            found = consumer.offsets_for_times(asked)
            return {one.partition: None if place is None else place.offset for one, place in found.items()}
        finally:
            consumer.close()


def new_consumer(servers: str, **settings: Any) -> Any:
    """A consumer without a group."""
    return KafkaConsumer(
        bootstrap_servers=servers, group_id=None, enable_auto_commit=False, max_poll_records=5000, **settings
    )


def consume(consumer: Any, starts: dict[int, int], ends: dict[int, int]) -> dict[Place, Message]:
    """All messages from the starts to the ends."""
    positions = dict(starts)
    read: dict[Place, Message] = {}
    while any(positions[partition] < ends[partition] for partition in positions):
        batch = consumer.poll(TIMEOUT_MS)
        assert batch, f"nothing came; at {positions} of {ends}"
        for received in (one for some in batch.values() for one in some):
            place = Place(received.partition, received.offset)
            assert place.offset == positions[place.partition]
            positions[place.partition] += 1
            headers = tuple((name, bytes(value)) for name, value in received.headers)
            read[place] = Message(received.key, received.value, headers, received.timestamp)
    return read
