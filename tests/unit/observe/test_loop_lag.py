"""The probe sees a blocked loop and stops when told."""

import asyncio
import time

import pytest

from martlet.base.errors import InvariantViolation
from martlet.observe.loop_lag import LoopLagProbe
from martlet.observe.metrics import DurationHistogram


async def test_a_blocked_loop_shows_as_lag() -> None:
    histogram = DurationHistogram((0.02,))
    probe = LoopLagProbe(histogram, interval_seconds=0.005)
    probe.start()
    await asyncio.sleep(0)
    time.sleep(0.05)
    await asyncio.sleep(0.01)
    probe.stop()
    assert histogram.counts[1] >= 1


async def test_a_stopped_probe_measures_no_more() -> None:
    histogram = DurationHistogram((0.02,))
    probe = LoopLagProbe(histogram, interval_seconds=0.001)
    probe.start()
    await asyncio.sleep(0.01)
    probe.stop()
    probe.stop()
    seen = histogram.count
    await asyncio.sleep(0.01)
    assert histogram.count == seen > 0


async def test_a_probe_is_not_started_twice() -> None:
    probe = LoopLagProbe(DurationHistogram((1.0,)))
    probe.start()
    with pytest.raises(InvariantViolation):
        probe.start()
    probe.stop()
