"""What happens to a message whose attempt failed: again at once, again later, or no more; and in whose company.

Rules: pure; chance comes in as a port. An attempt is counted when the message is leased, so a message that kills its
worker runs out of attempts too. Suspects are handed out in smaller groups, and alone at their last attempt, so that the
innocent who were leased with them do not run out of attempts as well.

Proved by: tests/unit/queues/test_retry.py
"""

from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from martlet.base.randomness import Randomness

ATTEMPTS_MAX: Final = 250
"""Delivery counts are bytes."""
COUNT_OF_SIZES: Final = 257
"""One for every attempt that a byte can count, and one more."""
_UNLIMITED: Final = 1 << 31
_SUSPECT_ATTEMPT: Final = 3
_SUSPECTS_TOGETHER: Final = 64
_DELAY_MS_MAX: Final = 7 * 24 * 3_600_000


class Backoff(StrEnum):
    """How the pause before the next attempt grows."""

    IMMEDIATE = "immediate"
    FIXED = "fixed"
    EXPONENTIAL = "exponential"


@dataclass(frozen=True, slots=True)
class RetryPolicy:
    """Of one subscription; ValueError for what makes no sense."""

    attempts_max: int = 5
    backoff: Backoff = Backoff.IMMEDIATE
    delay_ms: int = 1_000
    """The pause, or the first of them."""
    delay_max_ms: int = 300_000
    jitter: float = 0.2
    """Up to this part of a pause is taken off by chance, so that what failed together does not come back together."""

    def __post_init__(self) -> None:
        if not 1 <= self.attempts_max <= ATTEMPTS_MAX:
            raise ValueError(f"{self.attempts_max} attempts; a subscription has 1 to {ATTEMPTS_MAX}")
        if not 1 <= self.delay_ms <= self.delay_max_ms <= _DELAY_MS_MAX:
            raise ValueError(
                f"a first pause of {self.delay_ms} ms and a longest of {self.delay_max_ms} ms;"
                f" both are at least 1 ms and at most {_DELAY_MS_MAX} ms, the longest is not the shorter one"
            )
        if not 0 <= self.jitter <= 1:
            raise ValueError(f"a jitter of {self.jitter}; it is a part from 0 to 1 of a pause")

    def has_ended(self, attempts: int) -> bool:
        """Whether a message with this number of attempts gets no other."""
        return attempts >= self.attempts_max

    @property
    def is_immediate(self) -> bool:
        return self.backoff is Backoff.IMMEDIATE

    def pause_ms(self, attempts: int, randomness: Randomness) -> int:
        """How long a message waits after this number of failed attempts; 0 for not at all."""
        if self.is_immediate:
            return 0
        pause_ms = self.delay_ms
        if self.backoff is Backoff.EXPONENTIAL:
            # Shifting by more would make a number that no pause needs.
            pause_ms = min(self.delay_max_ms, self.delay_ms << min(attempts - 1, 40))
        return max(1, pause_ms - int(pause_ms * self.jitter * randomness.fraction()))

    def group_sizes(self) -> tuple[int, ...]:
        """How many messages may at most be leased together, by the attempt that the lease begins; by index."""
        sizes = [_UNLIMITED] * COUNT_OF_SIZES
        together = _SUSPECTS_TOGETHER
        for attempt in range(_SUSPECT_ATTEMPT, self.attempts_max):
            sizes[attempt] = together
            together = max(1, together // 2)
        if self.attempts_max > 1:
            sizes[self.attempts_max :] = [1] * (COUNT_OF_SIZES - self.attempts_max)
        return tuple(sizes)
