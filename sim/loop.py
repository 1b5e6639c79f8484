"""An asyncio event loop on virtual time: one per simulated process, all on one scheduler.

Design. A process of a simulation is a `SimLoop`. All loops share one `SimScheduler`, which owns time and decides whose
turn it is; while a loop makes its turn, it is asyncio's running loop. So `asyncio.get_running_loop()` inside a broker
gives that broker's own loop, its tasks, timers and connections belong to that process, and nothing has to be passed
along or looked up. Killing a process is dropping its loop: a dead loop accepts every call and does nothing, so
that whatever a stray reference still does has no effect.

What works: tasks, futures, timers, `run_in_executor` and with it `asyncio.to_thread`, `create_connection`,
`create_server`, asynchronous generators, and everything of asyncio built on these. Work given to an executor is run
by the scheduler after a drawn delay, without a thread, and its result arrives after another one: a crash may fall
between the two. Everything else (readers on file descriptors, sockets, pipes, signals, TLS, child processes) raises
SimEscape.

Invariants: (SIM-11) nothing of a dead loop runs: no callback, no `finally`, no finaliser, until the whole simulation is
over and `bury` closes what is left; (SIM-12) tasks are held by their loop and hash by their number, so neither the
garbage collector nor a set of tasks brings chance into a run.
"""

import asyncio
from asyncio import events
from collections import deque
from collections.abc import AsyncGenerator, Callable, Coroutine, Generator
from concurrent.futures import Executor
from contextvars import Context
from typing import Any, Final, TypeVar, cast

from typing_extensions import TypeVarTuple, Unpack

from martlet.base.invariant import invariant
from martlet.base.randomness import Randomness
from sim.guard import real_world_refused
from sim.loop_network import NetworkedLoop
from sim.ports import LocalTime, LoopNetwork, TrueTime
from sim.randomness import SimRandomness
from sim.scheduler import NS_PER_SECOND, SimScheduler
from sim.task import SimTask
from sim.workers import SimWorkers

_T = TypeVar("_T")
_Ts = TypeVarTuple("_Ts")

_TASKS_PRUNED_FROM: Final = 256


class SimLoop(NetworkedLoop):
    """The event loop of one simulated process."""

    def __init__(
        self,
        scheduler: SimScheduler,
        name: str = "main",
        *,
        randomness: Randomness | None = None,
        network: LoopNetwork | None = None,
        local_time: LocalTime | None = None,
        work_ns: tuple[int, int] = (20_000, 2_000_000),
    ) -> None:
        super().__init__(scheduler, name, network)
        self.number = scheduler.register(self)
        self.is_paused = False
        chance = randomness if randomness is not None else SimRandomness(f"loop {name}")
        self.workers = SimWorkers(self, chance, work_ns)
        self._local_time = local_time if local_time is not None else TrueTime()
        self._ready: deque[asyncio.Handle] = deque()
        self._is_in_line = False
        self._tasks: list[SimTask[Any]] = []
        self._task_count = 0
        self._prune_at = _TASKS_PRUNED_FROM
        self._generators: list[AsyncGenerator[Any, Any]] = []
        self._closed = False
        self._stopping = False
        self._running = False

    # --- the scheduler's calls

    def make_turn(self) -> int:
        """Run what is ready now; returns how many callbacks that were."""
        ready = self._ready
        count = len(ready)
        events._set_running_loop(self)  # noqa: SLF001 - a loop has to set itself as the running one
        try:
            for _ in range(count):
                handle = ready.popleft()
                if not handle.cancelled():
                    handle._run()  # noqa: SLF001 - how every event loop runs a handle
                if self.is_dead or self.is_paused:
                    break
        finally:
            events._set_running_loop(None)  # noqa: SLF001
        if not ready:
            self._leave_line()
        return count

    def timer_is_due(self, handle: asyncio.TimerHandle) -> None:
        """A timer's moment has come: it is ready like any other callback."""
        if not self.is_dead:
            self._add_ready(handle)

    def _add_ready(self, handle: asyncio.Handle) -> None:
        self._ready.append(handle)
        self._join_line()

    def _join_line(self) -> None:
        if not self._is_in_line and not self.is_paused:
            self._is_in_line = True
            self.scheduler.loop_is_ready(self)

    def _leave_line(self) -> None:
        if self._is_in_line:
            self._is_in_line = False
            self.scheduler.loop_is_idle(self)

    # --- the world's calls

    def kill(self) -> None:
        """End the process on the spot: nothing of it runs any more, not even its `finally` blocks."""
        if self.is_dead:
            return
        self.is_dead = True
        self._ready.clear()
        self.workers.forget()
        self._leave_line()

    def pause(self) -> None:
        """Stop the process as SIGSTOP does: what becomes ready waits, time goes on without it."""
        self.is_paused = True
        self.workers.pause()
        self._leave_line()

    def resume(self) -> None:
        if not self.is_paused or self.is_dead:
            return
        self.is_paused = False
        if self._ready:
            self._join_line()
        self.workers.resume()

    def bury(self) -> None:
        """After the simulation: unwind what the process left behind, with this loop dead so that it has no effect."""
        self.kill()
        outer = events._get_running_loop()  # noqa: SLF001 - clean-up code may ask which loop runs
        events._set_running_loop(self)  # noqa: SLF001
        try:
            with real_world_refused():
                while self._tasks:
                    tasks, self._tasks = self._tasks, []
                    for task in tasks:
                        task.unwind()
        finally:
            events._set_running_loop(outer)  # noqa: SLF001
        self._generators.clear()

    def unfinished_tasks(self) -> "list[SimTask[Any]]":
        """In the order in which they were created."""
        return [task for task in self._tasks if not task.done()]

    def describe_tasks(self) -> list[str]:
        """One line per unfinished task: its name and the place where it waits."""
        return [f"{self.name}/{task.get_name()} at {task.place()}" for task in self.unfinished_tasks()]

    # --- time and callbacks

    def time(self) -> float:
        return self._local_time.local_ns(self.scheduler.now_ns) / NS_PER_SECOND

    def call_soon(
        self, callback: Callable[[Unpack[_Ts]], object], *args: *_Ts, context: Context | None = None
    ) -> asyncio.Handle:
        self._check_open()
        handle = asyncio.Handle(callback, args, self, context)
        if self.is_dead:
            handle.cancel()
        else:
            self._add_ready(handle)
        return handle

    def call_soon_threadsafe(
        self, callback: Callable[[Unpack[_Ts]], object], *args: *_Ts, context: Context | None = None
    ) -> asyncio.Handle:
        return self.call_soon(callback, *args, context=context)

    def call_later(
        self,
        delay: float,
        callback: Callable[[Unpack[_Ts]], object],
        *args: *_Ts,
        context: Context | None = None,
    ) -> asyncio.TimerHandle:
        return self.call_at(self.time() + delay, callback, *args, context=context)

    def call_at(
        self,
        when: float,
        callback: Callable[[Unpack[_Ts]], object],
        *args: *_Ts,
        context: Context | None = None,
    ) -> asyncio.TimerHandle:
        self._check_open()
        handle = asyncio.TimerHandle(when, callback, args, self, context)
        if self.is_dead:
            handle.cancel()
        else:
            self.scheduler.add_timer(self._local_time.world_ns(_first_ns_at(when)), handle, self)
        return handle

    def _timer_handle_cancelled(self, handle: asyncio.TimerHandle) -> None:
        """Asyncio's timer handles say so; cancelled ones are skipped when their time comes."""

    # --- futures and tasks

    def create_future(self) -> asyncio.Future[Any]:
        return asyncio.Future(loop=self)

    def create_task(
        self,
        coro: Generator[Any, None, _T] | Coroutine[Any, Any, _T],
        *,
        name: object = None,
        context: Context | None = None,
    ) -> asyncio.Task[_T]:
        self._check_open()
        if self._task_factory is not None:
            return cast(asyncio.Task[_T], self._task_factory(self, coro))
        self._task_count += 1
        label = f"task-{self._task_count}" if name is None else str(name)
        task = SimTask(coro, self, label, context, self._task_count)
        self._tasks.append(task)
        if len(self._tasks) > self._prune_at:
            self._tasks = self.unfinished_tasks()
            self._prune_at = max(_TASKS_PRUNED_FROM, 2 * len(self._tasks))
        return task

    # --- work for threads, without threads

    def run_in_executor(
        self, executor: Executor | None, func: Callable[[Unpack[_Ts]], _T], *args: *_Ts
    ) -> asyncio.Future[_T]:
        return self.workers.submit(lambda: func(*args))

    # --- running this loop alone, as asyncio.Runner does

    def run_forever(self) -> None:
        self._check_open()
        self._stopping = False
        self._running = True
        try:
            self.scheduler.run(lambda: self._stopping or self.is_dead)
        finally:
            self._running = False

    def run_until_complete(self, future: Any) -> Any:
        """Run the whole simulation until this future is done."""
        self._check_open()
        task = asyncio.ensure_future(future, loop=self)
        self._running = True
        try:
            self.scheduler.run(lambda: task.done() or self.is_dead)
        finally:
            self._running = False
        invariant(task.done(), f"{self.name} was killed before its task was done")
        return task.result()

    def stop(self) -> None:
        self._stopping = True

    def is_running(self) -> bool:
        return self._running or events._get_running_loop() is self  # noqa: SLF001

    def is_closed(self) -> bool:
        return self._closed

    def close(self) -> None:
        if not self._closed:
            self.bury()
            self._closed = True

    async def shutdown_asyncgens(self) -> None:
        generators, self._generators = self._generators, []
        for generator in generators:
            await generator.aclose()

    def generator_dropped(self, generator: AsyncGenerator[Any, Any]) -> None:
        """Nothing holds an unfinished asynchronous generator any more: close it, as every loop does."""
        if self.is_dead:
            # A finaliser is called once, so when this list goes it is not asked again: its `finally` never runs.
            self._generators.append(generator)
        elif not self._closed:
            self.create_task(generator.aclose(), name="close-dropped-generator")

    def _check_open(self) -> None:
        if self._closed:
            raise RuntimeError("Event loop is closed")


def _first_ns_at(when: float) -> int:
    """The first nanosecond at which `time()` is not below `when`, so that a comparison finds it due."""
    when_ns = int(when * NS_PER_SECOND)
    while when_ns / NS_PER_SECOND < when:
        when_ns += 1
    return when_ns
