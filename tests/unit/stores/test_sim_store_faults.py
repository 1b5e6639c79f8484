"""The faults that the simulated store can be given, beyond what every store does."""

import asyncio
from contextlib import aclosing

from sim.clock import SimClock
from sim.store import SimStore

from martlet.cluster.store import Change


async def _settle() -> None:
    for _ in range(5):
        await asyncio.sleep(0)


async def test_held_watches_fall_behind_and_catch_up_in_order() -> None:
    store = SimStore(SimClock())
    seen: list[Change] = []

    async def follow() -> None:
        async with aclosing(store.watch("", 0)) as changes:
            async for change in changes:
                seen.append(change)  # noqa: PERF401 (looked at while it grows)

    following = asyncio.create_task(follow())
    await store.commit({}, {"a": b"1"})
    await _settle()
    assert [change.revision for change in seen] == [1]
    store.hold_watches()
    for _ in range(3):
        await store.commit({}, {"a": b"2"})
    await _settle()
    assert len(seen) == 1
    assert await store.get("a") is not None
    store.release_watches()
    await _settle()
    assert [change.revision for change in seen] == [1, 2, 3, 4]
    await store.close()
    await following


async def test_held_watches_of_one_connection_do_not_hold_those_of_another() -> None:
    clock = SimClock()
    held = SimStore(clock)
    free = SimStore(clock, held.state)
    held.hold_watches()
    await held.commit({}, {"a": b""})
    async with aclosing(free.watch("", 0)) as changes:
        assert (await anext(changes)).revision == 1


async def test_leases_that_are_restarted_run_out_late() -> None:
    clock = SimClock()
    store = SimStore(clock)
    lease = await store.grant(1_000)
    await store.commit({}, {"a": b""}, lease=lease)
    clock.advance(900)
    store.state.restart_leases(clock.now_ms())
    clock.advance(999)
    assert await store.get("a") is not None
    clock.advance(1)
    assert await store.get("a") is None


async def test_watches_are_woken_in_the_order_in_which_they_began() -> None:
    store = SimStore(SimClock())
    order: list[int] = []

    async def follow(number: int) -> None:
        async with aclosing(store.watch("", 0)) as changes:
            await anext(changes)
            order.append(number)

    tasks = [asyncio.create_task(follow(number)) for number in range(20)]
    await _settle()
    await store.commit({}, {"a": b""})
    await asyncio.wait(tasks)
    assert order == list(range(20))
