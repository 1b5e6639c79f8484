"""The clock's deterministic twin: time stands still until a test moves it.

Wall time may be set to anything, as an operator or NTP may do; monotonic time only ever advances.
"""


class SimClock:
    """Starts at a fixed instant so that two runs print the same timestamps."""

    __slots__ = ("_monotonic_ms", "_now_ms")

    def __init__(self, now_ms: int = 1_700_000_000_000) -> None:
        self._now_ms = now_ms
        self._monotonic_ms = 0

    def now_ms(self) -> int:
        return self._now_ms

    def monotonic_ms(self) -> int:
        return self._monotonic_ms

    def advance(self, elapsed_ms: int) -> None:
        """Let time pass on both clocks."""
        if elapsed_ms < 0:
            raise ValueError("time does not pass backwards; set_wall_clock() makes the wall clock jump")
        self._now_ms += elapsed_ms
        self._monotonic_ms += elapsed_ms

    def set_wall_clock(self, now_ms: int) -> None:
        """Make the wall clock jump, forwards or back; monotonic time does not notice."""
        self._now_ms = now_ms
