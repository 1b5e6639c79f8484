"""The admin service when the store loses answers, refuses calls, or the broker dies between two commits."""

import asyncio
from collections.abc import AsyncIterator, Collection, Mapping
from functools import partial
from pathlib import Path

import pytest
from sim.store import SimStore

from martlet.base.errors import ApiError, ErrorCode
from martlet.base.ids import BrokerId, Incarnation, Member
from martlet.broker.administration.producer_ids import allocate_producer_ids
from martlet.cluster.keys import unfinished_key
from martlet.cluster.records import UnfinishedRecord, encode_record
from martlet.cluster.store import CommitResult, LeaseId
from martlet.cluster.topic_decisions import TopicWish
from martlet.configs.changes import ConfigChange, ConfigOperation
from tests.unit.broker.administration.admin_bench import AdminBench, Site, leader_epochs
from tests.unit.cluster.images import topic_id

_LARGE = TopicWish(name="t", partition_count=250)


class _Death(BaseException):
    """The process is gone: not an error that anybody could handle."""


class MortalStore(SimStore):
    """A store whose process dies after some commits, before or after the last one has happened."""

    commits_left: int | None = None
    last_one_happens = False

    async def commit(
        self,
        compares: Mapping[str, int],
        puts: Mapping[str, bytes],
        deletes: Collection[str] = (),
        *,
        delete_prefixes: Collection[str] = (),
        lease: LeaseId | None = None,
    ) -> CommitResult:
        if self.commits_left == 0 and not self.last_one_happens:
            raise _Death
        result = await super().commit(compares, puts, deletes, delete_prefixes=delete_prefixes, lease=lease)
        if self.commits_left is not None:
            if self.commits_left == 0:
                raise _Death
            self.commits_left -= 1
        return result


@pytest.fixture
async def site(tmp_path: Path) -> AsyncIterator[Site]:
    made = Site("sim", tmp_path)
    yield made
    await made.stop_all()


def _left_over(site: Site) -> list[str]:
    return [key for key in site.state.entries if key.startswith(("partition/", "topic/", "unfinished/"))]


def _sim(bench: AdminBench) -> SimStore:
    assert isinstance(bench.store, SimStore)
    return bench.store


@pytest.mark.parametrize("last_one_happens", [False, True])
@pytest.mark.parametrize("step", range(5))
async def test_a_death_between_the_commits_of_a_large_topic_leaves_nothing_half_made(
    site: Site, step: int, last_one_happens: bool
) -> None:
    store = MortalStore(site.clock, site.state)
    bench = await site.start(store=store)
    store.commits_left, store.last_one_happens = step, last_one_happens
    with pytest.raises(_Death):
        await bench.admin.create_topic(_LARGE)
    survivor = await site.start(broker=2)
    whole = step == 4 and last_one_happens
    assert len(survivor.image.partitions("t")) == (250 if whole else 0)
    again = await site.start(broker=1)
    if whole:
        assert len(again.image.partitions("t")) == 250
    else:
        assert _left_over(site) == []
        await again.admin.create_topic(_LARGE)
    assert len(_left_over(site)) == 251


@pytest.mark.parametrize("step", range(3))
async def test_a_death_during_growth_leaves_the_topic_as_it_was_and_growth_can_be_repeated(
    site: Site, step: int
) -> None:
    store = MortalStore(site.clock, site.state)
    bench = await site.start(store=store)
    await bench.admin.create_topic("t")
    store.commits_left = step
    with pytest.raises(_Death):
        await bench.admin.create_partitions("t", 251)
    again = await site.start()
    assert len(again.image.partitions("t")) == 1
    await again.admin.create_partitions("t", 251)
    assert set(leader_epochs(again).values()) == {0, 1}
    await again.admin.delete_topic("t")
    assert _left_over(site) == []


async def test_a_death_during_elections_still_lets_no_epoch_go_back(site: Site) -> None:
    bench = await site.start()
    await bench.admin.create_topic(_LARGE)
    before = leader_epochs(bench)
    store = MortalStore(site.clock, site.state)
    store.commits_left = 2  # the registration and the first hundred
    with pytest.raises(_Death):
        await site.start(store=store)
    again = await site.start()
    after = leader_epochs(again)
    assert all(after[name] > epoch for name, epoch in before.items())
    assert sorted(set(after.values())) == [1, 2]


@pytest.mark.parametrize("applied", [False, True])
@pytest.mark.parametrize("partition_count", [3, 250])
@pytest.mark.parametrize("lost", range(5))
async def test_a_topic_whose_commit_got_no_answer_is_made_exactly_once(
    site: Site, applied: bool, partition_count: int, lost: int
) -> None:
    bench = await site.start()
    store = _sim(bench)

    async def lose_one_answer_later() -> None:
        for _ in range(lost * 4):
            await asyncio.sleep(0)
        store.lose_next_answer(applied=applied)

    losing = asyncio.create_task(lose_one_answer_later())
    made = await bench.admin.create_topic(TopicWish(name="t", partition_count=partition_count))
    await losing
    assert bench.image.topic("t") == made
    assert len(_left_over(site)) == partition_count + 1


@pytest.mark.parametrize("applied", [False, True])
async def test_every_other_change_survives_a_lost_answer(site: Site, applied: bool) -> None:
    bench = await site.start()
    admin, store = bench.admin, _sim(bench)
    await admin.create_topic("t")
    store.lose_next_answer(applied=applied)
    assert (await admin.create_partitions("t", 3)).partition_count == 3
    store.lose_next_answer(applied=applied)
    changes = [ConfigChange("cleanup.policy", ConfigOperation.APPEND, "compact")]
    assert (await bench.configs.alter_topic_configs("t", changes)).configs == {"cleanup.policy": "delete,compact"}
    store.lose_next_answer(applied=applied)
    first = await allocate_producer_ids(bench.changes)
    assert set(first).isdisjoint(await allocate_producer_ids(bench.changes))
    store.lose_next_answer(applied=applied)
    await admin.delete_topic("t")
    assert bench.image.topics() == ()
    assert _left_over(site) == []


@pytest.mark.parametrize("applied", [False, True])
async def test_a_start_with_lost_answers_still_ends_with_a_new_incarnation_and_new_epochs(
    site: Site, applied: bool
) -> None:
    bench = await site.start()
    await bench.admin.create_topic(_LARGE)
    before = leader_epochs(bench)
    store = SimStore(site.clock, site.state)
    store.lose_next_answer(applied=applied)
    store.lose_next_answer(applied=applied)
    again = await site.start(store=store)
    incarnation = again.image.incarnations()[BrokerId(1)]
    assert all(record.is_led_by(BrokerId(1), incarnation) for record in again.image.partitions("t"))
    assert all(leader_epochs(again)[name] > epoch for name, epoch in before.items())


async def test_a_store_that_cannot_be_reached_is_a_retriable_error(site: Site) -> None:
    bench = await site.start()
    for refused in (lambda: bench.admin.create_topic("t"), partial(allocate_producer_ids, bench.changes)):
        _sim(bench).refuse_next()
        with pytest.raises(ApiError) as caught:
            await refused()
        assert caught.value.code is ErrorCode.REQUEST_TIMED_OUT
        assert caught.value.retriable
    assert (await bench.admin.create_topic("t")).name == "t"


async def test_a_call_that_a_stopping_broker_cannot_finish_is_a_retriable_error(site: Site) -> None:
    bench = await site.start()
    calling = asyncio.create_task(bench.admin.create_topic(_LARGE))
    await asyncio.sleep(0)
    await bench.stop()
    with pytest.raises(ApiError) as caught:
        await calling
    assert caught.value.code is ErrorCode.REQUEST_TIMED_OUT


async def test_a_large_topic_that_loses_the_race_for_its_name_cleans_up_after_itself(site: Site) -> None:
    first, second = await site.start(1), await site.start(2)
    outcomes = await asyncio.gather(
        first.admin.create_topic(_LARGE), second.admin.create_topic(_LARGE), return_exceptions=True
    )
    assert sum(isinstance(outcome, ApiError) for outcome in outcomes) == 1
    assert len(_left_over(site)) == 251


async def test_a_starting_broker_leaves_the_unfinished_topics_of_living_brokers_alone(site: Site) -> None:
    bench = await site.start(1)
    alive = UnfinishedRecord(topic_id(1), "a", Member(BrokerId(1), bench.image.incarnations()[BrokerId(1)]))
    dead = UnfinishedRecord(topic_id(2), "b", Member(BrokerId(9), Incarnation(99)))
    for record in (alive, dead):
        await bench.store.commit({}, {unfinished_key(record.topic_id): encode_record(record)})
    await site.start(2)
    assert len(_left_over(site)) == 1
