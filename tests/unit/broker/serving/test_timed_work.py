"""How long administrative work is waited for, and what becomes of it after."""

import asyncio

import pytest

from martlet.broker.serving.timed_work import LATE_MAX, TimedAnswer, TimedWork


class Bench:
    """Work that notes its steps and waits at a gate."""

    def __init__(self) -> None:
        self.errors: list[Exception] = []
        self.steps: list[str] = []
        self.gate = asyncio.Event()
        self.timed = TimedWork(self.errors.append)

    async def ask(self, timeout_ms: int, *, fails_with: Exception | None = None, waits: bool = True) -> object:
        async def work() -> None:
            self.steps.append("begun")
            if waits:
                await self.gate.wait()
            if fails_with is not None:
                raise fails_with
            self.steps.append("done")

        return await self.timed.answer(TimedAnswer(work(), timeout_ms, lambda: list(self.steps)))


@pytest.fixture
async def bench() -> Bench:
    return Bench()


async def test_work_that_is_done_in_time_is_answered_when_it_is_done(bench: Bench) -> None:
    asyncio.get_running_loop().call_later(0.02, bench.gate.set)
    assert await bench.ask(60_000) == ["begun", "done"]


async def test_work_that_takes_longer_is_answered_as_far_as_it_is_and_goes_on(bench: Bench) -> None:
    assert await bench.ask(10) == ["begun"]
    bench.gate.set()
    while bench.steps != ["begun", "done"]:
        await asyncio.sleep(0)
    assert bench.errors == []


@pytest.mark.parametrize("timeout_ms", [0, -1])
async def test_without_any_time_the_first_step_is_made_all_the_same(bench: Bench, timeout_ms: int) -> None:
    assert await bench.ask(timeout_ms, waits=False) == ["begun", "done"]
    assert await bench.ask(timeout_ms) == ["begun", "done", "begun"]
    await bench.timed.aclose()


async def test_a_failure_is_raised_while_the_client_waits_and_reported_once_after(bench: Bench) -> None:
    failure = ValueError("a mistake of ours")
    with pytest.raises(ValueError, match="a mistake"):
        await bench.ask(60_000, fails_with=failure, waits=False)
    assert bench.errors == []
    await bench.ask(1, fails_with=failure)
    bench.gate.set()
    while not bench.errors:
        await asyncio.sleep(0)
    assert bench.errors == [failure]


async def test_with_too_much_late_work_none_is_begun_until_some_is_done(bench: Bench) -> None:
    for _ in range(LATE_MAX):
        await bench.ask(0)
    assert await bench.ask(60_000) == ["begun"] * LATE_MAX
    bench.gate.set()
    while bench.steps.count("done") < LATE_MAX:
        await asyncio.sleep(0)
    await asyncio.sleep(0)  # until that has been noted
    await bench.ask(60_000)
    assert bench.steps.count("done") == LATE_MAX + 1


async def test_what_still_runs_is_cancelled_at_the_end(bench: Bench) -> None:
    await bench.ask(0)
    waiting = asyncio.create_task(bench.ask(60_000))
    await asyncio.sleep(0.01)
    await bench.timed.aclose()
    with pytest.raises(asyncio.CancelledError):
        await waiting
    assert (bench.steps, bench.errors) == (["begun", "begun"], [])
