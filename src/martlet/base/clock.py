"""The clock port: wall time for records and retention, monotonic time for deadlines.

Pure code never holds a clock, it is given `now_ms`; the asyncio shell holds one and passes the number on.
`SimClock` in `martlet.testing` is the deterministic twin.
"""

import time
from typing import Protocol


class Clock(Protocol):
    """Two readings that must not be mixed: one can jump, the other never goes back."""

    def now_ms(self) -> int:
        """Milliseconds since the Unix epoch; may jump when the system's clock is set."""
        ...

    def monotonic_ms(self) -> int:
        """Milliseconds from an arbitrary start that never go back and go on while the machine sleeps."""
        ...


class SystemClock:
    """The machine's clocks."""

    __slots__ = ()

    def now_ms(self) -> int:
        return time.time_ns() // 1_000_000

    def monotonic_ms(self) -> int:
        # CLOCK_BOOTTIME counts a suspended machine's sleep, so a lease cannot outlive it (Linux only).
        return time.clock_gettime_ns(getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)) // 1_000_000
