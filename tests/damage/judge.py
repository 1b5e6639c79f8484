"""The judge over reading from a log that was damaged: no wrong offset, no wrong value, and nothing skipped unsaid.

The judge knows every batch as it was stored. What a reader gets from an offset on must be the batch that holds it and
those that follow it, without any left out. An offset that is not served must be refused with an error; which ones were
is for the caller to compare with what was damaged.
"""

from bisect import bisect_right
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path

from martlet.wire.batch import iterate_batches

_EPOCH_MAX = 100
_COVERED_FROM = 16
"""Base offset, length and leader epoch lie before this byte, and nothing but their neighbours speaks for them."""


class Refused(Exception):
    """A read was answered with an error."""


@dataclass(frozen=True, slots=True)
class StoredBatch:
    """A batch as it was stored, and where."""

    path: str
    position: int
    base_offset: int
    next_offset: int
    content: bytes

    @property
    def offsets(self) -> range:
        return range(self.base_offset, self.next_offset)


def batches_of(path: str, content: bytes) -> list[StoredBatch]:
    """The batches of an undamaged file."""
    return [
        StoredBatch(path, at, header.base_offset, header.next_offset, content[at : at + header.size])
        for at, header in iterate_batches(content)
    ]


def batches_in(directory: Path) -> list[StoredBatch]:
    """The batches of an undamaged partition directory."""
    found = []
    for file in sorted(directory.glob("*.log")):
        found += batches_of(str(file), file.read_bytes())
    return found


class Truth:
    """Everything a log held before it was damaged."""

    def __init__(self, batches: Iterable[StoredBatch], *, start_offset: int = 0) -> None:
        self.batches = list(batches)
        self.start_offset = start_offset
        self._ends = [batch.next_offset for batch in self.batches]

    @property
    def end_offset(self) -> int:
        return self._ends[-1] if self._ends else self.start_offset

    def at(self, offset: int) -> StoredBatch:
        """The batch that holds the offset, or the first one behind it where compaction took it away."""
        return self.batches[bisect_right(self._ends, offset)]

    def refused(self, read: Callable[[int], bytes], *, start: int | None = None) -> set[int]:
        """Read from `start` to the end; the offsets that were refused. Fails at the first wrong or skipped batch."""
        refused: set[int] = set()
        offset = self.start_offset if start is None else start
        while offset < self.end_offset:
            try:
                content = read(offset)
            except Refused:
                refused.add(offset)
                offset += 1
                continue
            offset = self.follow(content, offset)
        return refused

    def follow(self, content: bytes, offset: int) -> int:
        """What was read at `offset` must be what was stored from there on; the offset behind it."""
        first = offset
        for position, header in iterate_batches(content):
            if offset >= self.end_offset:
                break  # published later
            wanted = self.at(offset)
            assert header.base_offset == wanted.base_offset, f"offset {offset} was skipped or moved"
            served = content[position : position + header.size]
            epoch = header.partition_leader_epoch
            assert 0 <= epoch < _EPOCH_MAX, f"offset {offset} has leader epoch {epoch}, which never was"
            assert served[_COVERED_FROM:] == wanted.content[_COVERED_FROM:], f"offset {offset} has another value"
            offset = header.next_offset
        assert offset > first, f"offset {first} leads nowhere"
        return offset
