"""Threads next to the event loop: for calls that block, and for work that goes on while the loop is busy.

`ThreadWorkers` is for calls that wait outside the interpreter lock: flushes, reads that are not cached, SQLite. At a
light load the way to a thread and back is a good part of an answer's time, and a general-purpose pool makes it several
times as long as it need be: here it is one queue there and one call of the loop back. `run_in_thread` is for work with
an event loop of its own; it opens its own connections and shares nothing with its starter but plain values that one
side writes and the other reads.

Rules: every thread is a daemon, since a process that ends without a stop must not wait for a device. In a simulation
there are no threads: what takes their place is in `sim/threads.py`, behind the same two types.

Proved by: tests/unit/base/test_threads.py, tests/unit/base/test_background.py
"""

import asyncio
import contextlib
import threading
from collections.abc import Callable, Coroutine
from queue import Empty, SimpleQueue
from typing import Any, Protocol, TypeAlias, TypeVar

_T = TypeVar("_T")


# --- calls


class Workers(Protocol):
    """Who does what blocks."""

    def run(self, work: Callable[[], _T]) -> asyncio.Future[_T]:
        """Call `work` elsewhere; the result, or what it raised, arrives on the running loop."""
        ...

    def close(self) -> None:
        """Take no more work; what is under way goes on."""
        ...


MakeWorkers: TypeAlias = Callable[[str, int], Workers]
"""Given a name and how many calls may be under way at once."""


class ThreadWorkers:
    """Threads, each started when there is more to do than there are threads."""

    def __init__(self, name: str, threads_max: int) -> None:
        self.settle: Callable[[], float | None] | None = None
        """Runs on a thread after each of its calls, and whenever the seconds it last named have passed (None: until
        the next call)."""
        self._name = name
        self._threads_max = threads_max
        self._threads: list[threading.Thread] = []
        self._under_way = 0
        self._calls: SimpleQueue[tuple[asyncio.Future[Any], Callable[[], Any]] | None] = SimpleQueue()

    def run(self, work: Callable[[], _T]) -> asyncio.Future[_T]:
        future: asyncio.Future[_T] = asyncio.get_running_loop().create_future()
        if len(self._threads) < min(self._under_way + 1, self._threads_max):
            try:
                self.start_thread()
            except RuntimeError:  # the system allows no more of them
                if not self._threads:
                    _do_here(future, work)
                    return future
        self._under_way += 1
        self._calls.put((future, work))
        return future

    def start_thread(self) -> None:
        """Have one more; raises RuntimeError when the system allows none."""
        thread = threading.Thread(target=self._serve, name=f"{self._name}-{len(self._threads) + 1}", daemon=True)
        thread.start()
        self._threads.append(thread)

    def close(self) -> None:
        for _ in self._threads:
            self._calls.put(None)
        self._threads = []

    def join(self) -> None:
        """Close, and wait until what is under way is done."""
        threads = self._threads
        self.close()
        for thread in threads:
            thread.join()

    def _serve(self) -> None:
        pause: float | None = None
        while True:
            try:
                call = self._calls.get(timeout=pause)
            except Empty:
                pass
            else:
                if call is None:
                    return
                self._do(*call)
                # A thread that waits must not keep alive what the last call was about.
                del call
            pause = self.settle() if self.settle is not None else None

    def _do(self, future: asyncio.Future[_T], work: Callable[[], _T]) -> None:
        try:
            result = work()
        except BaseException as error:  # noqa: BLE001 - it is the caller's
            self._report(future, future.set_exception, error)
        else:
            self._report(future, future.set_result, result)

    def _report(self, future: asyncio.Future[Any], resolve: Callable[[Any], None], outcome: object) -> None:
        with contextlib.suppress(RuntimeError):  # the loop that asked is closed, and no caller waits
            future.get_loop().call_soon_threadsafe(self._resolve, future, resolve, outcome)

    def _resolve(self, future: asyncio.Future[Any], resolve: Callable[[Any], None], outcome: object) -> None:
        self._under_way -= 1
        if not future.done():
            resolve(outcome)


def _do_here(future: asyncio.Future[_T], work: Callable[[], _T]) -> None:
    """Better late than never: the loop waits."""
    try:
        future.set_result(work())
    except BaseException as error:  # noqa: BLE001 - it is the caller's
        future.set_exception(error)


# --- work with a loop of its own

Work: TypeAlias = Callable[[], Coroutine[Any, Any, None]]
OnFailure: TypeAlias = Callable[[BaseException], None]


class BackgroundWork(Protocol):
    """Work under way."""

    async def aclose(self) -> None:
        """Cancel it and wait for its end."""
        ...


RunInBackground: TypeAlias = Callable[[Work, str, OnFailure], BackgroundWork]
"""Given the work, its name, and what to call, once and on the starter's loop, when it raises."""


class _LoopThread:
    def __init__(self, work: Work, name: str, on_failure: OnFailure) -> None:
        self._on_failure = on_failure
        self._home = asyncio.get_running_loop()
        self._ended: asyncio.Future[None] = self._home.create_future()
        self._loop = asyncio.new_event_loop()
        self._task: asyncio.Task[None] = self._loop.create_task(work(), name=name)
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        try:
            self._loop.run_until_complete(asyncio.wait([self._task]))
        finally:
            self._loop.close()
            with contextlib.suppress(RuntimeError):  # the starter's loop is gone, and no caller waits
                self._home.call_soon_threadsafe(self._finish)

    def _finish(self) -> None:
        report_failure(self._task, self._on_failure)
        if not self._ended.done():
            self._ended.set_result(None)

    async def aclose(self) -> None:
        if not self._ended.done():
            with contextlib.suppress(RuntimeError):  # it ends by itself just now
                self._loop.call_soon_threadsafe(self._task.cancel)
            await self._ended
        self._thread.join()


def report_failure(task: asyncio.Task[None], on_failure: OnFailure) -> None:
    """Pass on what a task that has ended raised."""
    error = None if task.cancelled() else task.exception()
    if error is not None:
        on_failure(error)


def run_in_thread(work: Work, name: str, on_failure: OnFailure) -> BackgroundWork:
    """A thread of its own, with an event loop of its own."""
    return _LoopThread(work, name, on_failure)
