"""Work that goes on while the broker's event loop is busy: in a thread with an event loop of its own.

Rules: background work shares nothing with the broker but plain values that one side writes and the other reads; it
opens its own connections. In a simulation there are no threads, and a task of the same loop takes the place. An
exception of the work is reported to the broker's loop, once.

Proved by: tests/unit/broker/ground/test_background.py
"""

import asyncio
import contextlib
import threading
from collections.abc import Callable, Coroutine
from typing import Any, Protocol, TypeAlias

Work: TypeAlias = Callable[[], Coroutine[Any, Any, None]]
OnFailure: TypeAlias = Callable[[BaseException], None]


class BackgroundWork(Protocol):
    """Work under way."""

    async def aclose(self) -> None:
        """Cancel it and wait for its end."""
        ...


RunInBackground: TypeAlias = Callable[[Work, str, OnFailure], BackgroundWork]
"""Given the work, its name, and what to call when it raises."""


class _Thread:
    def __init__(self, work: Work, name: str, on_failure: OnFailure) -> None:
        self._on_failure = on_failure
        self._home = asyncio.get_running_loop()
        self._ended: asyncio.Future[None] = self._home.create_future()
        self._loop = asyncio.new_event_loop()
        self._task: asyncio.Task[None] = self._loop.create_task(work(), name=name)
        # A daemon: a process that ends without a stop must not wait for it.
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        try:
            self._loop.run_until_complete(asyncio.wait([self._task]))
        finally:
            self._loop.close()
            with contextlib.suppress(RuntimeError):  # the broker's loop is gone, and no caller waits
                self._home.call_soon_threadsafe(self._finish)

    def _finish(self) -> None:
        _report(self._task, self._on_failure)
        if not self._ended.done():
            self._ended.set_result(None)

    async def aclose(self) -> None:
        if not self._ended.done():
            with contextlib.suppress(RuntimeError):  # it ends by itself just now
                self._loop.call_soon_threadsafe(self._task.cancel)
            await self._ended
        self._thread.join()


class _Task:
    def __init__(self, work: Work, name: str, on_failure: OnFailure) -> None:
        self._task = asyncio.create_task(work(), name=name)
        self._task.add_done_callback(lambda task: _report(task, on_failure))

    async def aclose(self) -> None:
        self._task.cancel()
        await asyncio.wait([self._task])


def _report(task: asyncio.Task[None], on_failure: OnFailure) -> None:
    error = None if task.cancelled() else task.exception()
    if error is not None:
        on_failure(error)


def run_in_thread(work: Work, name: str, on_failure: OnFailure) -> BackgroundWork:
    """A thread of its own, with an event loop of its own."""
    return _Thread(work, name, on_failure)


def run_as_task(work: Work, name: str, on_failure: OnFailure) -> BackgroundWork:
    """A task of the running loop: for simulations."""
    return _Task(work, name, on_failure)
