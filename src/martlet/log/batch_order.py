"""What must hold from one batch of a log to the next: offsets that follow, and leader epochs that do not go back.

A batch's checksum covers neither its base offset nor its leader epoch, because the broker stamps them. What protects
them is that they follow: a log hands out offsets without gaps, so each batch begins where the one before it ends, and
the last one of a segment ends where the next segment begins. Every walk over batches asks here.

Gaps are allowed only where they are known. Compaction takes whole batches away; and an operator may have accepted that
damaged messages are lost (`martlet log check --repair`). Both are written down in the partition's `known-gaps` file
before they can be met in the log.

Invariants: ORDER-1 a batch that does not fit is never given to a reader; ORDER-2 without the file no gap is known.
Proved by: tests/unit/log/test_batch_order.py, tests/unit/log/test_batch_survey.py
"""

from contextlib import suppress
from dataclasses import dataclass
from typing import Final, NamedTuple

from martlet.base.disk import Disk
from martlet.base.errors import StorageFailure
from martlet.log.file_names import KNOWN_GAPS
from martlet.log.rebuilt_files import read_rebuilt
from martlet.wire.batch import BatchHeader

NO_LIMIT: Final = 1 << 63
EPOCH_MAX: Final = (1 << 31) - 1
_VERSION: Final = "0"
_COMPACTED: Final = "compacted"
_LOST: Final = "lost"


class KnownGaps(NamedTuple):
    """Where offsets of a log may be missing."""

    is_compacted: bool = False
    """Batches may be missing anywhere, but for the last one of each segment."""
    lost: tuple[tuple[int, int], ...] = ()
    """Ranges of offsets, the second number not included, that an operator has given up, in order."""

    def end_of(self, offset: int) -> int:
        """Where the range of lost offsets ends that holds `offset`; `offset` itself when none does."""
        for first, following in self.lost:
            if first <= offset < following:
                offset = following
        return offset

    def allow(self, offset: int, base_offset: int) -> bool:
        """Whether a batch may begin at `base_offset` where one was due at `offset`."""
        return base_offset == offset or (
            base_offset > offset and (self.is_compacted or self.end_of(offset) == base_offset)
        )


NO_GAPS: Final = KnownGaps()
COMPACTED: Final = KnownGaps(is_compacted=True)


@dataclass(slots=True)
class BatchOrder:
    """What is expected of the next batch of a walk."""

    next_offset: int
    gaps: KnownGaps = NO_GAPS
    limit: int = NO_LIMIT
    """Offsets of this segment are below it."""
    epoch: int = -1
    """The leader epoch of the batch before."""
    epoch_max: int = EPOCH_MAX
    """No leader has had a greater one."""

    def fault(self, header: BatchHeader) -> str | None:
        """Why this batch cannot come next; None when it can."""
        base_offset, delta = header.base_offset, header.last_offset_delta
        if base_offset != self.next_offset and not self.gaps.allow(self.next_offset, base_offset):
            return f"offset {base_offset} comes where {self.next_offset} was due"
        if delta < 0 or base_offset + delta >= self.limit:
            return f"a batch of the offsets {base_offset} to {base_offset + delta} cannot be here"
        if not max(0, self.epoch) <= header.partition_leader_epoch <= self.epoch_max:
            return f"leader epoch {header.partition_leader_epoch} cannot come at offset {base_offset}"
        return None

    def take(self, header: BatchHeader) -> None:
        """The batch has come."""
        self.next_offset = header.base_offset + header.last_offset_delta + 1
        self.epoch = header.partition_leader_epoch


def encode_gaps(gaps: KnownGaps) -> bytes:
    """The content of the `known-gaps` file."""
    lines = [_VERSION, *([_COMPACTED] if gaps.is_compacted else [])]
    lines += [f"{_LOST} {first} {following}" for first, following in gaps.lost]
    return "\n".join([*lines, "end", ""]).encode()


def decode_gaps(content: bytes) -> KnownGaps:
    """The inverse of `encode_gaps`; of a damaged file nothing is believed (ORDER-2)."""
    lines = content.decode("ascii", errors="replace").split("\n")
    if lines[:1] != [_VERSION] or lines[-2:] != ["end", ""]:
        return NO_GAPS
    is_compacted = False
    lost: list[tuple[int, int]] = []
    for line in lines[1:-2]:
        fields = line.split(" ")
        if fields == [_COMPACTED]:
            is_compacted = True
        elif len(fields) == 3 and fields[0] == _LOST and fields[1].isdigit() and fields[2].isdigit():
            lost.append((int(fields[1]), int(fields[2])))
        else:
            return NO_GAPS
    return KnownGaps(is_compacted, tuple(sorted(lost)))


def read_gaps(disk: Disk, directory: str) -> KnownGaps:
    """What the partition's directory says about gaps."""
    content = read_rebuilt(disk, f"{directory}/{KNOWN_GAPS}")
    return NO_GAPS if content is None else decode_gaps(content)


def write_gaps(disk: Disk, directory: str, gaps: KnownGaps) -> None:
    """Write it down, durably."""
    disk.replace_file(f"{directory}/{KNOWN_GAPS}", encode_gaps(gaps))


class GapRecord:
    """What one log knows of its gaps, with the file that says so."""

    __slots__ = ("_directory", "_disk", "known")

    def __init__(self, disk: Disk, directory: str) -> None:
        self._disk = disk
        self._directory = directory
        self.known = read_gaps(disk, directory)

    def is_compacted(self) -> None:
        """The log was compacted, as others know: batches may be missing, whether this can be written down or not."""
        known = self.known._replace(is_compacted=True)
        if known != self.known:
            self.known = known
            with suppress(StorageFailure):
                write_gaps(self._disk, self._directory, known)

    def note_compaction(self) -> None:
        """Write down that batches may be missing, before any is."""
        if not self.known.is_compacted:
            noted = self.known._replace(is_compacted=True)
            write_gaps(self._disk, self._directory, noted)
            self.known = noted
