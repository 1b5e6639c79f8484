"""The simulated event loop: the same small programs come to the same results as on asyncio's own loop."""

import asyncio
import contextlib
import contextvars
import os
import socket
import threading
import time
from collections.abc import AsyncIterator, Callable, Coroutine
from typing import Any

import pytest
from sim.guard import SimEscape
from sim.loop import SimLoop
from sim.randomness import SimRandomness
from sim.scheduler import SimDeadlock, SimOverrun, SimScheduler

Program = Callable[[], Coroutine[Any, Any, object]]


def scheduler(**options: Any) -> SimScheduler:
    return SimScheduler(SimRandomness(0), **options)


def run_simulated(program: Program, loop: SimLoop | None = None) -> object:
    chosen = loop if loop is not None else SimLoop(scheduler())
    with asyncio.Runner(loop_factory=lambda: chosen) as runner:
        return runner.run(program())


def run_real(program: Program) -> object:
    with asyncio.Runner(loop_factory=asyncio.SelectorEventLoop) as runner:
        return runner.run(program())


# --- programs


async def gather_in_order() -> object:
    async def late(value: int, delay: float) -> int:
        await asyncio.sleep(delay)
        return value

    return await asyncio.gather(late(1, 0.02), late(2, 0.0), late(3, 0.01))


async def callbacks_run_first_come_first_served() -> object:
    loop, seen = asyncio.get_running_loop(), list[object]()
    for number in range(5):
        loop.call_soon(seen.append, number)
    loop.call_soon(lambda: loop.call_soon(seen.append, "nested"))
    loop.call_soon(seen.append, "after")
    cancelled = loop.call_soon(seen.append, "cancelled")
    cancelled.cancel()
    for _ in range(3):
        await asyncio.sleep(0)
    return seen


async def timers_fire_by_time() -> object:
    loop, seen = asyncio.get_running_loop(), list[object]()
    for delay in (0.03, 0.01, 0.02):
        loop.call_later(delay, seen.append, delay)
    loop.call_later(0.015, seen.append, "cancelled").cancel()
    await asyncio.sleep(0.05)
    return seen


async def a_group_of_tasks_fails_together() -> object:
    seen: list[str] = []

    async def waits() -> None:
        try:
            await asyncio.sleep(10)
        except asyncio.CancelledError:
            seen.append("cancelled")
            raise

    async def fails() -> None:
        await asyncio.sleep(0.01)
        raise ValueError("broken")

    try:
        async with asyncio.TaskGroup() as group:
            group.create_task(waits())
            group.create_task(fails())
    except* ValueError as errors:
        seen.append(str(errors.exceptions[0]))
    return seen


async def timeouts_end_waiting() -> object:
    seen: list[object] = []
    try:
        async with asyncio.timeout(0.01):
            await asyncio.sleep(10)
    except TimeoutError:
        seen.append("timeout")
    async with asyncio.timeout(10) as limit:
        seen.append(limit.expired())
    try:
        await asyncio.wait_for(asyncio.get_running_loop().create_future(), 0.01)
    except TimeoutError:
        seen.append("wait_for")
    return seen


async def a_queue_hands_over_and_blocks() -> object:
    queue: asyncio.Queue[int] = asyncio.Queue(2)
    taken: list[int] = []

    async def take() -> None:
        for _ in range(5):
            taken.append(await queue.get())
            queue.task_done()

    taker = asyncio.create_task(take())
    for number in range(5):
        await queue.put(number)
    await queue.join()
    await taker
    return taken


async def events_locks_and_semaphores() -> object:
    event, lock, limit = asyncio.Event(), asyncio.Lock(), asyncio.Semaphore(2)
    order: list[str] = []

    async def work(name: str) -> None:
        await event.wait()
        async with limit, lock:
            order.append(name)
            await asyncio.sleep(0)

    tasks = [asyncio.create_task(work(name)) for name in "abc"]
    await asyncio.sleep(0.01)
    order.append("go")
    event.set()
    await asyncio.wait(tasks)
    return order


async def cancellation_runs_finally_and_can_be_shielded() -> object:
    seen: list[object] = []

    async def inner() -> str:
        try:
            await asyncio.sleep(0.02)
            return "done"
        finally:
            seen.append("inner ends")

    async def outer(task: asyncio.Task[str]) -> None:
        try:
            await asyncio.shield(task)
        finally:
            seen.append("outer ends")

    shielded = asyncio.create_task(inner())
    waiter = asyncio.create_task(outer(shielded))
    await asyncio.sleep(0)
    waiter.cancel("no more")
    with contextlib.suppress(asyncio.CancelledError):
        await waiter
    seen.append((waiter.cancelled(), await shielded))
    return seen


async def threads_return_and_raise() -> object:
    variable: contextvars.ContextVar[str] = contextvars.ContextVar("variable")
    variable.set("carried")

    def fails() -> None:
        raise ValueError("from a thread")

    seen: list[object] = [await asyncio.to_thread(variable.get)]
    seen.append(await asyncio.get_running_loop().run_in_executor(None, lambda: 1 + 1))
    try:
        await asyncio.to_thread(fails)
    except ValueError as error:
        seen.append(str(error))
    return seen


async def generators_are_closed_when_dropped() -> object:
    seen: list[str] = []

    async def numbers() -> AsyncIterator[int]:
        try:
            yield 1
            yield 2
        finally:
            await asyncio.sleep(0)
            seen.append("closed")

    async for number in numbers():
        seen.append(str(number))
        break
    await asyncio.sleep(0.01)
    return seen


async def exceptions_of_callbacks_reach_the_handler() -> object:
    seen: list[object] = []
    loop = asyncio.get_running_loop()
    loop.set_exception_handler(lambda _, context: seen.append(repr(context["exception"])))
    loop.call_soon(lambda: 1 // 0)
    await asyncio.sleep(0.01)
    return seen


async def first_of_several_wins() -> object:
    tasks = [asyncio.create_task(asyncio.sleep(delay, delay)) for delay in (0.3, 0.01, 0.2)]
    done, pending = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    for task in pending:
        task.cancel()
    outcomes = await asyncio.gather(*pending, return_exceptions=True)
    return [task.result() for task in done], [type(outcome).__name__ for outcome in outcomes]


PROGRAMS: list[Program] = [
    gather_in_order,
    callbacks_run_first_come_first_served,
    timers_fire_by_time,
    a_group_of_tasks_fails_together,
    timeouts_end_waiting,
    a_queue_hands_over_and_blocks,
    events_locks_and_semaphores,
    cancellation_runs_finally_and_can_be_shielded,
    threads_return_and_raise,
    generators_are_closed_when_dropped,
    exceptions_of_callbacks_reach_the_handler,
    first_of_several_wins,
]


@pytest.mark.parametrize("program", PROGRAMS, ids=lambda program: program.__name__)
def test_a_program_does_the_same_on_the_simulated_loop_as_on_the_real_one(program: Program) -> None:
    assert run_simulated(program) == run_real(program)


# --- virtual time


def test_a_year_passes_in_no_time_and_exactly() -> None:
    async def sleeps() -> float:
        await asyncio.sleep(365 * 86_400)
        return asyncio.get_running_loop().time()

    assert run_simulated(sleeps) == 365 * 86_400


@pytest.mark.parametrize("delay", [0.1, 0.3, 1 / 3, 1e-9, 123.456789, 7e-7])
def test_a_timer_never_finds_the_clock_before_its_own_time(delay: float) -> None:
    async def compares() -> bool:
        loop = asyncio.get_running_loop()
        for _ in range(50):
            due, fired = loop.time() + delay, asyncio.Event()
            loop.call_at(due, fired.set)
            await fired.wait()
            if loop.time() < due:
                return False
        return True

    assert run_simulated(compares)


def test_timers_of_one_moment_fire_in_the_order_in_which_they_were_set() -> None:
    async def sets() -> list[int]:
        loop, seen = asyncio.get_running_loop(), list[int]()
        for number in range(100):
            loop.call_at(1.0, seen.append, number)
        await asyncio.sleep(1.5)
        return seen

    assert run_simulated(sets) == list(range(100))


def test_work_for_threads_takes_virtual_time_and_no_thread() -> None:
    async def works() -> bool:
        here = threading.get_ident()
        there = await asyncio.to_thread(threading.get_ident)
        return here == there and asyncio.get_running_loop().time() > 0

    assert run_simulated(works)


def test_work_for_threads_has_no_running_loop() -> None:
    async def works() -> str:
        try:
            await asyncio.to_thread(asyncio.get_running_loop)
        except RuntimeError as error:
            return str(error)
        return ""

    assert "no running event loop" in str(run_simulated(works))


# --- what is refused, and getting stuck


def test_waiting_for_what_never_comes_is_an_error_that_names_the_tasks() -> None:
    async def waits() -> None:
        await asyncio.gather(asyncio.create_task(asyncio.Event().wait(), name="for-ever"))

    with pytest.raises(SimDeadlock, match=r"main/for-ever at Event\.wait"):
        run_simulated(waits)


def test_spinning_without_time_moving_on_is_an_error() -> None:
    async def spins() -> None:
        while True:
            await asyncio.sleep(0)

    with pytest.raises(SimOverrun, match="without time moving on"):
        run_simulated(spins, SimLoop(scheduler(steps_per_instant_max=1_000)))


def test_a_run_has_a_budget_of_steps() -> None:
    async def ticks() -> None:
        while True:
            await asyncio.sleep(1)

    with pytest.raises(SimOverrun, match="more than 500 steps"):
        run_simulated(ticks, SimLoop(scheduler(steps_max=500)))


ESCAPES: list[Callable[[], object]] = [
    lambda: asyncio.get_running_loop().add_reader(0, print),
    lambda: asyncio.get_running_loop().add_signal_handler(10, print),
    socket.socket,
    lambda: threading.Thread(target=print).start(),
    lambda: time.sleep(0),
    lambda: os.open("escaped-file", os.O_WRONLY | os.O_CREAT),
    lambda: socket.getaddrinfo("localhost", 80),
]


@pytest.mark.parametrize("escape", ESCAPES)
def test_reaching_for_the_real_world_is_refused(escape: Callable[[], object]) -> None:
    async def escapes() -> None:
        escape()

    with pytest.raises(SimEscape):
        run_simulated(escapes)


def test_outside_of_a_simulation_the_real_world_is_untouched() -> None:
    async def nothing() -> None: ...

    run_simulated(nothing)
    with socket.socket() as real:
        assert real.fileno() >= 0


def test_a_loop_without_a_network_says_so() -> None:
    async def connects() -> None:
        await asyncio.open_connection("a", 1)

    with pytest.raises(SimEscape, match="has no simulated network"):
        run_simulated(connects)


# --- several loops


def test_each_loop_is_the_running_one_for_its_own_tasks() -> None:
    shared = scheduler()
    loops = [SimLoop(shared, name) for name in ("a", "b")]

    async def who(delay: float) -> asyncio.AbstractEventLoop:
        await asyncio.sleep(delay)
        return asyncio.get_running_loop()

    tasks = [loop.create_task(who(1.0)) for loop in loops]
    shared.run(lambda: all(task.done() for task in tasks))
    assert [task.result() for task in tasks] == loops
    for loop in loops:
        loop.close()


def test_chance_decides_between_loops_but_never_within_one() -> None:
    orders: set[str] = set()
    for seed in range(20):
        shared = SimScheduler(SimRandomness(seed))
        seen: list[str] = []
        for name in "abc":
            loop = SimLoop(shared, name)
            loop.call_soon(seen.append, f"{name}1")
            loop.call_soon(seen.append, f"{name}2")
        shared.run(lambda seen=seen: len(seen) == 6)  # type: ignore[misc]
        assert all(seen.index(f"{name}1") < seen.index(f"{name}2") for name in "abc")
        orders.add("".join(seen))
    assert len(orders) > 3


def test_without_shuffling_loops_take_turns_by_number() -> None:
    shared = scheduler(shuffle=False)
    seen: list[str] = []
    for name in "abc":
        SimLoop(shared, name).call_soon(seen.append, name)
    shared.run(lambda: len(seen) == 3)
    assert seen == ["a", "b", "c"]


def test_a_killed_loop_runs_nothing_more_and_accepts_every_call() -> None:
    shared = scheduler()
    doomed, other = SimLoop(shared, "doomed"), SimLoop(shared, "other")
    seen: list[str] = []

    async def works() -> None:
        try:
            await asyncio.sleep(1)
        finally:
            seen.append("finally")

    doomed.create_task(works())
    other.call_later(0.5, doomed.kill)
    other.call_later(5, seen.append, "over")
    shared.run(lambda: "over" in seen)
    assert seen == ["over"]
    assert doomed.call_soon(seen.append, "late").cancelled()
    assert doomed.call_later(1, seen.append, "late").cancelled()


def test_what_a_dead_loop_left_behind_is_closed_without_effect_at_the_end() -> None:
    shared = scheduler()
    doomed, other = SimLoop(shared, "doomed"), SimLoop(shared, "other")

    async def refuses_to_go() -> None:
        while True:
            try:
                await asyncio.sleep(1)
            finally:
                await asyncio.get_running_loop().create_future()

    async def never_started() -> None: ...

    async def awaits(handed: Coroutine[Any, Any, None]) -> None:
        await handed

    doomed.create_task(refuses_to_go())
    shared.run(lambda: False, deadline_ns=10**8)
    doomed.kill()
    doomed.create_task(never_started())
    doomed.create_task(awaits(never_started()))
    doomed.bury()
    other.close()


def test_a_paused_loop_waits_while_others_go_on_and_catches_up_later() -> None:
    shared = scheduler()
    paused, other = SimLoop(shared, "paused"), SimLoop(shared, "other")
    seen: list[tuple[str, float]] = []

    async def ticks() -> None:
        for _ in range(3):
            await asyncio.sleep(1)
            seen.append(("tick", paused.time()))
        await asyncio.to_thread(lambda: seen.append(("work", paused.time())))

    paused.create_task(ticks())
    other.call_later(1.5, paused.pause)
    other.call_later(10, paused.resume)
    shared.run(lambda: len(seen) == 4)
    assert [moment for _, moment in seen[:3]] == [1.0, 10.0, 11.0]
    paused.close()
