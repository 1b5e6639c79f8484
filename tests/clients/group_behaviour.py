"""What a group must do whatever client its members use, once; each client's test file runs it with its own members."""

import gc
import logging
import subprocess
import sys
import threading
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import ClassVar

import pytest
from confluent_kafka import Producer

from martlet.base.errors import ErrorCode
from martlet.testing.running_broker import RunningBroker
from martlet.wire.messages.consumer_group_describe import ConsumerGroupDescribeRequest
from tests.broker.raw_client import RawClient
from tests.broker.requests import unique_topic
from tests.broker.scrape import unexpected_errors
from tests.clients.group_ledger import Ledger
from tests.clients.group_members import BROKER_HEARTBEAT_MS, SESSION_MS, Member
from tests.clients.with_confluent import ConfluentAdapter

PARTITIONS = 12
PATIENCE_SECONDS = 30.0
EXPIRY_MARGIN_SECONDS = 5.0
"""For a busy machine: heartbeats of those that stay, a join and a sync."""


@contextmanager
def groups_broker() -> Iterator[RunningBroker]:
    """A broker whose groups notice everything soon."""
    with RunningBroker(
        group_min_session_timeout_ms=1_000,
        consumer_group_session_timeout_ms=SESSION_MS,
        consumer_group_heartbeat_interval_ms=BROKER_HEARTBEAT_MS,
    ) as running:
        yield running
        assert unexpected_errors(running.operations_url) == 0


@contextmanager
def leaks_collected() -> Iterator[None]:
    """kafka-python leaves sockets to the garbage collector, which warns about each, in whatever test runs by then.

    It also logs, and a log entry that is kept keeps the socket.
    """
    logger = logging.getLogger("kafka")
    logger.setLevel(logging.CRITICAL + 1)
    try:
        yield
    finally:
        logger.setLevel(logging.NOTSET)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ResourceWarning)
            gc.collect()


class Publisher:
    """Publishes to all partitions in turn, until it is told to stop."""

    def __init__(self, servers: str, topic: str, partitions: int) -> None:
        self.ends = [0] * partitions
        self._topic = topic
        self._producer = Producer({"bootstrap.servers": servers, "linger.ms": 1})
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name="publisher", daemon=True)
        self._thread.start()

    def stop(self) -> list[int]:
        """End offsets, once everything is acknowledged."""
        self.cease()
        assert self._producer.flush(PATIENCE_SECONDS) == 0
        return self.ends

    def cease(self) -> None:
        self._stopping.set()
        self._thread.join()

    def _run(self) -> None:
        while not self._stopping.wait(0.02):
            for partition, end in enumerate(self.ends):
                self._producer.produce(self._topic, b"%d" % end, partition=partition)
                self.ends[partition] = end + 1
            self._producer.poll(0)


def publish(servers: str, topic: str, partitions: int, count: int) -> None:
    """So many messages to every partition."""
    producer = Producer({"bootstrap.servers": servers})
    for number in range(count):
        for partition in range(partitions):
            producer.produce(topic, b"%d" % number, partition=partition)
    assert producer.flush(PATIENCE_SECONDS) == 0


class Group:
    """A topic, a group that reads it, and its members."""

    def __init__(self, servers: str, kind: type[Member], partitions: int = PARTITIONS) -> None:
        self.servers = servers
        self.kind = kind
        self.topic = unique_topic("group")
        self.id = f"group of {self.topic}"
        self.ledger = Ledger(partitions)
        self.members: dict[str, Member] = {}
        self._publishers: list[Publisher] = []
        ConfluentAdapter().create_topic(servers, self.topic, partitions)

    def publisher(self) -> Publisher:
        """Messages flow from now on."""
        self._publishers.append(Publisher(self.servers, self.topic, self.ledger.partitions))
        return self._publishers[-1]

    def start(self, *names: str, kind: type[Member] | None = None, instance_id: str | None = None) -> None:
        for name in names:
            make = kind or self.kind
            self.members[name] = make(self.servers, self.id, self.topic, self.ledger, name, instance_id=instance_id)

    def stop(self, *names: str) -> None:
        for name in names:
            self.members.pop(name).stop()

    def settle(self, *names: str) -> float:
        """Wait until these share all partitions."""
        return self.ledger.wait_shared(names, PATIENCE_SECONDS)

    def close(self) -> None:
        for publisher in self._publishers:
            publisher.cease()
        self.stop(*self.members)

    def epoch(self) -> int:
        """The epoch of a consumer group; -1 for a classic one, which does not tell its generation."""
        with RawClient(self.servers) as client:
            (described,) = client.call(ConsumerGroupDescribeRequest([self.id]), 1).groups
        return int(described.group_epoch) if described.error_code == ErrorCode.NONE else -1


class GroupBehaviour:
    """Subclasses name their kind of member; the tests are inherited."""

    kind: ClassVar[type[Member]]

    @pytest.fixture(scope="class")
    @classmethod
    def quick_broker(cls) -> Iterator[RunningBroker]:
        with groups_broker() as running:
            yield running

    @pytest.fixture
    def group(self, quick_broker: RunningBroker) -> Iterator[Group]:
        group = Group(quick_broker.bootstrap_servers, self.kind)
        yield group
        group.close()

    def test_a_group_grows_to_four_and_shrinks_to_one_while_messages_flow(self, group: Group) -> None:
        publisher = group.publisher()
        group.start("a")
        group.settle("a")
        group.start("b", "c", "d")
        group.settle("a", "b", "c", "d")
        flowing = [done + 1 for done in group.ledger.done()]
        group.ledger.wait_read(flowing, PATIENCE_SECONDS)
        group.stop("b", "c")
        group.settle("a", "d")
        group.stop("a")
        group.settle("d")
        group.ledger.wait_read(publisher.stop(), PATIENCE_SECONDS)
        group.stop("d")
        group.ledger.check()

    def test_the_partitions_of_a_killed_member_move_within_its_session(self, group: Group) -> None:
        words = [self.kind.__name__, group.servers, group.id, group.topic, "doomed"]
        doomed = subprocess.Popen(
            [sys.executable, "-m", "tests.clients.group_member_entry", *words], stdout=subprocess.PIPE, text=True
        )
        try:
            assert doomed.stdout is not None
            while not (line := doomed.stdout.readline()).startswith("assigned"):
                assert line.startswith("revoked"), line
            group.start("a")
            half = PARTITIONS // 2
            group.ledger.wait_for(
                lambda: len(group.ledger.owned_by("a")) == half, PATIENCE_SECONDS, "half of it is a's"
            )
            doomed.kill()
            limit_seconds = SESSION_MS / 1000 + EXPIRY_MARGIN_SECONDS
            group.ledger.wait_shared(["a"], limit_seconds)
        finally:
            doomed.kill()
            doomed.communicate()
        group.ledger.check()

    def test_a_static_member_that_restarts_disturbs_no_member(self, group: Group) -> None:
        group.start("a", instance_id="first")
        group.start("b", instance_id="second")
        group.settle("a", "b")
        had, others, epoch = group.ledger.owned_by("a"), group.ledger.events_of("b"), group.epoch()
        group.stop("a")
        group.start("a", instance_id="first")
        group.settle("a", "b")
        publish(group.servers, group.topic, PARTITIONS, 10)
        group.ledger.wait_read([10] * PARTITIONS, PATIENCE_SECONDS)
        assert group.ledger.owned_by("a") == had
        assert group.ledger.events_of("b") == others
        assert group.epoch() == epoch
        group.ledger.check()

    def test_a_group_goes_on_where_it_left_off(self, group: Group) -> None:
        publish(group.servers, group.topic, PARTITIONS, 20)
        group.start("a")
        group.ledger.wait_read([20] * PARTITIONS, PATIENCE_SECONDS)
        group.stop("a")
        count = group.ledger.count
        publish(group.servers, group.topic, PARTITIONS, 5)
        group.start("b")
        group.ledger.wait_read([25] * PARTITIONS, PATIENCE_SECONDS)
        group.stop("b")
        assert group.ledger.count == count + 5 * PARTITIONS
        group.ledger.check()


class CooperativeBehaviour(GroupBehaviour):
    """What is more where a rebalance moves only what has to move."""

    def test_a_rebalance_leaves_alone_what_does_not_move(self, group: Group) -> None:
        publisher = group.publisher()
        group.start("a")
        group.settle("a")
        group.start("b")
        group.settle("a", "b")
        kept = group.ledger.owned_by("a")
        given_back = frozenset[int]().union(
            *(event.partitions for event in group.ledger.events_of("a") if event.kind == "revoked")
        )
        assert given_back == frozenset(range(PARTITIONS)) - kept
        group.ledger.wait_read(publisher.stop(), PATIENCE_SECONDS)
        group.ledger.check()
