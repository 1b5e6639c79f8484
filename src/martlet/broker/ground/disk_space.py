"""How much may still be written to the disk with the logs, and whether it counts as full.

What messages take is counted before it is written, so they never take the reserve, which is left to checkpoints,
indexes and compaction; what everything else takes is seen at the next measurement. One is made each second, and sooner
when an eighth of what the last one saw has been given away. A full disk counts as full until clearly more is free,
because its broker's leaderships are handed over, and a word that changes twice a second helps no broker. A write may
find no space where the system sees some (a quota); that is tried again after a while.

Invariant: DSK-1 no claim is granted that leaves less than the reserve, as far as measurements and earlier claims tell.
Proved by: tests/unit/broker/ground/test_disk_space.py, tests/broker/test_disk_full.py
"""

import contextlib
import logging
from collections.abc import Callable
from typing import Final

from martlet.base.clock import Clock
from martlet.base.errors import ApiError, ErrorCode, StorageFailure

logger = logging.getLogger(__name__)

_MEBIBYTE: Final = 1 << 20
_LOOK_AFTER_FRACTION: Final = 8
_MARGIN_FRACTION: Final = 4
_MARGIN_BYTES_MAX: Final = 256 * _MEBIBYTE
_TRY_AGAIN_MS: Final = 10_000
_UNLIMITED: Final = 1 << 62


class DiskSpace:
    """One for a broker, used on its event loop."""

    __slots__ = (
        "_clock",
        "_free_bytes",
        "_free_when_full",
        "_left",
        "_look_below",
        "_reserve_bytes",
        "full_since_ms",
        "on_change",
    )

    def __init__(self, free_bytes: Callable[[], int], reserve_bytes: int, clock: Clock) -> None:
        """With a reserve of 0 nothing is counted: only a write that finds no space says that there is none."""
        self._free_bytes = free_bytes
        self._reserve_bytes = reserve_bytes
        self._clock = clock
        self._left = self._look_below = 0
        self._free_when_full = 0
        self.full_since_ms: int | None = None
        """When the disk was found full, by the monotonic clock; publishes are refused until there is space again."""
        self.on_change: Callable[[], None] = lambda: None
        """Hears that the disk has become full, or has space again."""

    @property
    def is_full(self) -> bool:
        return self.full_since_ms is not None

    def check(self) -> None:
        """Raise when publishes are refused because the disk is full."""
        if self.full_since_ms is not None:
            raise ApiError(ErrorCode.KAFKA_STORAGE_ERROR, "the broker's disk is full; publishes are refused for now")

    def claim(self, size: int) -> None:
        """These bytes of messages are about to be written; raises ApiError when there is no space for them (DSK-1)."""
        left = self._left - size
        if left < self._look_below:
            left = self._look_closer(size)
        self._left = left

    def measure(self) -> None:
        """See how much is free now; raises StorageFailure when the disk does not say."""
        free = self._free_bytes()
        if self.is_full:
            if self._is_free_again(free):
                self.full_since_ms = None
                logger.warning("the disk has space again (%d bytes); publishes are accepted", free)
                self._saw(free)
                self.on_change()
        elif free < self._reserve_bytes:
            self._became_full(free, f"only {free} bytes are free on the disk")
        else:
            self._saw(free)

    def write_failed(self, error: StorageFailure) -> None:
        """A write found no space."""
        if not self.is_full:
            free = self._reserve_bytes
            with contextlib.suppress(StorageFailure):
                free = self._free_bytes()
            self._became_full(free, f"the disk is full ({error})")

    def _saw(self, free: int) -> None:
        self._left = free - self._reserve_bytes if self._reserve_bytes else _UNLIMITED
        self._look_below = self._left - self._left // _LOOK_AFTER_FRACTION

    def _look_closer(self, size: int) -> int:
        """What is left after this claim, measured for it; a full disk is only measured at the regular times."""
        self.check()
        with contextlib.suppress(StorageFailure):  # the write itself will show what is wrong
            self.measure()
        self.check()
        if size > self._left:
            self._became_full(self._left + self._reserve_bytes, f"{size} bytes would take from the disk's reserve")
            self.check()
        return self._left - size

    def _became_full(self, free: int, why: str) -> None:
        self.full_since_ms = self._clock.monotonic_ms()
        self._free_when_full = free
        self._left, self._look_below = 0, 1
        logger.error("%s; publishes are refused until there is space", why)
        self.on_change()

    def _is_free_again(self, free: int) -> bool:
        margin = max(_MEBIBYTE, min(self._reserve_bytes // _MARGIN_FRACTION, _MARGIN_BYTES_MAX))
        if free < self._reserve_bytes + margin:
            return False
        since_ms = self._clock.monotonic_ms() - (self.full_since_ms or 0)
        return free >= self._free_when_full + margin or since_ms >= _TRY_AGAIN_MS
