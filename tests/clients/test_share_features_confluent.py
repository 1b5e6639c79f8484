"""Delay and order of keys as confluent-kafka sees them: headers of its Producer, messages of its ShareConsumer."""

import itertools
import time

import pytest
from confluent_kafka import KafkaException, Message, Producer, ShareConsumer
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from tests.broker.raw_client import RawClient
from tests.broker.share_member import set_group

PATIENCE_SECONDS = 30.0
_numbers = itertools.count()


def made_topic(servers: str, features: str) -> tuple[str, str]:
    """A topic with these features, and a share group that begins at its first message."""
    number = next(_numbers)
    topic, group = f"share-features-{number}", f"features-crew-{number}"
    new = NewTopic(topic, 1, 1, config={"martlet.queue.features": features})
    admin = AdminClient({"bootstrap.servers": servers})
    admin.create_topics([new])[topic].result(10)
    with RawClient(servers) as client:
        set_group(client, group, share__auto__offset__reset="earliest")
    return topic, group


def published(servers: str, topic: str, value: str, key: str | None = None, **headers: str) -> None:
    failures: list[str] = []
    producer = Producer({"bootstrap.servers": servers})
    given: list[tuple[str, str | bytes | None]] = [
        (f"martlet-{name.replace('_', '-')}", text.encode()) for name, text in headers.items()
    ]

    def was_delivered(error: object, message: Message) -> None:
        if error is not None:
            failures.append(str(error))

    producer.produce(topic, value=value.encode(), key=key, headers=given, on_delivery=was_delivered)
    producer.flush(PATIENCE_SECONDS)
    if failures:
        raise KafkaException(failures[0])


def received(consumer: ShareConsumer, count: int) -> list[tuple[str, float]]:
    """Values, and when they came."""
    found: list[tuple[str, float]] = []
    until = time.monotonic() + PATIENCE_SECONDS
    while len(found) < count:
        assert time.monotonic() < until, found
        for message in consumer.poll(0.2):
            assert message.error() is None, message.error()
            found.append(((message.value() or b"").decode(), time.time()))
    return found


def consumer_of(servers: str, topic: str, group: str) -> ShareConsumer:
    consumer = ShareConsumer({"bootstrap.servers": servers, "group.id": group})
    consumer.subscribe([topic])
    return consumer


def test_a_delayed_message_reaches_a_share_consumer_when_it_is_due(servers: str) -> None:
    topic, group = made_topic(servers, "delay")
    consumer = consumer_of(servers, topic, group)
    try:
        published(servers, topic, "warm")
        assert received(consumer, 1)[0][0] == "warm"
        due = time.time() + 1.5
        published(servers, topic, "later", deliver_at=str(int(due * 1000)))
        published(servers, topic, "now")
        (now, _), (later, came) = received(consumer, 2)
        assert (now, later) == ("now", "later")
        assert came >= due
    finally:
        consumer.close()


def test_nonsense_is_refused_to_a_producer(servers: str) -> None:
    topic, _ = made_topic(servers, "delay")
    with pytest.raises(KafkaException):
        published(servers, topic, "never", delay_ms="soon")


def test_messages_of_a_key_reach_share_consumers_in_their_order(servers: str) -> None:
    topic, group = made_topic(servers, "key-order")
    for number in range(6):
        published(servers, topic, str(number), key="ab"[number % 2])
    consumers = [consumer_of(servers, topic, group) for _ in range(2)]
    try:
        values: list[str] = []
        until = time.monotonic() + PATIENCE_SECONDS
        while len(values) < 6:
            assert time.monotonic() < until, values
            for consumer in consumers:
                values += [(message.value() or b"").decode() for message in consumer.poll(0.2)]
        assert [value for value in values if int(value) % 2 == 0] == ["0", "2", "4"]
        assert [value for value in values if int(value) % 2] == ["1", "3", "5"]
    finally:
        for consumer in consumers:
            consumer.close()
