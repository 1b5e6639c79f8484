"""The group consumer against a real broker: what every client's members are asked, and what only ours can be asked."""

import asyncio
from collections.abc import AsyncIterator, Collection, Iterator

import pytest
from confluent_kafka import Consumer
from confluent_kafka import TopicPartition as ConfluentPartition

from martlet.base.addresses import parse_bootstrap
from martlet.base.errors import ApiError, ErrorCode
from martlet.base.ids import TopicPartition
from martlet.client.cluster import Cluster
from martlet.client.consumer.group_consumer import (
    GroupConsumer,
    GroupConsumerOptions,
    PartitionsLost,
    RebalanceListener,
    Start,
)
from martlet.client.consumer.membership import MemberOptions
from martlet.client.fetched import Fetched
from martlet.client.fetcher import FetcherOptions
from martlet.client.groups import Groups
from martlet.testing.running_broker import RunningBroker
from martlet.wire.messages.consumer_group_describe import ConsumerGroupDescribeRequest
from martlet.wire.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest
from tests.broker.raw_client import RawClient
from tests.broker.requests import unique_topic
from tests.clients.group_behaviour import (
    PATIENCE_SECONDS,
    CooperativeBehaviour,
    Group,
    groups_broker,
    publish,
)
from tests.clients.group_members import MartletMember, NewConfluentMember
from tests.clients.with_confluent import ConfluentAdapter

PARTITIONS = 3


@pytest.fixture(scope="module")
def quick_broker() -> Iterator[RunningBroker]:
    with groups_broker() as running:
        yield running


class TestMembers(CooperativeBehaviour):
    """Sharing, leaving, being killed, restarting as a static member, going on from commits."""

    kind = MartletMember


class TestBesideLibrdkafka:
    """One group, members of two clients."""

    def test_both_share_a_group_that_changes_while_messages_flow(self, quick_broker: RunningBroker) -> None:
        group = Group(quick_broker.bootstrap_servers, MartletMember)
        try:
            publisher = group.publisher()
            group.start("theirs", kind=NewConfluentMember)
            group.settle("theirs")
            group.start("ours")
            group.settle("theirs", "ours")
            group.start("theirs 2", kind=NewConfluentMember)
            group.settle("theirs", "ours", "theirs 2")
            group.stop("theirs")
            group.settle("ours", "theirs 2")
            group.stop("theirs 2")
            group.settle("ours")
            group.ledger.wait_read(publisher.stop(), PATIENCE_SECONDS)
            group.stop("ours")
            group.ledger.check()
        finally:
            group.close()

    async def test_what_one_commits_the_other_finds(self, stage: "Stage") -> None:
        publish(stage.servers, stage.topic, PARTITIONS, 10)
        async with stage.consumer() as consumer:
            consumer.subscribe([stage.topic])
            await stage.read(consumer, 10 * PARTITIONS)
            await consumer.commit()

        def committed() -> list[int]:
            theirs = Consumer({"bootstrap.servers": stage.servers, "group.id": stage.group})
            wanted = [ConfluentPartition(stage.topic, number) for number in range(PARTITIONS)]
            try:
                return [found.offset for found in theirs.committed(wanted, timeout=10)]
            finally:
                theirs.close()

        assert await asyncio.to_thread(committed) == [10] * PARTITIONS


class Journal(RebalanceListener):
    """What the group did with the member's partitions, in order."""

    def __init__(self) -> None:
        self.events: list[tuple[str, int]] = []

    async def on_assigned(self, partitions: Collection[TopicPartition]) -> None:
        self.events.append(("assigned", len(partitions)))

    async def on_revoked(self, partitions: Collection[TopicPartition]) -> None:
        self.events.append(("revoked", len(partitions)))

    async def on_lost(self, partitions: Collection[TopicPartition]) -> None:
        self.events.append(("lost", len(partitions)))


class Stage:
    """A topic, a group and a cluster to make consumers of."""

    def __init__(self, cluster: Cluster, servers: str) -> None:
        self.cluster, self.servers = cluster, servers
        self.topic = unique_topic("consumed")
        self.group = f"group of {self.topic}"
        ConfluentAdapter().create_topic(servers, self.topic, PARTITIONS)

    def consumer(
        self,
        listener: RebalanceListener | None = None,
        *,
        start: Start = Start.EARLIEST,
        assignor: str | None = None,
        max_poll_ms: int = 60_000,
    ) -> GroupConsumer:
        member = MemberOptions(group_id=self.group, assignor=assignor, max_poll_interval_ms=max_poll_ms)
        options = GroupConsumerOptions(member=member, fetch=FetcherOptions(max_wait_ms=50), start=start)
        return GroupConsumer(self.cluster, options, listener)

    async def read(self, consumer: GroupConsumer, count: int) -> list[int]:
        """Offsets of this many messages, in the order they came."""
        offsets: list[int] = []
        async with asyncio.timeout(PATIENCE_SECONDS):
            while len(offsets) < count:
                for fetched in await consumer.poll(100):
                    offsets += offsets_of(fetched)
        return offsets

    async def own(self, consumer: GroupConsumer, count: int) -> None:
        """Poll until the member owns this many partitions."""
        async with asyncio.timeout(PATIENCE_SECONDS):
            while len(consumer.assignment) != count:
                await consumer.poll(50)


def offsets_of(fetched: Fetched) -> list[int]:
    return [record.offset for record in fetched.records(batch_bytes_max=1 << 20)]


@pytest.fixture
async def stage(quick_broker: RunningBroker) -> AsyncIterator[Stage]:
    async with Cluster(parse_bootstrap(quick_broker.bootstrap_servers)) as cluster:
        yield Stage(cluster, quick_broker.bootstrap_servers)


async def test_a_member_that_the_broker_removed_drops_everything_and_joins_again(stage: Stage) -> None:
    journal = Journal()
    async with stage.consumer(journal) as consumer:
        consumer.subscribe([stage.topic])
        await stage.own(consumer, PARTITIONS)
        remove_members(stage)
        while ("lost", PARTITIONS) not in journal.events:
            await consumer.poll(50)
        await stage.own(consumer, PARTITIONS)
        publish(stage.servers, stage.topic, PARTITIONS, 1)
        await stage.read(consumer, PARTITIONS)
        await consumer.commit()
    assert journal.events == [
        ("assigned", PARTITIONS),
        ("lost", PARTITIONS),
        ("assigned", PARTITIONS),
        ("revoked", PARTITIONS),
    ]


async def test_a_commit_of_a_member_that_was_removed_is_refused(stage: Stage) -> None:
    publish(stage.servers, stage.topic, PARTITIONS, 1)
    async with stage.consumer() as consumer:
        consumer.subscribe([stage.topic])
        await stage.read(consumer, PARTITIONS)
        remove_members(stage)
        with pytest.raises(PartitionsLost):
            await consumer.commit()
    assert await Groups(stage.cluster).committed(stage.group) == {}


async def test_an_iteration_hands_out_one_partition_at_a_time_and_commits_what_it_handed_out(stage: Stage) -> None:
    publish(stage.servers, stage.topic, PARTITIONS, 4)
    async with stage.consumer() as consumer:
        consumer.subscribe([stage.topic])
        first = await anext(consumer)
        await consumer.commit()
        committed = await Groups(stage.cluster).committed(stage.group)
        assert committed[first.partition].offset == first.next_position
        assert all(found.offset == 0 for one, found in committed.items() if one != first.partition)
        count = len(offsets_of(first))
        async with asyncio.timeout(PATIENCE_SECONDS):
            while count < 4 * PARTITIONS:
                count += len(offsets_of(await anext(consumer)))
        await consumer.commit()
    committed = await Groups(stage.cluster).committed(stage.group)
    assert [found.offset for found in committed.values()] == [4] * PARTITIONS


async def test_a_paused_partition_goes_on_where_it_stopped(stage: Stage) -> None:
    publish(stage.servers, stage.topic, PARTITIONS, 2)
    async with stage.consumer() as consumer:
        consumer.subscribe([stage.topic])
        await stage.read(consumer, 2 * PARTITIONS)
        paused = TopicPartition(stage.topic, 0)
        consumer.pause([paused])
        publish(stage.servers, stage.topic, PARTITIONS, 3)
        await stage.read(consumer, 3 * (PARTITIONS - 1))
        assert await consumer.poll(200) == []
        assert consumer.positions[paused] == 2
        consumer.resume([paused])
        assert await stage.read(consumer, 3) == [2, 3, 4]
        consumer.seek({paused: 1})
        assert await stage.read(consumer, 4) == [1, 2, 3, 4]


async def test_a_pattern_brings_topics_that_are_created_later(stage: Stage) -> None:
    async with stage.consumer() as consumer:
        consumer.subscribe(pattern=f"{stage.topic}.*")
        await stage.own(consumer, PARTITIONS)
        ConfluentAdapter().create_topic(stage.servers, f"{stage.topic}-later", 2)
        await stage.own(consumer, PARTITIONS + 2)
        consumer.subscribe([stage.topic])
        await stage.own(consumer, PARTITIONS)


async def test_a_reader_that_does_not_poll_makes_room_for_others_and_comes_back(stage: Stage) -> None:
    journal = Journal()
    async with stage.consumer(journal, max_poll_ms=500) as slow, stage.consumer() as other:
        slow.subscribe([stage.topic])
        await stage.own(slow, PARTITIONS)
        other.subscribe([stage.topic])
        await stage.own(other, PARTITIONS)
        with pytest.raises(PartitionsLost):
            await slow.commit({TopicPartition(stage.topic, 0): 1})
        await slow.poll(0)
        assert journal.events == [("assigned", PARTITIONS), ("lost", PARTITIONS)]
        async with asyncio.timeout(PATIENCE_SECONDS):
            while len(slow.assignment) != 1 or len(other.assignment) != PARTITIONS - 1:
                await slow.poll(50)
                await other.poll(50)


async def test_a_final_refusal_is_raised_by_every_poll(stage: Stage) -> None:
    async with stage.consumer(assignor="astrology") as consumer:
        consumer.subscribe([stage.topic])
        for _ in range(2):
            with pytest.raises(ApiError) as refused:
                await stage.own(consumer, PARTITIONS)
            assert refused.value.code == ErrorCode.UNSUPPORTED_ASSIGNOR


async def test_a_new_group_starts_at_the_end_if_it_is_asked_to(stage: Stage) -> None:
    publish(stage.servers, stage.topic, PARTITIONS, 2)
    async with stage.consumer(start=Start.LATEST) as consumer:
        consumer.subscribe([stage.topic])
        await stage.own(consumer, PARTITIONS)
        publish(stage.servers, stage.topic, PARTITIONS, 1)
        assert await stage.read(consumer, PARTITIONS) == [2] * PARTITIONS


async def test_a_member_survives_the_restart_of_its_coordinator() -> None:
    with RunningBroker(consumer_group_heartbeat_interval_ms=1_000) as broker:
        async with Cluster(parse_bootstrap(broker.bootstrap_servers)) as cluster:
            stage = Stage(cluster, broker.bootstrap_servers)
            async with stage.consumer() as consumer:
                consumer.subscribe([stage.topic])
                await stage.own(consumer, PARTITIONS)
                await asyncio.to_thread(broker.restart)
                publish(stage.servers, stage.topic, PARTITIONS, 2)
                assert sorted(await stage.read(consumer, 2 * PARTITIONS)) == [0] * PARTITIONS + [1] * PARTITIONS
                await consumer.commit()
            committed = await Groups(cluster).committed(stage.group)
            assert [found.offset for found in committed.values()] == [2] * PARTITIONS


def remove_members(stage: Stage) -> None:
    """Take every member out in its own name, as if its session had ended."""
    with RawClient(stage.servers) as client:
        (described,) = client.call(ConsumerGroupDescribeRequest([stage.group]), 1).groups
        for member in described.members:
            answer = client.call(ConsumerGroupHeartbeatRequest(stage.group, member.member_id, -1), 1)
            assert answer.error_code == 0
