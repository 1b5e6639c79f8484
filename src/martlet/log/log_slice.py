"""What the calls of a log answer: where bytes lie, what an append got, which record a timestamp leads to."""

from typing import NamedTuple

from martlet.base.disk import DiskFile


class LogSlice(NamedTuple):
    """Whole batches of one segment, not read yet; stays readable when the segment is deleted meanwhile.

    `read` may wait for the device and may run in a worker thread. `is_final` tells that waiting would not make the
    slice longer, because the byte limit or the segment ends it and not the log.
    """

    file: DiskFile | None
    position: int
    size: int
    is_final: bool

    def read(self) -> bytes:
        return b"" if self.file is None else self.file.pread(self.size, self.position)

    def is_cached(self) -> bool:
        """Whether `read` would return without waiting for the device, as far as can be told."""
        return self.file is None or self.file.is_cached(self.position, self.size)


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
