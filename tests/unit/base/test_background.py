"""Work in the background: it goes on while the event loop is busy, ends when closed, and its failure is reported."""

import asyncio
import threading
import time

import pytest
from sim.threads import run_as_task

from martlet.base.threads import RunInBackground, run_in_thread

BOTH = pytest.mark.parametrize("run", [run_in_thread, run_as_task])


async def test_a_thread_works_while_the_event_loop_is_stuck() -> None:
    seen: list[str] = []

    async def work() -> None:
        while True:
            seen.append(threading.current_thread().name)
            await asyncio.sleep(0.01)

    background = run_in_thread(work, "martlet-test", lambda error: None)
    time.sleep(0.3)
    count = len(seen)
    await background.aclose()
    assert count > 3
    assert set(seen) == {"martlet-test"}
    assert "martlet-test" not in {thread.name for thread in threading.enumerate()}


@BOTH
async def test_closing_lets_the_work_tidy_up(run: RunInBackground) -> None:
    tidied: list[bool] = []

    async def work() -> None:
        try:
            await asyncio.sleep(60)
        finally:
            await asyncio.sleep(0)
            tidied.append(True)

    background = run(work, "martlet-test", lambda error: None)
    await asyncio.sleep(0.05)
    await background.aclose()
    assert tidied == [True]


@BOTH
async def test_a_failure_is_reported_once_and_closing_is_still_possible(run: RunInBackground) -> None:
    failures: list[BaseException] = []

    async def work() -> None:
        raise LookupError("nothing there")

    background = run(work, "martlet-test", failures.append)
    async with asyncio.timeout(5):
        while not failures:
            await asyncio.sleep(0.01)
    await background.aclose()
    assert [type(failure) for failure in failures] == [LookupError]
