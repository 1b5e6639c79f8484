"""Pauses between attempts that grow and vary, so that clients that were cut off together do not return together."""

from martlet.base.randomness import Randomness


class Backoff:
    """The pauses of one series of attempts."""

    __slots__ = ("_first_ms", "_longest_ms", "_next_ms", "_randomness")

    def __init__(self, first_ms: int, longest_ms: int, randomness: Randomness) -> None:
        self._first_ms = self._next_ms = first_ms
        self._longest_ms = longest_ms
        self._randomness = randomness

    def next_ms(self) -> float:
        """How long to wait now: between half and the whole of a pause that doubles each time."""
        pause_ms = self._next_ms * (0.5 + self._randomness.fraction() / 2)
        self._next_ms = min(self._next_ms * 2, self._longest_ms)
        return pause_ms

    def reset(self) -> None:
        """An attempt has succeeded."""
        self._next_ms = self._first_ms
