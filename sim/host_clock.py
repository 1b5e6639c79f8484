"""A simulated machine's clocks: the world's time, seen with an error of its own.

Drift makes all of a machine's time run faster or slower, its event loop's timers included; a jump sets its wall clock
only, as an operator or NTP may do. Leases and timeouts must be safe under both.
"""

from typing import Final

from sim.scheduler import NS_PER_MS, SimScheduler

EPOCH_MS: Final = 1_700_000_000_000
_MILLION: Final = 1_000_000


class HostClock:
    """A `Clock` for the code on the machine, and the `LocalTime` of its event loops."""

    def __init__(self, scheduler: SimScheduler, *, drift_ppm: int = 0) -> None:
        self._scheduler = scheduler
        self._drift_ppm = drift_ppm
        self._wall_error_ms = 0

    def now_ms(self) -> int:
        return EPOCH_MS + self._wall_error_ms + self.monotonic_ms()

    def monotonic_ms(self) -> int:
        return self.local_ns(self._scheduler.now_ns) // NS_PER_MS

    def jump(self, by_ms: int) -> None:
        """Set the wall clock forward, or back."""
        self._wall_error_ms += by_ms

    def local_ns(self, world_ns: int) -> int:
        return world_ns + world_ns * self._drift_ppm // _MILLION

    def world_ns(self, local_ns: int) -> int:
        if not self._drift_ppm:
            return local_ns
        world_ns = local_ns * _MILLION // (_MILLION + self._drift_ppm)
        while self.local_ns(world_ns) < local_ns:
            world_ns += 1
        return world_ns
