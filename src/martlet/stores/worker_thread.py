"""A thread that owns something and runs calls on it, one after the other, for an event loop.

Rules: it knows nothing of what it runs. The owner that starts it stops it, and it finishes what was handed to it
before. It is a daemon only so that a process which ends without that does not wait for it.

How it works: calls wait in a queue; results travel back through the caller's loop. After each call, and whenever
the time it last named has passed, the thread runs `settle`, which returns how many seconds it may sleep at most
(None: until the next call).
"""

import asyncio
import queue
import threading
from collections.abc import Callable
from typing import Any, TypeVar

T = TypeVar("T")


class WorkerThread:
    """Started by `start`, ended by `stop`; calls come from event loops, any number of them."""

    def __init__(self, name: str) -> None:
        self._calls: queue.SimpleQueue[Callable[[], None] | None] = queue.SimpleQueue()
        self._settle: Callable[[], float | None] | None = None
        self._thread = threading.Thread(target=self._serve, name=name, daemon=True)

    def start(self) -> None:
        self._thread.start()

    def set_settle(self, settle: Callable[[], float | None]) -> None:
        """Install what runs after each call; takes effect with the next one."""
        self._settle = settle

    async def run(self, function: Callable[[], T]) -> T:
        """Run the function on the thread; a caller that is cancelled meanwhile does not stop it."""
        loop = asyncio.get_running_loop()
        future: asyncio.Future[T] = loop.create_future()

        def call() -> None:
            try:
                result = function()
            except Exception as error:  # noqa: BLE001 - carried to the caller, who raises it
                _hand_over(loop, future, future.set_exception, error)
            else:
                _hand_over(loop, future, future.set_result, result)

        self._calls.put(call)
        return await future

    def stop(self) -> None:
        """Let the thread finish its calls and wait for its end."""
        self._calls.put(None)
        self._thread.join()

    def _serve(self) -> None:
        wait: float | None = None
        while True:
            try:
                call = self._calls.get(timeout=wait)
            except queue.Empty:
                pass
            else:
                if call is None:
                    return
                call()
            wait = self._settle() if self._settle is not None else None


def _hand_over(
    loop: asyncio.AbstractEventLoop, future: "asyncio.Future[T]", setter: Callable[[Any], None], value: object
) -> None:
    def deliver() -> None:
        if not future.done():
            setter(value)

    try:
        loop.call_soon_threadsafe(deliver)
    except RuntimeError:
        # The loop was closed while the call ran; no caller waits for the answer any more.
        return
