"""The threads of a simulated process, without threads: work begins after a drawn delay, its result arrives after one.

A crash may fall between the two. Work of a paused process waits until it goes on; a device that does not answer holds
the work of its process back.

Proved by: tests/unit/sim/test_loop.py
"""

import asyncio
from collections.abc import Callable
from functools import partial
from typing import TypeVar

from martlet.base.randomness import Randomness
from sim.loop_settings import LoopSettings

_T = TypeVar("_T")


class SimWorkers:
    """One per loop."""

    def __init__(self, loop: LoopSettings, randomness: Randomness, work_ns: tuple[int, int]) -> None:
        self._loop = loop
        self._randomness = randomness
        self._work_ns = work_ns
        self._is_paused = False
        self._held: list[Callable[[], None]] = []
        self._held_until_ns = 0

    def submit(self, call: Callable[[], _T]) -> asyncio.Future[_T]:
        """What the call returns or raises, some time later."""
        future: asyncio.Future[_T] = self._loop.create_future()
        if not self._loop.is_dead:
            self._begin(lambda: self._run(future, call))
        return future

    def pause(self) -> None:
        self._is_paused = True

    def resume(self) -> None:
        self._is_paused = False
        held, self._held = self._held, []
        for work in held:
            work()

    def forget(self) -> None:
        """The process has died: what was held back never happens."""
        self._held.clear()

    def hold(self, until_ns: int) -> None:
        """Nothing begun from now on gets anywhere before that moment."""
        self._held_until_ns = max(self._held_until_ns, until_ns)

    def _begin(self, work: Callable[[], None]) -> None:
        scheduler = self._loop.scheduler
        shortest, longest = self._work_ns
        begin_ns = max(scheduler.now_ns, self._held_until_ns)
        delay_ns = shortest + self._randomness.below(longest - shortest + 1)
        scheduler.alarm_at(begin_ns + delay_ns, lambda: self._may_run(work))

    def _may_run(self, work: Callable[[], None]) -> None:
        if self._is_paused:
            self._held.append(work)
        elif not self._loop.is_dead:
            work()

    def _run(self, future: asyncio.Future[_T], call: Callable[[], _T]) -> None:
        try:
            result = call()
        except BaseException as error:  # noqa: BLE001 - it is the caller's, as in a real pool
            # A future refuses StopIteration, which would end the coroutine that awaits it.
            stops = isinstance(error, StopIteration)
            failure = RuntimeError("work for a thread raised StopIteration") if stops else error
            self._begin(lambda: self._deliver(future, partial(future.set_exception, failure)))
        else:
            self._begin(lambda: self._deliver(future, partial(future.set_result, result)))

    def _deliver(self, future: asyncio.Future[_T], resolve: Callable[[], None]) -> None:
        self._loop.call_soon(lambda: None if future.done() else resolve())
