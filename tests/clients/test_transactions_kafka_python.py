"""Transactions by kafka-python: committed, aborted, fenced, and with a group's offsets."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from kafka import KafkaConsumer, KafkaProducer, TopicPartition  # type: ignore[import-untyped]
from kafka.errors import KafkaError  # type: ignore[import-untyped]
from kafka.structs import OffsetAndMetadata  # type: ignore[import-untyped]

from tests.broker.requests import unique_topic
from tests.clients.with_kafka_python import TIMEOUT_MS, KafkaPythonAdapter


@contextmanager
def new_producer(servers: str, name: str) -> Iterator[Any]:
    producer = KafkaProducer(bootstrap_servers=servers, transactional_id=name, max_block_ms=TIMEOUT_MS)
    try:
        producer.init_transactions()
        yield producer
    finally:
        producer.close(timeout=5)


@contextmanager
def new_consumer(
    servers: str, topic: str, isolation: str = "read_committed", group: str | None = None
) -> Iterator[Any]:
    consumer = KafkaConsumer(
        bootstrap_servers=servers,
        group_id=group,
        isolation_level=isolation,
        enable_auto_commit=False,
        auto_offset_reset="earliest",
    )
    try:
        consumer.assign([TopicPartition(topic, 0)])
        yield consumer
    finally:
        consumer.close()


def read(servers: str, topic: str, isolation: str = "read_committed") -> list[bytes]:
    """Everything up to the end that this isolation level sees."""
    place, values = TopicPartition(topic, 0), []
    with new_consumer(servers, topic, isolation) as consumer:
        consumer.seek_to_beginning(place)
        (end,) = consumer.end_offsets([place]).values()
        while consumer.position(place) < end:
            values += [record.value for record in consumer.poll(500).get(place, ())]
    return values


@pytest.fixture
def topic(servers: str) -> str:
    name = unique_topic("transactions-kafka-python")
    KafkaPythonAdapter().create_topic(servers, name, 1)
    return name


def test_readers_of_committed_data_see_committed_transactions_and_nothing_else(servers: str, topic: str) -> None:
    with new_producer(servers, topic) as producer:
        for number in range(4):
            producer.begin_transaction()
            futures = [producer.send(topic, b"%d-%d" % (number, index)) for index in range(5)]
            for future in futures:
                future.get(TIMEOUT_MS / 1000)
            if number % 2:
                producer.abort_transaction()
            else:
                producer.commit_transaction()
    assert read(servers, topic) == [b"%d-%d" % (number, index) for number in (0, 2) for index in range(5)]
    assert len(read(servers, topic, "read_uncommitted")) == 20


def test_a_new_producer_fences_the_old_one(servers: str, topic: str) -> None:
    with new_producer(servers, topic) as old:
        old.begin_transaction()
        old.send(topic, b"left open").get(TIMEOUT_MS / 1000)
        with new_producer(servers, topic) as new:
            with pytest.raises(KafkaError):
                old.commit_transaction()
            new.begin_transaction()
            new.send(topic, b"kept")
            new.commit_transaction()
    assert read(servers, topic) == [b"kept"]


@pytest.mark.parametrize("is_commit", [True, False])
def test_offsets_of_a_group_are_committed_with_the_transaction_or_not_at_all(
    servers: str, topic: str, is_commit: bool
) -> None:
    place = TopicPartition(topic, 0)
    group = f"group-{topic}"
    with new_producer(servers, topic) as producer, new_consumer(servers, topic, group=group) as consumer:
        producer.begin_transaction()
        producer.send_offsets_to_transaction({place: OffsetAndMetadata(7, "", -1)}, group)
        if is_commit:
            producer.commit_transaction()
        else:
            producer.abort_transaction()
        assert consumer.committed(place) == (7 if is_commit else None)
