"""Administrative requests that say how long to wait for them: the time bounds the waiting, not the work.

How it works: a handler returns a `TimedAnswer`: the work, which writes down what it has done as it goes, and how to
read the response from that. When the time is over the response is read as things are, with NOT_IN_TIME for what is not
done, and the work goes on. So a client hears in its own time that the metadata store is away, and what it asked for may
still be done: so clients understand REQUEST_TIMED_OUT. librdkafka sends 0 for "do not wait" and hides the error.

Invariant: SRV-4 no work is begun while LATE_MAX works are late, so that impatient clients cannot pile work up.

Proved by: tests/unit/broker/serving/test_timed_work.py, tests/broker/test_admin_timeouts.py
"""

import asyncio
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from typing import Any, Final

from martlet.base.errors import ApiError, ErrorCode

LATE_MAX: Final = 100

NOT_IN_TIME: Final = ApiError(
    ErrorCode.REQUEST_TIMED_OUT, "not done in the time that the request gave; it may be done later"
)


@dataclass(frozen=True, slots=True)
class TimedAnswer:
    """What a handler returns for such a request."""

    work: Coroutine[Any, Any, object]
    timeout_ms: int
    read: Callable[[], object]
    """The response as things are now."""


class TimedWork:
    """Owned by the dispatcher; owns the tasks that do the work."""

    def __init__(self, on_late_error: Callable[[Exception], None]) -> None:
        self._on_late_error = on_late_error
        self._running: set[asyncio.Task[object]] = set()
        self._late: set[asyncio.Task[object]] = set()

    async def answer(self, asked: TimedAnswer) -> object:
        """The response once the work is done or its time is over; raises what the work raises until then."""
        if len(self._late) >= LATE_MAX:
            asked.work.close()
            return asked.read()
        task = asyncio.create_task(asked.work)
        self._running.add(task)
        task.add_done_callback(self._running.discard)
        if asked.timeout_ms > 0:
            await asyncio.wait([task], timeout=asked.timeout_ms / 1000)
        else:
            await asyncio.sleep(0)  # whatever need not wait for anything is done all the same
        if task.done():
            task.result()
        else:
            self._late.add(task)
            task.add_done_callback(self._late_ended)
        return asked.read()

    async def aclose(self) -> None:
        """Cancel what is still running."""
        for task in self._running:
            task.cancel()
        await asyncio.gather(*self._running, return_exceptions=True)

    def _late_ended(self, task: asyncio.Task[object]) -> None:
        self._late.discard(task)
        error = None if task.cancelled() else task.exception()
        if isinstance(error, Exception):
            self._on_late_error(error)
