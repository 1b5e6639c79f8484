"""How far a group is behind, as a monitoring system scrapes it, against a count made by other means."""

import time
from collections.abc import Iterator

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient

from martlet.testing.running_broker import RunningBroker
from tests.broker.requests import unique_topic
from tests.broker.scrape import scrape, wait_until
from tests.clients.with_confluent import TIMEOUT_SECONDS, ConfluentAdapter

AGES_SECONDS = (3_000, 2_000, 1_000, 500, 100)
"""How old the messages of each partition are when they are published."""


@pytest.fixture(scope="module")
def lag_broker() -> Iterator[RunningBroker]:
    with RunningBroker(group_lag_interval_ms=50) as running:
        yield running


@pytest.fixture
def topic(lag_broker: RunningBroker) -> str:
    topic = unique_topic("lag")
    servers = lag_broker.bootstrap_servers
    ConfluentAdapter().create_topic(servers, topic, 2)
    producer = Producer({"bootstrap.servers": servers})
    now_ms = time.time_ns() // 1_000_000
    for partition in range(2):
        for age_seconds in AGES_SECONDS:
            producer.produce(topic, b"x", partition=partition, timestamp=now_ms - 1_000 * age_seconds)
    assert producer.flush(TIMEOUT_SECONDS) == 0
    return topic


def commit(servers: str, group: str, topic: str, *offsets: int) -> None:
    consumer = Consumer({"bootstrap.servers": servers, "group.id": group})
    places = [TopicPartition(topic, partition, offset) for partition, offset in enumerate(offsets)]
    consumer.commit(offsets=places, asynchronous=False)
    consumer.close()


def lag_of(broker: RunningBroker, group: str, topic: str) -> tuple[float | None, float | None]:
    """In messages and in seconds, as scraped."""
    samples = scrape(broker.operations_url)
    labels = f'{{group="{group}",topic="{topic}"}}'
    return samples.get(f"martlet_group_lag_messages{labels}"), samples.get(f"martlet_group_lag_seconds{labels}")


@pytest.mark.parametrize(
    ("offsets", "messages", "age_seconds"), [((0, 0), 10, 3_000), ((1, 3), 6, 2_000), ((5, 4), 1, 100), ((5, 5), 0, 0)]
)
def test_the_lag_is_what_is_left_to_read_and_how_old_it_is(
    lag_broker: RunningBroker, topic: str, offsets: tuple[int, int], messages: int, age_seconds: int
) -> None:
    group = f"readers of {topic}"
    commit(lag_broker.bootstrap_servers, group, topic, *offsets)
    wait_until(lambda: lag_of(lag_broker, group, topic)[0] == messages, f"{messages} messages")
    seconds = lag_of(lag_broker, group, topic)[1]
    assert seconds == pytest.approx(age_seconds, abs=30)


def test_the_series_of_a_deleted_topic_go(lag_broker: RunningBroker, topic: str) -> None:
    group = f"readers of {topic}"
    commit(lag_broker.bootstrap_servers, group, topic, 2, 2)
    wait_until(lambda: lag_of(lag_broker, group, topic)[0] == 6, "six messages")
    admin = AdminClient({"bootstrap.servers": lag_broker.bootstrap_servers})
    admin.delete_topics([topic])[topic].result(TIMEOUT_SECONDS)
    wait_until(lambda: lag_of(lag_broker, group, topic) == (None, None), "no series")
