"""Measures how late the event loop is: the time between when a timer was due and when it ran.

One timer twice a second, through the running loop's own calls, so it also works under virtual time. A blocking
call anywhere in the process shows up here. Under uvloop the resolution is a millisecond.

Proved by: tests/unit/observe/test_loop_lag.py.
"""

import asyncio
from typing import Final

from martlet.base.invariant import invariant
from martlet.observe.metrics import DurationHistogram

INTERVAL_SECONDS: Final = 0.5


class LoopLagProbe:
    """Owned by the broker's wiring; runs from `start` to `stop` on the loop that called `start`."""

    def __init__(self, histogram: DurationHistogram, interval_seconds: float = INTERVAL_SECONDS) -> None:
        self._histogram = histogram
        self._interval_seconds = interval_seconds
        self._timer: asyncio.TimerHandle | None = None

    def start(self) -> None:
        invariant(self._timer is None, "a loop lag probe is started once")
        self._schedule(asyncio.get_running_loop())

    def stop(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _schedule(self, loop: asyncio.AbstractEventLoop) -> None:
        due = loop.time() + self._interval_seconds
        self._timer = loop.call_at(due, self._tick, loop, due)

    def _tick(self, loop: asyncio.AbstractEventLoop, due: float) -> None:
        self._histogram.observe(max(0.0, loop.time() - due))
        self._schedule(loop)
