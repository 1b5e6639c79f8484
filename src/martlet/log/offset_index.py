"""The sparse index from offsets to byte positions of one segment.

Rules: entries only; which batches get one is the segment's decision. Nothing here touches the log file, so nothing
here can know whether an entry read from disk is true: the reader checks each entry it uses against the batch
it points to and has the index rebuilt when they disagree.

How it works: an entry says that a batch whose last offset is `base + relative_offset` begins at `position`. On disk
8 bytes big-endian, i32 relative offset and i32 position, as Kafka's `.index`; in memory two arrays, so that a
lookup is one bisection in C.

Invariants: OIDX-1 offsets and positions both strictly increase; OIDX-2 entries up to `persisted` are in the file, and
with `has_excess` more that must go.
"""

from array import array
from bisect import bisect_left, bisect_right
from itertools import islice
from operator import le
from struct import Struct
from sys import byteorder
from typing import Final

ENTRY_BYTES: Final = 8
_ENTRY: Final = Struct(">ii")


class OffsetIndex:
    """One segment's entries; `is_proven` when they were made from the batches themselves and not read from a file."""

    __slots__ = ("has_excess", "is_proven", "offsets", "persisted", "positions")

    def __init__(self) -> None:
        self.offsets: array[int] = array("i")
        self.positions: array[int] = array("i")
        self.persisted = 0
        self.has_excess = False
        self.is_proven = True

    def __len__(self) -> int:
        return len(self.offsets)

    def add(self, relative_offset: int, position: int) -> None:
        self.offsets.append(relative_offset)
        self.positions.append(position)

    def entry_before(self, relative_offset: int) -> int:
        """Number of the last entry whose batch ends before `relative_offset`, -1 when there is none."""
        return bisect_left(self.offsets, relative_offset) - 1

    def position_up_to(self, position: int) -> int:
        """The last indexed position not above `position`, 0 (the segment's start) when there is none."""
        following = bisect_right(self.positions, position)
        return self.positions[following - 1] if following else 0

    def truncate(self, position: int) -> None:
        """Drop the entries for batches at or after `position`."""
        keep = bisect_left(self.positions, position)
        del self.offsets[keep:]
        del self.positions[keep:]
        if keep < self.persisted:
            self.persisted, self.has_excess = keep, True

    def truncate_offsets(self, relative_offset: int) -> None:
        """Drop the entries for batches that end at or after `relative_offset`."""
        keep = bisect_left(self.offsets, relative_offset)
        if keep < len(self.offsets):
            self.truncate(self.positions[keep])

    def encode_from(self, first: int) -> bytes:
        """The entries from number `first` on, as they stand in the file."""
        interleaved = array("i", bytes(ENTRY_BYTES * (len(self.offsets) - first)))
        interleaved[0::2] = self.offsets[first:]
        interleaved[1::2] = self.positions[first:]
        if byteorder == "little":
            interleaved.byteswap()
        return interleaved.tobytes()


def decode_offset_index(content: bytes, *, log_bytes: int, check: bool = True) -> OffsetIndex:
    """The index of a file's content; with `check` as far as it can be one of a log file of `log_bytes` (OIDX-1).

    Without, it costs no time per entry worth mentioning, and a wrong entry is found out when it is used.
    """
    interleaved = array("i")
    interleaved.frombytes(content[: len(content) // ENTRY_BYTES * ENTRY_BYTES])
    if byteorder == "little":
        interleaved.byteswap()
    index = OffsetIndex()
    index.offsets, index.positions = interleaved[0::2], interleaved[1::2]
    keep = len(index.offsets)
    if check:
        keep = min(_rising_prefix(index.offsets), _rising_prefix(index.positions))
        if keep and (index.offsets[0] < 0 or index.positions[0] < 0):
            keep = 0
        keep = bisect_left(index.positions, log_bytes, hi=keep)
        del index.offsets[keep:], index.positions[keep:]
    index.persisted = keep
    index.has_excess = len(content) > keep * ENTRY_BYTES
    index.is_proven = keep == 0
    return index


def decode_last_entry(tail: bytes) -> tuple[int, int] | None:
    """Relative offset and position in the last entry of a file, given its last bytes."""
    return None if len(tail) < ENTRY_BYTES else _ENTRY.unpack_from(tail, len(tail) - ENTRY_BYTES)


def _rising_prefix(values: "array[int]") -> int:
    """How many values from the first on strictly increase."""
    if not any(map(le, islice(values, 1, None), values)):
        return len(values)
    return next(number for number in range(1, len(values)) if values[number] <= values[number - 1])
