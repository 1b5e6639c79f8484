"""The part of a segment that another process wrote, whose checksums are checked before its bytes are given out.

What this process appended it has checked on the way in. What it found on disk may have suffered since it was flushed,
and to check all of it at start would make every restart as long as the log; so it is checked when it is first read,
and bit by bit in the background.

Invariants: UNCH-1 bytes are called checked only when every batch in them was whole, matched its checksum and followed
the one before; that the first one stands where its segment says so is for the reader to have found out
(`Segment.find`); UNCH-2 remembered are the stretch from the beginning of the file and the one last read: who reads on
does not check again, who jumps may have to. Readers call from worker threads; each stretch is one value, replaced as a
whole.
Proved by: tests/unit/log/test_unchecked_bytes.py
"""

from collections.abc import Iterable

from martlet.base.errors import LogDamaged
from martlet.log.batch_order import EPOCH_MAX, NO_GAPS, NO_LIMIT, BatchOrder, KnownGaps
from martlet.log.batch_scan import batch_fault
from martlet.log.batch_survey import Damage
from martlet.wire.batch import HEADER_BYTES, read_batch_header


class UncheckedBytes:
    """The bytes of the file at `path` from its beginning, where `first_offset` is due, to `end`."""

    __slots__ = ("_bad", "_checked", "_last_read", "_path", "end")

    def __init__(self, path: str, end: int, first_offset: int) -> None:
        self._path = path
        self.end = end
        self._checked = (0, first_offset)
        self._last_read = (0, 0)
        self._bad: list[tuple[int, int]] = []

    @property
    def checked(self) -> int:
        """Up to which byte all has been checked."""
        return self._checked[0]

    @property
    def next_offset(self) -> int:
        """The offset that is due there."""
        return self._checked[1]

    def trust_from(self, position: int) -> None:
        """The batches from `position` on have been checked otherwise, or are cut off."""
        self.end = min(self.end, position)
        checked, offset = self._checked
        self._checked = (min(checked, self.end), offset)
        start, stop = self._last_read
        self._last_read = (min(start, self.end), min(stop, self.end))

    def all_is_known(self, damage: Iterable[Damage]) -> None:
        """All has been checked; these stretches are damaged, and a reader of one gets the error every time."""
        self._bad = [(stretch.position, stretch.end) for stretch in damage]
        self._checked = (self.end, NO_LIMIT)

    def covers(self, position: int, size: int) -> bool:
        """Whether anything of these bytes must be checked before use."""
        stop = min(position + size, self.end)
        if position >= stop:
            return False
        if any(start < stop and position < end for start, end in self._bad):
            return True
        if stop <= self.checked:
            return False
        return not (self._last_read[0] <= position and stop <= self._last_read[1])

    def check(self, content: bytes, position: int, *, gaps: KnownGaps = NO_GAPS, epoch_max: int = EPOCH_MAX) -> int:
        """How many bytes of the batches that were read at `position` can be used; raises LogDamaged when none can."""
        if not self.covers(position, len(content)):
            return len(content)
        at, stop = 0, min(len(content), self.end - position)
        order = BatchOrder(self._checked[1], gaps, epoch_max=epoch_max) if position == self.checked else None
        while at < stop:
            fault: str | None = f"{len(content) - at} bytes are too few for a batch"
            if len(content) - at >= HEADER_BYTES:
                header = read_batch_header(content, at)
                order = order or BatchOrder(header.base_offset, gaps, epoch_max=epoch_max)
                fault = batch_fault(content, at, header, order)
            if order is None or fault is not None:
                if at == 0:
                    near = "" if order is None else f", near offset {order.next_offset}"
                    raise LogDamaged(f"{self._path}: damaged at byte {position}{near}: {fault}")
                self._note(position, position + at, order)
                return at
            order.take(header)
            at += header.size
        self._note(position, position + at, order)
        return len(content)

    def _note(self, position: int, end: int, order: BatchOrder | None) -> None:
        start, stop = self._last_read
        self._last_read = (start, max(stop, end)) if start <= position <= stop else (position, end)
        if order is not None and position <= self.checked < end:
            self._checked = (end, order.next_offset)
