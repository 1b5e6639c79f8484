"""Work in threads: it does not hold the loop up, its end is called on the loop, and what it raises is heard."""

import asyncio
import gc
import threading
import time
import weakref
from collections.abc import Callable

import pytest
from sim.threads import LoopWorkers

from martlet.base.threads import MakeWorkers, ThreadWorkers

BOTH = pytest.mark.parametrize("make", [ThreadWorkers, LoopWorkers])


async def _until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 10
    while not condition():
        assert time.monotonic() < deadline
        await asyncio.sleep(0.001)


@BOTH
async def test_the_result_arrives_on_the_loop_that_asked(make: MakeWorkers) -> None:
    workers = make("martlet-test", 2)
    home = threading.get_ident()
    seen: list[int] = []
    futures = [workers.run(threading.get_ident) for _ in range(3)]
    for future in futures:
        future.add_done_callback(lambda done: seen.append(threading.get_ident()))
    assert home not in await asyncio.gather(*futures)
    assert seen == [home] * 3
    workers.close()


@BOTH
async def test_what_work_raises_reaches_its_caller_and_the_next_one_is_done(make: MakeWorkers) -> None:
    workers = make("martlet-test", 1)

    def fail() -> int:
        raise ValueError("no such page")

    failing, fine = workers.run(fail), workers.run(lambda: 7)
    with pytest.raises(ValueError, match="no such page"):
        await failing
    assert await fine == 7
    workers.close()


@BOTH
async def test_a_caller_that_does_not_wait_any_more_hears_nothing(make: MakeWorkers) -> None:
    workers = make("martlet-test", 1)
    gate = threading.Event()
    given_up, other = workers.run(lambda: gate.wait(10)), workers.run(lambda: 7)
    given_up.cancel()
    gate.set()
    assert await other == 7
    workers.close()


async def test_no_more_calls_are_under_way_than_were_allowed_and_no_thread_is_started_for_nothing() -> None:
    workers = ThreadWorkers("martlet-counted", 2)
    gate = threading.Event()
    lock = threading.Lock()
    under_way: list[int] = [0, 0]

    def wait() -> None:
        with lock:
            under_way[0] += 1
            under_way[1] = max(under_way)
        gate.wait(10)
        with lock:
            under_way[0] -= 1

    await workers.run(lambda: None)
    await workers.run(lambda: None)
    assert _threads() == 1
    futures = [workers.run(wait) for _ in range(5)]
    await _until(lambda: under_way[0] == 2)
    gate.set()
    await asyncio.gather(*futures)
    assert under_way[1] == 2
    assert _threads() == 2
    workers.close()
    await _until(lambda: _threads() == 0)


def _threads() -> int:
    return sum(thread.name.startswith("martlet-counted") for thread in threading.enumerate())


async def test_without_a_thread_to_be_had_one_that_is_there_does_it_or_the_loop_itself(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def refuse(thread: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    workers = ThreadWorkers("martlet-few", 2)
    with monkeypatch.context() as patch:
        patch.setattr(threading.Thread, "start", refuse)
        assert await workers.run(threading.get_ident) == threading.get_ident()
    assert await workers.run(lambda: 2) == 2
    with monkeypatch.context() as patch:
        patch.setattr(threading.Thread, "start", refuse)
        assert sorted(await asyncio.gather(workers.run(lambda: 3), workers.run(lambda: 4))) == [3, 4]
    workers.close()


class _Content:
    pass


async def test_a_thread_that_waits_keeps_nothing_of_its_last_call() -> None:
    workers = ThreadWorkers("martlet-test", 1)
    content = _Content()
    gone = weakref.ref(content)
    assert await workers.run(lambda kept=content: kept) is content  # type: ignore[misc]
    del content

    def is_gone() -> bool:
        gc.collect()
        return gone() is None

    await _until(is_gone)
    workers.close()


def test_work_that_ends_after_its_loop_was_closed_does_no_harm() -> None:
    workers = ThreadWorkers("martlet-late", 1)
    gate = threading.Event()

    async def ask_and_leave() -> None:
        workers.run(lambda: gate.wait(10))

    async def ask() -> int:
        return await workers.run(lambda: 1)

    asyncio.run(ask_and_leave())
    gate.set()
    assert asyncio.run(ask()) == 1
    workers.close()


async def test_what_settles_runs_after_each_call_and_when_its_pause_is_over() -> None:
    workers = ThreadWorkers("martlet-settling", 1)
    seen: list[str] = []

    def settle() -> float | None:
        seen.append("settled")
        return 0.001 if len(seen) < 4 else None

    workers.settle = settle
    await workers.run(lambda: seen.append("called"))
    await _until(lambda: len(seen) == 4)
    assert seen == ["called", "settled", "settled", "settled"]
    workers.join()


async def test_joining_waits_for_what_was_handed_over_before() -> None:
    workers = ThreadWorkers("martlet-counted", 2)
    done: list[int] = []

    def note() -> None:
        time.sleep(0.01)
        done.append(threading.get_ident())

    for _ in range(4):
        workers.run(note)
    workers.join()
    assert len(done) == 4
    assert _threads() == 0
