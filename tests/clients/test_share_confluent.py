"""confluent-kafka's ShareConsumer, unchanged: consumers share a partition, say what becomes of messages, and die."""

import itertools
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator

import pytest
from confluent_kafka import AcknowledgeType, Consumer, Producer, ShareConsumer
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from tests.broker.raw_client import RawClient
from tests.broker.share_member import set_group, set_subscription

PATIENCE_SECONDS = 30.0
_numbers = itertools.count()


class Crew:
    """A topic, a share group that begins at its first message, and consumers of it."""

    def __init__(self, servers: str) -> None:
        self.servers = servers
        number = next(_numbers)
        self.topic, self.group = f"share-{number}", f"crew-{number}"
        self.also(self.topic)
        self.set(share__auto__offset__reset="earliest")
        self.consumers: list[ShareConsumer] = []

    def also(self, topic: str) -> str:
        """A topic of this name is there, too."""
        admin = AdminClient({"bootstrap.servers": self.servers})
        admin.create_topics([NewTopic(topic, 1, 1)])[topic].result(10)
        return topic

    def set(self, **configs: str) -> None:
        with RawClient(self.servers) as client:
            set_group(client, self.group, **configs)

    def publish(self, count: int) -> None:
        producer = Producer({"bootstrap.servers": self.servers, "linger.ms": 1})
        for number in range(count):
            producer.produce(self.topic, value=str(number).encode())
        producer.flush(PATIENCE_SECONDS)

    def consumer(self, mode: str = "implicit") -> ShareConsumer:
        consumer = ShareConsumer(
            {"bootstrap.servers": self.servers, "group.id": self.group, "share.acknowledgement.mode": mode}
        )
        consumer.subscribe([self.topic])
        self.consumers.append(consumer)
        return consumer

    def close(self) -> None:
        for consumer in self.consumers:
            consumer.close()


@pytest.fixture
def crew(servers: str) -> Iterator[Crew]:
    made = Crew(servers)
    yield made
    made.close()


def poll(consumer: ShareConsumer, seconds: float = 0.5) -> list[int]:
    """The values of one poll; an error of a message fails the test."""
    found = []
    for message in consumer.poll(seconds):
        assert message.error() is None, message.error()
        found.append(int(message.value() or b""))
    return found


def poll_until(consumer: ShareConsumer, enough: Callable[[], bool], take: Callable[[list[int]], None]) -> None:
    until = time.monotonic() + PATIENCE_SECONDS
    while not enough():
        assert time.monotonic() < until, "the messages did not come"
        take(poll(consumer))


def test_eight_consumers_on_one_partition_share_the_load(crew: Crew) -> None:
    consumers = [crew.consumer() for _ in range(8)]
    for consumer in consumers:
        poll(consumer)  # joins
    total, got = 8_000, [Counter[int]() for _ in consumers]
    until = time.monotonic() + PATIENCE_SECONDS
    published = 0
    while sum(map(Counter.total, got)) < total and time.monotonic() < until:
        if published < total:
            crew.publish(500)
            published += 500
        for mine, consumer in zip(got, consumers, strict=True):
            mine.update(poll(consumer, 0.05))
    counts = sum(got, Counter())
    # Values repeat with every 500 published.
    assert counts == Counter(dict.fromkeys(range(500), total // 500)), "each once"
    assert all(mine.total() > 0 for mine in got), "every consumer had its part"


def test_accepted_messages_are_gone_released_ones_return_rejected_ones_do_not(crew: Crew) -> None:
    crew.publish(9)
    consumer = crew.consumer("explicit")
    verdicts = {0: AcknowledgeType.ACCEPT, 1: AcknowledgeType.RELEASE, 2: AcknowledgeType.REJECT}
    seen: Counter[int] = Counter()
    until = time.monotonic() + PATIENCE_SECONDS
    while seen.total() < 12 and time.monotonic() < until:
        for message in consumer.poll(0.5):
            value = int(message.value() or b"")
            seen[value] += 1
            verdict = verdicts[value % 3] if seen[value] == 1 else AcknowledgeType.ACCEPT
            consumer.acknowledge(message, verdict)
        outcome = consumer.commit_sync(10)
        assert all(error is None for error in outcome.values()), outcome
    assert seen == Counter({value: 2 if value % 3 == 1 else 1 for value in range(9)})
    assert poll(consumer, 1.0) == [], "everything is finished"


def test_a_message_that_is_always_released_is_given_up(crew: Crew) -> None:
    crew.set(share__delivery__count__limit="3")
    crew.publish(1)
    consumer = crew.consumer("explicit")
    deliveries = 0
    for _ in range(10):
        for message in consumer.poll(0.5):
            deliveries += 1
            consumer.acknowledge(message, AcknowledgeType.RELEASE)
        consumer.commit_sync(10)
    assert deliveries == 3


def test_messages_that_fail_for_good_become_dead_letters(crew: Crew) -> None:
    consumer = crew.consumer("explicit")
    poll(consumer, 0.1)  # joins: the subscription is there from then on
    dead = crew.also(f"{crew.topic}-dead")
    with RawClient(crew.servers) as client:
        set_subscription(client, crew.group, dead__letter__topic=dead, attempts__max="2")
    crew.publish(2)
    deliveries: Counter[int] = Counter()
    until = time.monotonic() + PATIENCE_SECONDS
    while deliveries != {0: 2, 1: 1} and time.monotonic() < until:
        for message in consumer.poll(0.5):
            value = int(message.value() or b"")
            deliveries[value] += 1
            consumer.acknowledge(message, AcknowledgeType.REJECT if value else AcknowledgeType.RELEASE)
        consumer.commit_sync(10)
    assert deliveries == {0: 2, 1: 1}
    reader = Consumer({"bootstrap.servers": crew.servers, "group.id": "dead", "auto.offset.reset": "earliest"})
    reader.subscribe([dead])
    letters = reader.consume(2, PATIENCE_SECONDS)
    reader.close()
    reasons = {int(letter.value() or b""): dict(letter.headers() or [])["martlet-dead-reason"] for letter in letters}
    assert reasons == {0: b"out of attempts", 1: b"rejected"}


def test_a_group_that_asks_for_it_gets_committed_messages_only(crew: Crew) -> None:
    crew.set(share__isolation__level="read_committed")
    producer = Producer({"bootstrap.servers": crew.servers, "transactional.id": crew.group})
    producer.init_transactions(PATIENCE_SECONDS)
    for number, ends_well in enumerate((True, False, True)):
        producer.begin_transaction()
        for value in range(10 * number, 10 * number + 3):
            producer.produce(crew.topic, value=str(value).encode())
        producer.flush(PATIENCE_SECONDS)
        (producer.commit_transaction if ends_well else producer.abort_transaction)(PATIENCE_SECONDS)
    got: list[int] = []
    consumer = crew.consumer()
    poll_until(consumer, lambda: len(got) >= 6, got.extend)
    assert sorted(got) == [0, 1, 2, 20, 21, 22]
    assert poll(consumer, 1.0) == []


def test_what_a_consumer_has_not_accepted_returns_when_it_closes(crew: Crew) -> None:
    crew.publish(20)
    first = crew.consumer("explicit")
    got: list[int] = []
    until = time.monotonic() + PATIENCE_SECONDS
    while not got and time.monotonic() < until:
        for message in first.poll(0.5):
            got.append(int(message.value() or b""))
            if int(message.value() or b"") < 5:
                first.acknowledge(message, AcknowledgeType.ACCEPT)
    first.close()
    crew.consumers.remove(first)
    rest: list[int] = []
    second = crew.consumer()
    poll_until(second, lambda: len(rest) >= 15, rest.extend)
    assert sorted(rest) == list(range(5, 20))


_VICTIM = """
import sys
from confluent_kafka import ShareConsumer
consumer = ShareConsumer({"bootstrap.servers": sys.argv[1], "group.id": sys.argv[2]})
consumer.subscribe([sys.argv[3]])
while True:
    got = [message.value() for message in consumer.poll(0.5)]
    if got:
        print(len(got), flush=True)
        sys.stdin.read()
"""


def test_the_messages_of_a_consumer_that_is_killed_come_back(crew: Crew) -> None:
    crew.publish(100)
    command = [sys.executable, "-c", _VICTIM, crew.servers, crew.group, crew.topic]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as victim:
        assert victim.stdout is not None
        assert int(victim.stdout.readline()) > 0, "it has messages and has said nothing of them"
        victim.kill()
    got: list[int] = []
    consumer = crew.consumer()
    poll_until(consumer, lambda: len(got) >= 100, got.extend)
    assert sorted(got) == list(range(100))
