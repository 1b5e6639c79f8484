"""Transactions on one broker, from the request to the markers: waiting, restarts, partitions that refuse."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import suppress

import pytest

from martlet.base.errors import ApiError, ErrorCode
from martlet.base.ids import BrokerId, TopicPartition
from martlet.broker.administration.producer_ids import ProducerIdPool
from martlet.broker.coordinators.coordinator_host import CoordinatorHost
from martlet.broker.coordinators.internal_topic import InternalTopic, InternalTopicSpec
from martlet.broker.coordinators.marker_sending import MarkerRoutes, MarkerSender
from martlet.broker.coordinators.marker_writing import MarkerWriter
from martlet.broker.coordinators.transaction_questions import TransactionQuestions
from martlet.broker.coordinators.transactions import (
    Completions,
    TransactionCoordinator,
    partition_of_id,
    transaction_kind,
)
from martlet.broker.partitions.transaction_guards import MarkerOf
from martlet.broker.routing.peers import Peers
from martlet.cluster.topic_names import CONSUMER_OFFSETS_TOPIC, TRANSACTION_STATE_TOPIC
from martlet.transactions.records import ProducerPair
from martlet.transactions.requests import InitWish, OfTransaction, TransactionFilter, TransactionsOptions
from martlet.transactions.states import TransactionState
from martlet.transactions.transitions import Generation
from tests.unit.broker.coordinators.coordinator_bench import CoordinatorBench

ORDERS = frozenset((TopicPartition("orders", 0),))
SECOND = Generation.SECOND


class HeldWriter(MarkerWriter):
    """Writes when the test lets it, and may refuse before."""

    def __init__(self, *arguments: object) -> None:
        super().__init__(*arguments)  # type: ignore[arg-type]
        self.may_write = asyncio.Event()
        self.may_write.set()
        self.refusals: list[ErrorCode] = []
        self.asked: list[frozenset[TopicPartition]] = []
        self.silent = 0
        """How many answers leave everything out."""

    async def write(self, marker: MarkerOf, partitions: frozenset[TopicPartition]) -> dict[TopicPartition, ErrorCode]:
        self.asked.append(partitions)
        if self.refusals:
            return dict.fromkeys(partitions, self.refusals.pop(0))
        if self.silent:
            self.silent -= 1
            return {}
        await self.may_write.wait()
        return await super().write(marker, partitions)


class TransactionsBench(CoordinatorBench):
    """The coordinator of transactions beside that of groups."""

    async def start(self) -> None:
        await super().start()
        image = self.metadata.image
        ids, self.peers, completions = ProducerIdPool(self.metadata.changes), Peers(image), Completions()
        self.writer = HeldWriter(self.table, self.groups, self.clock)
        self.sender = MarkerSender(BrokerId(1), image, MarkerRoutes(self.writer, self.peers))
        kind = transaction_kind(TransactionsOptions(), ids, completions, self.sender)
        spec = InternalTopicSpec(TRANSACTION_STATE_TOPIC, 3, partition_rule=partition_of_id)
        topic = InternalTopic(spec, image, self.metadata.admin)
        host = CoordinatorHost(kind, topic, self.table, self.clock, self.metrics, self.failures.append)
        host.start()
        self.metadata.feed.add_listener(host.follow)
        self.coordinator = TransactionCoordinator(host, ids, completions)
        self.questions = TransactionQuestions(BrokerId(1), self.coordinator, self.peers)

    async def stop(self) -> None:
        await self.questions.aclose()
        await self.coordinator.host.aclose()
        await self.sender.aclose()
        await self.peers.aclose()
        await super().stop()

    async def init(self, name: str = "app") -> OfTransaction:
        producer = await self.coordinator.init_producer_id(InitWish(name, 60_000))
        return OfTransaction(name, producer.pair)

    async def end(self, of: OfTransaction, *, commit: bool = True) -> OfTransaction:
        pair = await self.coordinator.end(of, is_commit=commit, generation=SECOND)
        return of._replace(pair=pair)

    async def state_of(self, name: str = "app") -> TransactionState:
        return (await self.coordinator.describe(name)).state

    async def reaches(self, state: TransactionState, name: str = "app") -> None:
        async with asyncio.timeout(10):
            while True:
                with suppress(ApiError):  # it may still be loaded
                    if await self.state_of(name) is state:
                        return
                await asyncio.sleep(0.001)

    def markers(self, topic: str = "orders", partition: int = 0) -> int:
        """The offset behind the last marker: nothing else writes there."""
        hosted = self.table.hosted(topic, partition)
        return 0 if hosted is None else hosted.log.end_offset


@pytest.fixture
async def bench() -> AsyncIterator[TransactionsBench]:
    async with TransactionsBench() as started:
        await started.metadata.admin.create_topic("orders")
        yield started
        assert started.failures == []


async def code_of(call: object) -> ErrorCode:
    assert asyncio.iscoroutine(call)
    with pytest.raises(ApiError) as refused:
        await call
    return refused.value.code


async def test_an_end_has_its_markers_written_and_is_complete(bench: TransactionsBench) -> None:
    of = await bench.init()
    await bench.coordinator.add(of, ORDERS, SECOND)
    following = await bench.end(of)
    assert following.pair == ProducerPair(of.pair.id, of.pair.epoch + 1)
    await bench.reaches(TransactionState.COMPLETE_COMMIT)
    assert bench.markers() == 1
    assert bench.sender.under_way == 0


async def test_what_meets_the_end_of_the_last_transaction_waits_for_it(bench: TransactionsBench) -> None:
    of = await bench.init()
    await bench.coordinator.add(of, ORDERS, SECOND)
    bench.writer.may_write.clear()
    following = await bench.end(of)
    waiting = asyncio.create_task(bench.coordinator.add(following, ORDERS, SECOND))
    await asyncio.sleep(0)
    assert await bench.state_of() is TransactionState.PREPARE_COMMIT
    bench.writer.may_write.set()
    await waiting
    assert await bench.state_of() is TransactionState.ONGOING


async def test_the_wait_ends_after_a_moment_and_a_new_producer_does_not_wait(bench: TransactionsBench) -> None:
    of = await bench.init()
    await bench.coordinator.add(of, ORDERS, SECOND)
    bench.writer.may_write.clear()
    following = await bench.end(of)
    assert await code_of(bench.coordinator.add(following, ORDERS, SECOND)) is ErrorCode.CONCURRENT_TRANSACTIONS
    assert await code_of(bench.init()) is ErrorCode.CONCURRENT_TRANSACTIONS
    bench.writer.may_write.set()
    await bench.reaches(TransactionState.COMPLETE_COMMIT)


async def test_a_decision_is_carried_out_after_a_restart(bench: TransactionsBench) -> None:
    of = await bench.init()
    await bench.coordinator.add(of, ORDERS, SECOND)
    bench.writer.may_write.clear()
    await bench.end(of, commit=False)
    await bench.restart()
    await bench.reaches(TransactionState.COMPLETE_ABORT)
    assert bench.markers() == 1


async def test_markers_are_sent_again_to_a_partition_that_refuses_for_now(bench: TransactionsBench) -> None:
    of = await bench.init()
    await bench.coordinator.add(of, ORDERS, SECOND)
    bench.writer.refusals = [ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.NOT_ENOUGH_REPLICAS]
    await bench.end(of)
    await bench.reaches(TransactionState.COMPLETE_COMMIT)
    assert bench.writer.asked == [ORDERS] * 3


async def test_markers_are_sent_again_to_a_partition_that_an_answer_leaves_out(bench: TransactionsBench) -> None:
    of = await bench.init()
    await bench.coordinator.add(of, ORDERS, SECOND)
    bench.writer.silent = 2
    await bench.end(of)
    await bench.reaches(TransactionState.COMPLETE_COMMIT)
    assert bench.writer.asked == [ORDERS] * 3


async def test_a_partition_that_refuses_for_good_does_not_hold_up_the_rest(bench: TransactionsBench) -> None:
    of = await bench.init()
    await bench.coordinator.add(of, ORDERS, SECOND)
    bench.writer.refusals = [ErrorCode.INVALID_PRODUCER_EPOCH]
    await bench.end(of)
    await bench.reaches(TransactionState.COMPLETE_COMMIT)
    assert bench.writer.asked == [ORDERS]


async def test_a_deleted_topic_needs_no_marker(bench: TransactionsBench) -> None:
    of = await bench.init()
    await bench.coordinator.add(of, ORDERS, SECOND)
    await bench.metadata.admin.delete_topic("orders")
    await bench.end(of)
    await bench.reaches(TransactionState.COMPLETE_COMMIT)
    assert bench.writer.asked == []


async def test_a_marker_on_the_offsets_topic_goes_through_the_group(bench: TransactionsBench) -> None:
    await bench.commit("g", "orders", 3)
    index = bench.groups.topic.partition_of("g")
    of = await bench.init()
    await bench.coordinator.add(of, frozenset((TopicPartition(CONSUMER_OFFSETS_TOPIC, index),)), SECOND)
    before = bench.markers(CONSUMER_OFFSETS_TOPIC, index)
    await bench.end(of)
    await bench.reaches(TransactionState.COMPLETE_COMMIT)
    assert bench.markers(CONSUMER_OFFSETS_TOPIC, index) == before + 1
    assert await bench.committed("g", "orders") == 3


async def test_questions_are_answered_for_each_partition(bench: TransactionsBench) -> None:
    of = await bench.init()
    asked = ORDERS | {TopicPartition("orders", 7)}
    await bench.coordinator.add(of, ORDERS, SECOND)
    assert await bench.questions.ask(of, asked, adds=False) == {
        TopicPartition("orders", 0): ErrorCode.NONE,
        TopicPartition("orders", 7): ErrorCode.TRANSACTION_ABORTABLE,
    }
    stale = of._replace(pair=ProducerPair(of.pair.id, of.pair.epoch + 5))
    assert await bench.questions.ask(stale, ORDERS, adds=True) == dict.fromkeys(ORDERS, ErrorCode.PRODUCER_FENCED)


async def test_ids_are_listed_from_all_shards(bench: TransactionsBench) -> None:
    names = [f"app-{number}" for number in range(9)]
    for name in names:
        await bench.init(name)
    found = await bench.coordinator.list_all(TransactionFilter())
    assert sorted(stored.transactional_id for stored in found) == names


async def test_a_broker_that_is_not_registered_cannot_be_asked(bench: TransactionsBench) -> None:
    assert await code_of(bench.peers.call(BrokerId(9), None, None)) is (  # type: ignore[arg-type]
        ErrorCode.COORDINATOR_NOT_AVAILABLE
    )
