"""Elections, moves, draining and removal when other commits are faster, answers are lost, or the store is away."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, NamedTuple, cast

import pytest
from sim.store import SimStore

from martlet.base.errors import ApiError, ErrorCode
from martlet.base.ids import BrokerId, TopicPartition
from martlet.broker import handlers
from martlet.broker.administration.partition_admin import PartitionAdmin
from martlet.broker.ground.request import RequestContext
from martlet.broker.services import BrokerServices
from martlet.broker.serving.timed_work import TimedAnswer, TimedWork
from martlet.cluster.image import MetadataImage
from martlet.cluster.keys import live_key, partition_key
from martlet.cluster.liveness import plan_alive
from martlet.cluster.partition_plans import PARTITIONS_PER_COMMIT
from martlet.cluster.records import PartitionRecord, encode_record
from martlet.cluster.store import CommitPlan, CommitResult, LeaseId, StoreUnavailable, UnknownOutcome, commit_plan
from martlet.cluster.topic_decisions import TopicWish
from martlet.configs.effective import NO_LAYERS
from martlet.observe.metrics import BrokerMetrics
from martlet.wire.messages.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    ReassignablePartition,
    ReassignableTopic,
)
from martlet.wire.messages.elect_leaders import ElectLeadersRequest, ElectLeadersResponse, TopicPartitions
from tests.unit.broker.administration.admin_bench import AdminBench, Site
from tests.unit.broker.replica_table_bench import LINK

T0 = TopicPartition("t", 0)


class TroubledStore(SimStore):
    """A store where, before or after a commit, something happens once."""

    before: Callable[[], Awaitable[object]] | None = None
    loses_answer = False
    is_away = False

    async def commit(
        self,
        compares: Mapping[str, int],
        puts: Mapping[str, bytes],
        deletes: Collection[str] = (),
        *,
        delete_prefixes: Collection[str] = (),
        lease: LeaseId | None = None,
    ) -> CommitResult:
        if self.is_away:
            raise StoreUnavailable("the store is away")
        if self.before is not None:
            step, self.before = self.before, None
            await step()
        result = await super().commit(compares, puts, deletes, delete_prefixes=delete_prefixes, lease=lease)
        if self.loses_answer:
            self.loses_answer = False
            raise UnknownOutcome("the answer was lost")
        return result


class _Services(NamedTuple):
    image: MetadataImage
    partition_admin: PartitionAdmin


@dataclass
class Bench:
    """Three brokers that share a store; `store` is the first one's way to it."""

    site: Site
    benches: list[AdminBench]
    store: TroubledStore
    metrics: BrokerMetrics = field(default_factory=BrokerMetrics)

    @property
    def admin(self) -> PartitionAdmin:
        return PartitionAdmin(self.benches[0].changes, self.site.clock, lambda: NO_LAYERS, self.metrics)

    @property
    def services(self) -> BrokerServices:
        """As much of a broker as these handlers touch."""
        return cast(BrokerServices, _Services(self.benches[0].image, self.admin))

    async def show(self, broker: int) -> None:
        """The broker gets its lease."""
        bench = self.benches[broker - 1]
        record = bench.image.broker(BrokerId(broker))
        assert record is not None
        await self._everywhere(plan_alive(record, bench.image.live(BrokerId(broker))))

    async def lose(self, broker: int) -> None:
        """The broker loses its lease."""
        await self._everywhere(CommitPlan(deletes=(live_key(BrokerId(broker)),)))

    async def _everywhere(self, plan: CommitPlan) -> None:
        bench = self.benches[-1]
        result = await commit_plan(bench.store, plan)
        assert result.succeeded
        for other in self.benches:
            await other.feed.wait_applied(result.revision)

    def partition(self, where: TopicPartition = T0) -> PartitionRecord:
        found = self.benches[0].image.partition(*where)
        assert found is not None
        return found


@pytest.fixture
async def bench(tmp_path: Path) -> AsyncIterator[Bench]:
    site = Site("sim", tmp_path)
    store = TroubledStore(site.clock, site.state)
    benches = [await site.start(1, store=store), await site.start(2), await site.start(3)]
    made = Bench(site, benches, store)
    for broker in (1, 2, 3):
        await made.show(broker)
    yield made
    await site.stop_all()


async def _make(bench: Bench, *replicas: list[int], name: str = "t") -> None:
    await bench.benches[0].admin.create_topic(TopicWish(name=name, assignments=dict(enumerate(replicas))))


async def _move_leader_away(bench: Bench) -> None:
    """t-0 was preferably led by 1, which was gone for a moment: 2 leads it now, and both are in sync."""
    await _make(bench, [2, 1])
    assert await bench.admin.reassign({T0: [1, 2]}) == {T0: None}


async def test_a_move_begins_and_is_cancelled(bench: Bench) -> None:
    await _make(bench, [1])
    assert await bench.admin.reassign({T0: [2, 3]}) == {T0: None}
    moving = bench.partition()
    assert (moving.replicas, moving.adding, moving.removing) == ((2, 3, 1), (2, 3), (1,))
    assert await bench.admin.reassign({T0: [2, 3]}) == {T0: None}
    assert await bench.admin.reassign({T0: None}) == {T0: None}
    assert (bench.partition().replicas, bench.partition().adding) == ((1,), ())
    error = (await bench.admin.reassign({T0: None}))[T0]
    assert error is not None
    assert error.code is ErrorCode.NO_REASSIGNMENT_IN_PROGRESS


async def test_another_number_of_replicas_is_refused_where_that_is_not_allowed(bench: Bench) -> None:
    await _make(bench, [1])
    outcome = await bench.admin.reassign({T0: [2, 3]}, factor_may_change=False)
    error = outcome[T0]
    assert error is not None
    assert error.code is ErrorCode.INVALID_REPLICATION_FACTOR


async def test_the_preferred_leader_is_elected(bench: Bench) -> None:
    await _move_leader_away(bench)
    before = bench.partition()
    assert await bench.admin.elect_leaders([T0], unclean=False) == {T0: None}
    after = bench.partition()
    assert (before.leader, after.leader, after.leader_epoch) == (2, 1, before.leader_epoch + 1)


async def test_a_decision_that_lost_its_comparison_is_made_again(bench: Bench) -> None:
    await _move_leader_away(bench)
    # Broker 3 gets another lease: nothing that the election turns on.
    bench.store.before = lambda: bench.show(3)
    assert await bench.admin.elect_leaders([T0], unclean=False) == {T0: None}
    assert bench.partition().leader == 1


async def test_no_broker_is_elected_that_has_gone_meanwhile(bench: Bench) -> None:
    await _move_leader_away(bench)
    bench.store.before = lambda: bench.lose(1)
    error = (await bench.admin.elect_leaders([T0], unclean=False))[T0]
    assert error is not None
    assert error.code is ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE
    assert bench.partition().leader == 2


@pytest.mark.parametrize("act", ["elect", "move", "cancel"])
async def test_a_commit_whose_answer_was_lost_is_not_carried_out_twice(bench: Bench, act: str) -> None:
    await _move_leader_away(bench)
    if act == "cancel":
        await bench.admin.reassign({T0: [3]})
    epoch = bench.partition().leader_epoch
    bench.store.loses_answer = True
    match act:
        case "elect":
            outcome = await bench.admin.elect_leaders([T0], unclean=False)
        case "move":
            outcome = await bench.admin.reassign({T0: [3]})
        case _:
            outcome = await bench.admin.reassign({T0: None})
    assert outcome == {T0: None}
    assert bench.partition().leader_epoch == epoch + (act == "elect")


async def test_q1_when_the_store_is_away_every_partition_says_so(bench: Bench) -> None:
    await _make(bench, [1], [1])
    wishes = {T0: [2], TopicPartition("t", 1): [2], TopicPartition("u", 0): [2]}
    bench.store.is_away = True
    outcomes = await bench.admin.reassign(wishes)
    codes = {where: error.code for where, error in outcomes.items() if error is not None}
    assert codes == {
        T0: ErrorCode.REQUEST_TIMED_OUT,
        TopicPartition("t", 1): ErrorCode.REQUEST_TIMED_OUT,
        TopicPartition("u", 0): ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    }


async def test_many_partitions_go_in_batches_and_one_lost_batch_is_made_up_for(bench: Bench) -> None:
    count = 3 * PARTITIONS_PER_COMMIT
    await bench.benches[0].admin.create_topic(TopicWish(name="t", assignments={index: [1] for index in range(count)}))
    bench.store.before = lambda: bench.show(2)
    outcomes = await bench.admin.reassign({TopicPartition("t", index): [2] for index in range(count)})
    assert len(outcomes) == count
    assert not any(outcomes.values())
    assert all(bench.partition(TopicPartition("t", index)).adding == (2,) for index in range(count))


@pytest.mark.parametrize("answer_is_lost", [False, True])
async def test_an_unclean_election_takes_a_broker_that_is_there_and_says_so_loudly(
    bench: Bench, caplog: pytest.LogCaptureFixture, answer_is_lost: bool
) -> None:
    await _make(bench, [2, 1])
    # Broker 1 leaves the in-sync set, then broker 2, the last complete one, goes.
    await bench.benches[1].changes.commit(_without(bench, 1))
    await bench.lose(2)
    clean = (await bench.admin.elect_leaders([T0], unclean=False))[T0]
    assert clean is not None
    bench.store.loses_answer = answer_is_lost
    assert await bench.admin.elect_leaders([T0], unclean=True) == {T0: None}
    assert bench.partition().leader == 1
    messages = [record.getMessage() for record in caplog.records if record.levelname == "CRITICAL"]
    assert "t-0: about to elect broker 1" in messages[0]
    assert "messages that were acknowledged may be lost" in messages[0]
    assert len(messages) == (1 if answer_is_lost else 2)
    assert bench.metrics.unclean_elections == 1


def _without(bench: Bench, broker: int) -> CommitPlan:
    record = bench.partition()
    left = replace(record, isr=tuple(member for member in record.isr if member.broker != broker))
    key = partition_key(record.topic_id, record.partition)
    return CommitPlan({key: record.mod_revision}, {key: encode_record(left)})


async def test_a_broker_is_drained_and_taken_back(bench: Bench) -> None:
    await _make(bench, [1])
    await bench.admin.drain_broker(BrokerId(3), validate_only=True)
    assert bench.benches[0].image.drain(BrokerId(3)) is None
    for _ in range(2):
        await bench.admin.drain_broker(BrokerId(3))
    assert bench.benches[0].image.drain(BrokerId(3)) is not None
    error = (await bench.admin.reassign({T0: [3]}))[T0]
    assert "being drained" in str(error)
    for _ in range(2):
        await bench.admin.undrain_broker(BrokerId(3))
    assert bench.benches[0].image.drain(BrokerId(3)) is None


@pytest.mark.parametrize("trouble", ["none", "lost answer", "other commit"])
async def test_a_broker_is_removed_once_it_is_empty_and_has_stopped(bench: Bench, trouble: str) -> None:
    with pytest.raises(ApiError, match="running"):
        await bench.admin.remove_broker(BrokerId(3))
    await bench.lose(3)
    with pytest.raises(ApiError, match="not drained"):
        await bench.admin.remove_broker(BrokerId(3))
    await bench.admin.drain_broker(BrokerId(3))
    if trouble == "lost answer":
        bench.store.loses_answer = True
    elif trouble == "other commit":
        bench.store.before = lambda: bench.show(1)
    await bench.admin.remove_broker(BrokerId(3))
    assert bench.benches[0].image.broker(BrokerId(3)) is None
    with pytest.raises(ApiError, match="no broker 3") as caught:
        await bench.admin.remove_broker(BrokerId(3))
    assert caught.value.code is ErrorCode.RESOURCE_NOT_FOUND


async def test_a_broker_that_comes_back_in_the_last_moment_is_not_removed(bench: Bench) -> None:
    await bench.lose(3)
    await bench.admin.drain_broker(BrokerId(3))
    bench.store.before = lambda: bench.show(3)
    with pytest.raises(ApiError, match="running"):
        await bench.admin.remove_broker(BrokerId(3))
    assert bench.benches[0].image.broker(BrokerId(3)) is not None


async def _answer_while_a_commit_waits(
    bench: Bench, answer: ElectLeadersResponse | TimedAnswer, is_done: Callable[[], bool]
) -> Any:
    """What a client with little time is answered; in the end it must be done all the same."""
    errors: list[Exception] = []
    gate = asyncio.Event()
    bench.store.before = gate.wait
    assert isinstance(answer, TimedAnswer)
    response = await TimedWork(errors.append).answer(answer)
    assert not is_done()
    gate.set()
    while not is_done():
        await asyncio.sleep(0)
    assert errors == []
    return response


async def test_an_election_is_answered_in_its_time_and_made_after_it(bench: Bench) -> None:
    await _move_leader_away(bench)
    request = ElectLeadersRequest(0, [TopicPartitions("t", [0, 7])], timeout_ms=30)
    answer = handlers.elect_leaders.handle(bench.services, request, RequestContext(LINK, 2, None))
    response = await _answer_while_a_commit_waits(bench, answer, lambda: bench.partition().leader == 1)
    (topic,) = response.replica_election_results
    assert {one.partition_id: one.error_code for one in topic.partition_result} == {
        0: ErrorCode.REQUEST_TIMED_OUT,
        7: ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    }


async def test_a_move_is_answered_in_its_time_and_begun_after_it(bench: Bench) -> None:
    await _make(bench, [1])
    move = ReassignableTopic("t", [ReassignablePartition(index, [3]) for index in (0, 7)])
    request = AlterPartitionReassignmentsRequest(30, topics=[move])
    answer = handlers.alter_partition_reassignments.handle(bench.services, request, RequestContext(LINK, 1, None))
    response = await _answer_while_a_commit_waits(bench, answer, lambda: bench.partition().adding == (3,))
    (topic,) = response.responses
    assert {one.partition_index: one.error_code for one in topic.partitions} == {
        0: ErrorCode.REQUEST_TIMED_OUT,
        7: ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    }
