"""Threads for calls that wait for the device outside the interpreter lock: flushes, and reads that are not cached.

At a light load the way to a thread and back is a good part of an answer's time, and a general-purpose pool makes it
several times as long as it need be: here it is one queue there and one call of the loop back. In a simulation there are
no threads, and the loop's own executor, which is virtual there, takes the place.

Proved by: tests/unit/broker/ground/test_workers.py
"""

import asyncio
import contextlib
import threading
from collections.abc import Callable
from queue import SimpleQueue
from typing import Any, Protocol, TypeAlias, TypeVar

_T = TypeVar("_T")


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
        self._name = name
        self._threads_max = threads_max
        self._threads = 0
        self._under_way = 0
        self._calls: SimpleQueue[tuple[asyncio.Future[Any], Callable[[], Any]] | None] = SimpleQueue()

    def run(self, work: Callable[[], _T]) -> asyncio.Future[_T]:
        future: asyncio.Future[_T] = asyncio.get_running_loop().create_future()
        if self._threads < min(self._under_way + 1, self._threads_max):
            try:
                self._start_thread()
            except RuntimeError:  # the system allows no more of them
                if not self._threads:
                    _do_here(future, work)
                    return future
        self._under_way += 1
        self._calls.put((future, work))
        return future

    def _start_thread(self) -> None:
        # A daemon: a process that ends without a stop must not wait for a device.
        threading.Thread(target=self._serve, name=f"{self._name}-{self._threads + 1}", daemon=True).start()
        self._threads += 1

    def close(self) -> None:
        for _ in range(self._threads):
            self._calls.put(None)
        self._threads = 0

    def _serve(self) -> None:
        while (call := self._calls.get()) is not None:
            future, work = call
            try:
                result = work()
            except BaseException as error:  # noqa: BLE001 - it is the caller's
                self._tell(future, future.set_exception, error)
            else:
                self._tell(future, future.set_result, result)
                del result
            # A thread that waits must not keep alive what the last call was about.
            del call, future, work

    def _tell(self, future: asyncio.Future[Any], tell: Callable[[Any], None], outcome: object) -> None:
        with contextlib.suppress(RuntimeError):  # the loop that asked is closed, and no caller waits
            future.get_loop().call_soon_threadsafe(self._settle, future, tell, outcome)

    def _settle(self, future: asyncio.Future[Any], tell: Callable[[Any], None], outcome: object) -> None:
        self._under_way -= 1
        if not future.done():
            tell(outcome)


def _do_here(future: asyncio.Future[_T], work: Callable[[], _T]) -> None:
    """Better late than never: the loop waits."""
    try:
        future.set_result(work())
    except BaseException as error:  # noqa: BLE001 - it is the caller's
        future.set_exception(error)


class LoopWorkers:
    """What the running loop does with work for an executor: for simulations."""

    def __init__(self, name: str, threads_max: int) -> None:
        """Takes what `ThreadWorkers` takes; a simulated executor has no limit."""

    def run(self, work: Callable[[], _T]) -> asyncio.Future[_T]:
        return asyncio.get_running_loop().run_in_executor(None, work)

    def close(self) -> None:
        """Nothing was started."""
