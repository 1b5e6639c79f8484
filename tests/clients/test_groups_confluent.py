"""confluent-kafka in groups: both protocols, eager and cooperative; moving between protocols; starting elsewhere."""

from collections.abc import Iterator
from typing import Any

import pytest
from confluent_kafka import Consumer, TopicPartition

from martlet.testing.running_broker import RunningBroker
from tests.clients.group_behaviour import (
    PATIENCE_SECONDS,
    CooperativeBehaviour,
    Group,
    GroupBehaviour,
    groups_broker,
    publish,
)
from tests.clients.group_members import (
    ConfluentMember,
    CooperativeConfluentMember,
    NewConfluentMember,
    RoundRobinConfluentMember,
)
from tests.clients.with_confluent import TIMEOUT_SECONDS


class TestClassic(GroupBehaviour):
    """The classic protocol with an eager assignor: everybody gives everything back first."""

    kind = ConfluentMember


class TestCooperative(CooperativeBehaviour):
    """The classic protocol with the cooperative assignor: two rebalances, each without a standstill."""

    kind = CooperativeConfluentMember


class TestConsumerProtocol(CooperativeBehaviour):
    """KIP-848: the broker assigns."""

    kind = NewConfluentMember


class TestMigration:
    """One group, members of both protocols."""

    @pytest.fixture(scope="class")
    @classmethod
    def quick_broker(cls) -> Iterator[RunningBroker]:
        with groups_broker() as running:
            yield running

    @pytest.fixture(
        params=[ConfluentMember, RoundRobinConfluentMember, CooperativeConfluentMember],
        ids=["range", "roundrobin", "cooperative"],
    )
    def group(self, request: pytest.FixtureRequest, quick_broker: RunningBroker) -> Iterator[Group]:
        group = Group(quick_broker.bootstrap_servers, request.param)
        yield group
        group.close()

    def test_members_of_both_protocols_share_a_group(self, group: Group) -> None:
        publisher = group.publisher()
        group.start("old")
        group.settle("old")
        group.start("new", kind=NewConfluentMember)
        group.settle("old", "new")
        group.start("old 2")
        group.settle("old", "new", "old 2")
        group.ledger.wait_read(publisher.stop(), PATIENCE_SECONDS)
        group.ledger.check()

    def test_a_group_is_upgraded_member_by_member_and_back(self, group: Group) -> None:
        publisher = group.publisher()
        group.start("old 1", "old 2")
        group.settle("old 1", "old 2")
        group.stop("old 1")
        group.start("new 1", kind=NewConfluentMember)
        group.settle("new 1", "old 2")
        group.stop("old 2")
        group.start("new 2", kind=NewConfluentMember)
        group.settle("new 1", "new 2")
        assert group.epoch() > 0, "a group of the consumer protocol"
        group.start("old 3")
        group.settle("new 1", "new 2", "old 3")
        group.stop("new 1")
        group.settle("new 2", "old 3")
        group.stop("new 2")
        group.start("old 4")
        group.settle("old 3", "old 4")
        assert group.epoch() == -1, "a group of the classic protocol"
        group.ledger.wait_read(publisher.stop(), PATIENCE_SECONDS)
        group.ledger.check()


class TestPositions:
    """Where a member of a group begins to read, and how it goes elsewhere."""

    @pytest.fixture(scope="class")
    @classmethod
    def quick_broker(cls) -> Iterator[RunningBroker]:
        with groups_broker() as running:
            yield running

    @pytest.fixture(params=["classic", "consumer"])
    def settings(self, request: pytest.FixtureRequest, quick_broker: RunningBroker) -> dict[str, Any]:
        return {
            "bootstrap.servers": quick_broker.bootstrap_servers,
            "group.protocol": request.param,
            "enable.auto.commit": False,
            "auto.offset.reset": "earliest",
        }

    @pytest.fixture
    def group(self, settings: dict[str, Any]) -> Group:
        group = Group(settings["bootstrap.servers"], ConfluentMember, partitions=1)
        settings["group.id"] = group.id
        publish(group.servers, group.topic, 1, 100)
        return group

    def test_a_commit_says_where_the_next_one_begins(self, group: Group, settings: dict[str, Any]) -> None:
        first = Consumer(settings)
        first.subscribe([group.topic])
        assert read(first, 40) == list(range(40))
        committed = first.commit(offsets=[TopicPartition(group.topic, 0, 30, "halfway")], asynchronous=False)
        assert committed is not None
        assert [one.error for one in committed] == [None]
        first.close()
        second = Consumer(settings)
        second.subscribe([group.topic])
        assert read(second, 10) == list(range(30, 40))
        (found,) = second.committed([TopicPartition(group.topic, 0)], TIMEOUT_SECONDS)
        assert (found.offset, found.metadata) == (30, "halfway")
        second.close()

    def test_a_member_seeks_back_and_forth(self, group: Group, settings: dict[str, Any]) -> None:
        consumer = Consumer(settings)
        consumer.subscribe([group.topic])
        assert read(consumer, 100) == list(range(100))
        for start in (50, 0, 99):
            consumer.seek(TopicPartition(group.topic, 0, start))
            assert read(consumer, 1) == [start]
        consumer.close()

    @pytest.mark.parametrize(("reset", "expected"), [("earliest", [0]), ("latest", [100])])
    def test_without_a_commit_the_reset_policy_decides(
        self, group: Group, settings: dict[str, Any], reset: str, expected: list[int]
    ) -> None:
        assigned: list[Any] = []
        consumer = Consumer(settings | {"auto.offset.reset": reset})
        consumer.subscribe([group.topic], on_assign=lambda _, partitions: assigned.extend(partitions))
        while not assigned:
            consumer.poll(0.05)
        while consumer.position([TopicPartition(group.topic, 0)])[0].offset < 0 and reset == "latest":
            # The position is known when the end of the log was asked for and nothing older was read.
            assert consumer.poll(0.05) is None
            if consumer.get_watermark_offsets(TopicPartition(group.topic, 0), cached=True)[1] == 100:
                break
        publish(group.servers, group.topic, 1, 1)
        assert read(consumer, 1) == expected
        consumer.close()


def read(consumer: Consumer, count: int) -> list[int]:
    """The offsets of this many messages."""
    offsets: list[int] = []
    while len(offsets) < count:
        message = consumer.poll(TIMEOUT_SECONDS)
        assert message is not None, f"nothing came after {offsets[-1:]}"
        assert message.error() is None, message.error()
        offsets.append(message.offset() or 0)
    return offsets
