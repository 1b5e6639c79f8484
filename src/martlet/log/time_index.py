"""The sparse index from timestamps to offsets of one segment.

Rules: entries only; the segment decides when one is due. As with the offset index, a reader that uses an entry from
disk first compares it with the batch it names.

How it works: an entry says that no record up to `base + relative_offset` is later than `timestamp_ms`, and that the
batch ending at that offset has this as its greatest. On disk and in memory alike 12 bytes big-endian, i64 timestamp and
i32 relative offset, as Kafka's `.timeindex`; searched in place, because it is asked rarely and loaded in one read. The
last entry of a sealed segment holds its greatest timestamp.

Invariants: TIDX-1 timestamps strictly increase, offsets never decrease; TIDX-2 entries up to `persisted` are in the
file, and with `has_excess` more that must go.
"""

from struct import Struct
from typing import Final, NamedTuple

ENTRY_BYTES: Final = 12
_ENTRY: Final = Struct(">qi")


class TimeEntry(NamedTuple):
    """No record up to this relative offset is later than this."""

    timestamp_ms: int
    relative_offset: int


class TimeIndex:
    """One segment's entries, encoded."""

    __slots__ = ("content", "has_excess", "persisted")

    def __init__(self, content: bytes = b"") -> None:
        self.content = bytearray(content)
        self.persisted = len(content) // ENTRY_BYTES
        self.has_excess = False

    def __len__(self) -> int:
        return len(self.content) // ENTRY_BYTES

    def entry(self, number: int) -> TimeEntry:
        return TimeEntry(*_ENTRY.unpack_from(self.content, number * ENTRY_BYTES))

    def last(self) -> TimeEntry | None:
        return self.entry(len(self) - 1) if self.content else None

    def add(self, timestamp_ms: int, relative_offset: int) -> None:
        """Append an entry unless the last one is as late (TIDX-1)."""
        content = self.content
        if not content or timestamp_ms > _ENTRY.unpack_from(content, len(content) - ENTRY_BYTES)[0]:
            content += _ENTRY.pack(timestamp_ms, relative_offset)

    def entry_before(self, timestamp_ms: int) -> TimeEntry | None:
        """The last entry earlier than `timestamp_ms`: up to its offset no record is at or after that time."""
        low, high = 0, len(self)
        while low < high:
            middle = (low + high) // 2
            if _ENTRY.unpack_from(self.content, middle * ENTRY_BYTES)[0] < timestamp_ms:
                low = middle + 1
            else:
                high = middle
        return self.entry(low - 1) if low else None

    def truncate(self, relative_offset: int) -> TimeEntry | None:
        """Drop the entries at or after `relative_offset`; returns the last one left."""
        keep = len(self)
        while keep and self.entry(keep - 1).relative_offset >= relative_offset:
            keep -= 1
        del self.content[keep * ENTRY_BYTES :]
        if keep < self.persisted:
            self.persisted, self.has_excess = keep, True
        return self.last()

    def encode_from(self, first: int) -> bytes:
        """The entries from number `first` on, as they stand in the file."""
        return bytes(self.content[first * ENTRY_BYTES :])


def decode_time_index(content: bytes, *, check: bool = True) -> TimeIndex:
    """The index of a file's content; with `check` as far as it can be one (TIDX-1), without found out when used."""
    if not check:
        return TimeIndex(content[: len(content) // ENTRY_BYTES * ENTRY_BYTES])
    kept_bytes, previous_timestamp, previous_offset = 0, -(1 << 63) - 1, 0
    for timestamp_ms, relative_offset in _ENTRY.iter_unpack(content[: len(content) // ENTRY_BYTES * ENTRY_BYTES]):
        if timestamp_ms <= previous_timestamp or relative_offset < previous_offset:
            break
        previous_timestamp, previous_offset = timestamp_ms, relative_offset
        kept_bytes += ENTRY_BYTES
    index = TimeIndex(content[:kept_bytes])
    index.has_excess = len(content) > kept_bytes
    return index


def decode_last_entry(tail: bytes) -> TimeEntry | None:
    """The last entry of a file, given its last bytes."""
    return None if len(tail) < ENTRY_BYTES else TimeEntry(*_ENTRY.unpack_from(tail, len(tail) - ENTRY_BYTES))
