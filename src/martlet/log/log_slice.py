"""What the calls of a log answer: where bytes lie, what an append got, which record a timestamp leads to."""

from typing import NamedTuple

from martlet.base.disk import DiskFile
from martlet.base.errors import LogDamaged
from martlet.log.batch_order import EPOCH_MAX, NO_GAPS, KnownGaps
from martlet.log.unchecked_bytes import UncheckedBytes


class LogSlice(NamedTuple):
    """Whole batches of one segment, not read yet; stays readable when the segment is deleted meanwhile.

    `read` may wait for the device and may run in a worker thread; of `unchecked` bytes it gives those before the first
    damage, and raises LogDamaged when that is none. `is_final` tells that waiting would not make the slice longer,
    because the byte limit or the segment ends it and not the log.
    """

    file: DiskFile | None
    position: int
    size: int
    is_final: bool
    unchecked: UncheckedBytes | None = None
    gaps: KnownGaps = NO_GAPS
    epoch_max: int = EPOCH_MAX

    def read(self) -> bytes:
        if self.file is None:
            return b""
        content = self.file.pread(self.size, self.position)
        if len(content) < self.size and self.position + self.size <= self.file.size():
            # Not cut by us, who would know: another program has shortened it.
            raise LogDamaged(f"{self.file.path}: the file ends at byte {self.position + len(content)}, too early")
        if self.unchecked is None:
            return content
        return content[: self.unchecked.check(content, self.position, gaps=self.gaps, epoch_max=self.epoch_max)]

    def read_now(self) -> bytes | None:
        """The same, unless it would wait for the device or has something to check: then None."""
        if self.file is None:
            return b""
        return None if self.unchecked is not None else self.file.pread_now(self.size, self.position)

    def is_quick(self) -> bool:
        """Whether `read` neither waits for the device, as far as is known, nor has anything to check."""
        return self.unchecked is None and (self.file is None or self.file.is_cached(self.position, self.size))


NOTHING = LogSlice(None, 0, 0, False)


class Appended(NamedTuple):
    """Where a batch is in the log; a duplicate is where it was first written. Without log append time that is -1."""

    base_offset: int
    last_offset: int
    log_append_time_ms: int
    duplicate: bool


class TimestampOffset(NamedTuple):
    """A record by its time."""

    timestamp_ms: int
    offset: int
    leader_epoch: int
