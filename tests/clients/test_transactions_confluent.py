"""Transactions by confluent-kafka (librdkafka): committed, aborted, fenced, left open, and with a group's offsets."""

import time
from collections.abc import Iterable, Iterator

import pytest
from confluent_kafka import Consumer, KafkaError, KafkaException, Producer, TopicPartition

from tests.broker.requests import unique_topic
from tests.clients.with_confluent import TIMEOUT_SECONDS, ConfluentAdapter

PARTITIONS = 3


def new_producer(servers: str, name: str, **settings: object) -> Producer:
    producer = Producer({"bootstrap.servers": servers, "transactional.id": name, "linger.ms": 0, **settings})
    producer.init_transactions(TIMEOUT_SECONDS)
    return producer


def publish(producer: Producer, topic: str, values: Iterable[str]) -> None:
    """In the transaction that is begun here; on the brokers when it returns."""
    producer.begin_transaction()
    for number, value in enumerate(values):
        producer.produce(topic, value.encode(), partition=number % PARTITIONS)
    producer.flush(TIMEOUT_SECONDS)


def new_consumer(servers: str, group: str, isolation: str = "read_committed") -> Consumer:
    return Consumer(
        {
            "bootstrap.servers": servers,
            "group.id": group,
            "isolation.level": isolation,
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
            "enable.partition.eof": True,
        }
    )


def read(servers: str, topic: str, isolation: str = "read_committed") -> list[str]:
    """Everything up to the end that this isolation level sees, sorted."""
    consumer = new_consumer(servers, f"reader-of-{topic}", isolation)
    consumer.assign([TopicPartition(topic, index, 0) for index in range(PARTITIONS)])
    try:
        return sorted(value.decode() for value in _until_ends(consumer, PARTITIONS))
    finally:
        consumer.close()


def _until_ends(consumer: Consumer, partitions: int) -> Iterator[bytes]:
    deadline = time.monotonic() + TIMEOUT_SECONDS
    ended: set[int | None] = set()
    while len(ended) < partitions:
        assert time.monotonic() < deadline
        message = consumer.poll(1.0)
        if message is None:
            continue
        error = message.error()
        if error is not None:
            assert error.code() == KafkaError._PARTITION_EOF, error
            ended.add(message.partition())
        else:
            value = message.value()
            assert value is not None
            yield value


@pytest.fixture
def topic(servers: str) -> str:
    name = unique_topic("transactions-confluent")
    ConfluentAdapter().create_topic(servers, name, PARTITIONS)
    return name


def test_readers_of_committed_data_see_committed_transactions_and_nothing_else(servers: str, topic: str) -> None:
    producer = new_producer(servers, topic)
    for number in range(6):
        publish(producer, topic, [f"{number}-{index}" for index in range(9)])
        if number % 2:
            producer.abort_transaction(TIMEOUT_SECONDS)
        else:
            producer.commit_transaction(TIMEOUT_SECONDS)
    assert read(servers, topic) == sorted(f"{number}-{index}" for number in (0, 2, 4) for index in range(9))
    assert len(read(servers, topic, "read_uncommitted")) == 6 * 9


def test_what_is_open_is_not_seen_by_readers_of_committed_data(servers: str, topic: str) -> None:
    first, second = new_producer(servers, f"{topic}-1"), new_producer(servers, f"{topic}-2")
    publish(first, topic, ["first"])
    publish(second, topic, ["second"])
    second.commit_transaction(TIMEOUT_SECONDS)
    assert read(servers, topic) == []
    assert read(servers, topic, "read_uncommitted") == ["first", "second"]
    first.commit_transaction(TIMEOUT_SECONDS)
    assert read(servers, topic) == ["first", "second"]


def test_a_new_producer_fences_the_old_one_and_aborts_what_it_left_open(servers: str, topic: str) -> None:
    old = new_producer(servers, topic)
    publish(old, topic, ["left open"])
    new = new_producer(servers, topic)
    with pytest.raises(KafkaException) as refused:
        old.commit_transaction(TIMEOUT_SECONDS)
    assert refused.value.args[0].code() == KafkaError._FENCED
    publish(new, topic, ["kept"])
    new.commit_transaction(TIMEOUT_SECONDS)
    assert read(servers, topic) == ["kept"]


def test_a_transaction_that_is_left_open_is_aborted_when_its_time_is_up(servers: str, topic: str) -> None:
    producer = new_producer(servers, topic, **{"transaction.timeout.ms": 1_000, "message.timeout.ms": 1_000})
    publish(producer, topic, ["late"])
    other = new_producer(servers, f"{topic}-other")
    publish(other, topic, ["on time"])
    other.commit_transaction(TIMEOUT_SECONDS)
    deadline = time.monotonic() + TIMEOUT_SECONDS
    while read(servers, topic) != ["on time"]:
        assert time.monotonic() < deadline
    with pytest.raises(KafkaException):
        producer.commit_transaction(TIMEOUT_SECONDS)


@pytest.mark.parametrize("is_commit", [True, False])
def test_offsets_of_a_group_are_committed_with_the_transaction_or_not_at_all(
    servers: str, topic: str, is_commit: bool
) -> None:
    source = unique_topic("transactions-source")
    ConfluentAdapter().create_topic(servers, source, PARTITIONS)
    feeder = new_producer(servers, f"{topic}-feeder")
    publish(feeder, source, [str(number) for number in range(30)])
    feeder.commit_transaction(TIMEOUT_SECONDS)
    consumer = new_consumer(servers, f"group-{topic}")
    consumer.subscribe([source])
    producer = new_producer(servers, topic)
    producer.begin_transaction()
    for value in _until_ends(consumer, PARTITIONS):
        producer.produce(topic, value)
    positions = consumer.position(consumer.assignment())
    producer.send_offsets_to_transaction(positions, consumer.consumer_group_metadata(), TIMEOUT_SECONDS)
    if is_commit:
        producer.commit_transaction(TIMEOUT_SECONDS)
    else:
        producer.abort_transaction(TIMEOUT_SECONDS)
    committed = consumer.committed(consumer.assignment(), timeout=TIMEOUT_SECONDS)
    consumer.close()
    offsets = sorted(one.offset for one in committed)
    # Ten messages and the marker in each partition; the client commits the place behind the last it was given.
    assert all(offset >= 10 for offset in offsets) if is_commit else all(offset < 0 for offset in offsets)
    assert len(read(servers, topic)) == (30 if is_commit else 0)


def test_many_producers_share_partitions_without_seeing_each_other(servers: str, topic: str) -> None:
    producers = [new_producer(servers, f"{topic}-{number}") for number in range(4)]
    for step in range(5):
        for number, producer in enumerate(producers):
            publish(producer, topic, [f"{step}-{number}-{index}" for index in range(3)])
        for number, producer in enumerate(producers):
            if (step + number) % 3:
                producer.commit_transaction(TIMEOUT_SECONDS)
            else:
                producer.abort_transaction(TIMEOUT_SECONDS)
    expected = [
        f"{step}-{number}-{i}" for step in range(5) for number in range(4) for i in range(3) if (step + number) % 3
    ]
    assert read(servers, topic) == sorted(expected)
