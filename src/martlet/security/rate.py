"""A rate kept as one number (GCRA): the time at which all that was taken is paid for.

What is taken is charged at once and waited for afterwards, so a burst of a second is free and what follows is held to
the rate. Times are milliseconds of a clock that never goes back.

Proved by: tests/unit/security/test_rate.py
"""

from typing import Final

_BURST_MS: Final = 1_000.0


class Rate:
    """One counter."""

    __slots__ = ("_burst_ms", "_ms_per_unit", "_paid_at_ms")

    def __init__(self, per_second: float, burst_ms: float = _BURST_MS) -> None:
        self._ms_per_unit = 1_000.0 / per_second
        self._burst_ms = burst_ms
        self._paid_at_ms = 0.0

    def set_rate(self, per_second: float) -> None:
        """Another rate from now on; what is owed stays owed in time."""
        self._ms_per_unit = 1_000.0 / per_second

    def take(self, units: float, now_ms: float) -> float:
        """Charge this many units; returns for how many milliseconds to wait, 0 within the burst."""
        paid_at_ms = self._paid_at_ms
        if paid_at_ms < now_ms:
            paid_at_ms = now_ms
        self._paid_at_ms = paid_at_ms = paid_at_ms + units * self._ms_per_unit
        wait_ms = paid_at_ms - now_ms - self._burst_ms
        return wait_ms if wait_ms > 0 else 0.0

    def try_take(self, units: float, now_ms: float) -> bool:
        """Charge only what is within the rate; False charges nothing."""
        before = self._paid_at_ms
        if self.take(units, now_ms) > 0:
            self._paid_at_ms = before
            return False
        return True

    def is_paid(self, now_ms: float) -> bool:
        """Whether nothing is owed, so that the counter may be forgotten."""
        return self._paid_at_ms <= now_ms
