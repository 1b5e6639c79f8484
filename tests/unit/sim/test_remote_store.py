"""The metadata store across the simulated network: unknown outcomes, late commits, leases by the store's clock."""

import asyncio
from collections.abc import Awaitable, Callable, Iterator

import pytest
from sim.host import SimHost
from sim.remote_store import STORE_NAME, CommitFault
from sim.world import SimWorld

from martlet.cluster.store import (
    Change,
    LeaseLost,
    MetaStore,
    RevisionCompacted,
    StoreClosed,
    StoreUnavailable,
    UnknownOutcome,
)

Talk = Callable[[MetaStore], Awaitable[object]]


@pytest.fixture
def world() -> Iterator[SimWorld]:
    with SimWorld("store") as made:
        made.add_host("a")
        made.add_host("b")
        yield made


def start(world: SimWorld, talk: Talk, host: str = "a") -> SimHost:
    machine = world.hosts[host]

    async def main() -> object:
        return await talk(machine.store())

    machine.start(main)
    return machine


def run(world: SimWorld, talk: Talk, host: str = "a") -> object:
    machine = start(world, talk, host)
    world.run_until(lambda: not machine.is_running, 60_000)
    assert machine.main is not None
    return machine.main.result()


def test_commits_reads_and_comparisons_work_as_in_every_store(world: SimWorld) -> None:
    async def talk(store: MetaStore) -> None:
        first = await store.commit({"k": 0}, {"k": b"1", "l": b"2"})
        assert first.succeeded
        assert not (await store.commit({"k": 0}, {"k": b"x"})).succeeded
        entry = await store.get("k")
        assert entry is not None
        assert (entry.value, entry.mod_revision) == (b"1", first.revision)
        assert [found.key for found in (await store.list("")).entries] == ["k", "l"]
        await store.commit({}, {}, deletes=["k"], delete_prefixes=["l"])
        assert (await store.list("")).entries == ()

    run(world, talk)


def test_asking_takes_time_on_the_network(world: SimWorld) -> None:
    run(world, lambda store: store.get("k"))
    assert 0 < world.scheduler.now_ns < 100_000_000


def test_a_watch_sees_what_others_commit_once_and_in_order(world: SimWorld) -> None:
    seen: list[Change] = []

    async def watch(store: MetaStore) -> None:
        async for change in store.watch("t/", 0):
            seen.append(change)  # noqa: PERF401 - as they come

    async def write(store: MetaStore) -> None:
        for number in range(20):
            await store.commit({}, {f"t/{number}": b"x", f"other/{number}": b"y"})
            await asyncio.sleep(number / 10)

    start(world, watch, "b")
    run(world, write)
    world.run_for(1_000)
    assert [change.revision for change in seen] == list(range(1, 21))
    assert all([event.key for event in change.events] == [f"t/{change.revision - 1}"] for change in seen)


@pytest.mark.parametrize(("source", "target", "happens"), [("a", STORE_NAME, False), (STORE_NAME, "a", True)])
def test_a_commit_without_an_answer_is_unknown_and_may_have_happened(
    world: SimWorld, source: str, target: str, happens: bool
) -> None:
    world.network.cut_one_way(source, target)
    with pytest.raises(UnknownOutcome):
        run(world, lambda store: store.commit({}, {"k": b"1"}))
    assert ("k" in world.store_server.state.entries) is happens


def test_a_commit_may_still_happen_after_its_process_gave_up_or_died(world: SimWorld) -> None:
    world.network.cut("a", STORE_NAME)
    host = start(world, lambda store: store.commit({}, {"k": b"late"}))
    world.run_for(100)
    host.crash(power_loss=True)
    world.network.heal_all()
    world.run_for(10_000)
    assert world.store_server.state.entries["k"].value == b"late"


def test_reads_and_watches_of_an_unreachable_store_fail_as_unavailable(world: SimWorld) -> None:
    world.store_server.stop()
    with pytest.raises(StoreUnavailable):
        run(world, lambda store: store.get("k"))

    async def watch(store: MetaStore) -> None:
        async for _ in store.watch("", 0):
            pass

    with pytest.raises(StoreUnavailable):
        run(world, watch, "b")
    world.store_server.start()
    assert run(world, lambda store: store.get("k")) is None


def test_a_watch_from_a_forgotten_revision_is_refused(world: SimWorld) -> None:
    async def talk(store: MetaStore) -> None:
        await store.commit({}, {"k": b"1"})
        world.store_server.state.compact()
        async for _ in store.watch("", 0):
            pass

    with pytest.raises(RevisionCompacted):
        run(world, talk)


def test_a_lease_ends_by_the_stores_clock_although_no_caller_asks(world: SimWorld) -> None:
    seen: list[tuple[int, int]] = []

    async def hold(store: MetaStore) -> None:
        lease = await store.grant(3_000)
        await store.commit({}, {"k": b"1"}, lease=lease)
        await asyncio.sleep(2)
        await store.keep_alive(lease)
        world.hosts["a"].clock.jump(-1_000_000)
        await asyncio.sleep(10)
        with pytest.raises(LeaseLost):
            await store.keep_alive(lease)

    async def watch(store: MetaStore) -> None:
        async for change in store.watch("", 0):
            gone = sum(event.entry is None for event in change.events)
            seen.append((world.now_ms, gone))

    start(world, watch, "b")
    run(world, hold)
    assert [gone for _, gone in seen] == [0, 1]
    assert 5_000 <= seen[1][0] < 5_200


def test_a_closed_store_ends_watches_and_refuses_calls(world: SimWorld) -> None:
    async def talk(store: MetaStore) -> str:
        async def watch() -> None:
            async for _ in store.watch("", 0):
                pass

        watching = asyncio.create_task(watch())
        await asyncio.sleep(1)
        await store.close()
        await watching
        with pytest.raises(StoreClosed):
            await store.get("k")
        return "ended"

    assert run(world, talk) == "ended"


@pytest.mark.parametrize(("fault", "is_there"), [(CommitFault.BEFORE, False), (CommitFault.AFTER, True)])
def test_a_commit_can_be_lost_on_either_side_of_its_effect(world: SimWorld, fault: CommitFault, is_there: bool) -> None:
    async def talk(store: MetaStore) -> None:
        world.store_server.lose_next_commit(fault)
        with pytest.raises(UnknownOutcome):
            await store.commit({}, {"k": b"1"})
        assert (await store.get("k") is not None) is is_there
        assert (await store.commit({}, {"l": b"1"})).succeeded

    run(world, talk)


def test_a_late_commit_happens_after_its_sender_has_given_up(world: SimWorld) -> None:
    async def talk(store: MetaStore) -> None:
        world.store_server.lose_next_commit(CommitFault.LATE)
        with pytest.raises(UnknownOutcome):
            await store.commit({}, {"k": b"1"})
        assert await store.get("k") is None
        await asyncio.sleep(5)
        assert await store.get("k") is not None

    run(world, talk)


def test_a_held_watch_hears_nothing_while_calls_go_on_and_then_everything(world: SimWorld) -> None:
    heard: list[int] = []

    async def follow(store: MetaStore) -> None:
        async for change in store.watch("", 0):
            heard.append(change.revision)  # noqa: PERF401 - one by one, as they come

    async def change_often(store: MetaStore) -> None:
        for number in range(5):
            await store.commit({}, {"k": b"%d" % number})

    start(world, follow)
    world.store_server.hold_watches("a")
    run(world, change_often, "b")
    world.run_for(20_000)
    assert heard == []
    world.store_server.release_watches()
    world.run_for(1_000)
    assert heard == [1, 2, 3, 4, 5]


def test_a_broken_watch_ends_with_an_error(world: SimWorld) -> None:
    async def follow(store: MetaStore) -> None:
        with pytest.raises(StoreUnavailable, match="broken off"):
            async for _ in store.watch("", 0):
                pass

    follower = start(world, follow)
    world.run_for(500)
    world.store_server.break_watches()
    world.run_until(lambda: not follower.is_running, 2_000)
    assert follower.failures == []


def test_a_lease_can_end_early_and_takes_its_keys_with_it(world: SimWorld) -> None:
    async def talk(store: MetaStore) -> None:
        lease = await store.grant(60_000)
        await store.commit({}, {"k": b"1"}, lease=lease)
        world.store_server.state.end_lease_of("k")
        assert await store.get("k") is None
        with pytest.raises(LeaseLost):
            await store.keep_alive(lease)

    run(world, talk)


def test_a_commit_can_leave_its_sender_deaf_to_what_it_has_done(world: SimWorld) -> None:
    async def talk(store: MetaStore) -> None:
        world.store_server.lose_next_commit(CommitFault.DEAF, of="k")
        assert (await store.commit({}, {"other": b"1"})).succeeded
        with pytest.raises(UnknownOutcome):
            await store.commit({}, {"k": b"1"})
        heard: list[int] = []

        async def follow() -> None:
            async for change in store.watch("", 1):
                heard.append(change.revision)  # noqa: PERF401 - one by one, as they come

        following = asyncio.create_task(follow())
        await asyncio.sleep(1)
        assert heard == []
        assert await store.get("k") is not None
        await asyncio.sleep(5)
        assert heard == [2]
        following.cancel()

    run(world, talk)
