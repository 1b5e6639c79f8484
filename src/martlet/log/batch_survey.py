"""Walking over all of a log file, damaged places included: which batches are sound, and which offsets are not there.

Rules: reads only. Every batch given out is whole, matches its checksum and fits between its neighbours. All the rest is
in `damage`, stretch by stretch, each with the offsets that cannot be read because of it.

How it works: each batch is judged together with the one behind it, because base offset and leader epoch are not
covered by the checksum. When two neighbours contradict each other, the one that also contradicts its other neighbour is
at fault. Where there is no batch at all, the length that stands there is tried first; when it leads nowhere, the bytes
are searched for the next batch that is whole and could be this log's.

Invariants: SURV-1 sound batches and stretches of damage cover the file from `position` to its end without overlap;
SURV-2 the offsets of both cover all from where the walk began to where it ends, but for known gaps; SURV-3 a batch
whose offset cannot be relied on is never called sound.
Proved by: tests/unit/log/test_batch_survey.py
"""

from collections.abc import Iterator
from struct import Struct
from typing import Final, NamedTuple

from martlet.base.disk import DiskFile
from martlet.log.batch_order import BatchOrder
from martlet.log.batch_scan import CRC_WINDOW_BYTES, shape_fault
from martlet.wire.batch import HEADER_BYTES, LENGTH_OVERHEAD_BYTES, MAGIC, BatchHeader, crc_matches, read_batch_header

_MAGIC_AT: Final = 16
_MAGIC_BYTE: Final = bytes([MAGIC])
_PLACE: Final = Struct(">qi")
_FARTHEST: Final = (1 << 31) - 1


class Damage(NamedTuple):
    """Bytes of a file that hold no sound batch, and the offsets that are missing because of it."""

    position: int
    end: int
    first_offset: int
    next_offset: int
    """The offset that comes after those that are missing."""
    what: str

    def covers(self, offset: int) -> bool:
        return self.first_offset <= offset < self.next_offset

    def __str__(self) -> str:
        offsets = f"offsets {self.first_offset} to {self.next_offset - 1} cannot be read"
        if self.next_offset == self.first_offset:
            offsets = f"near offset {self.next_offset}"
        return f"damaged at byte {self.position}, {offsets}: {self.what}"


class _Found(NamedTuple):
    """What is at a position: a whole batch with a true checksum, or the reason why not."""

    header: BatchHeader | None
    fault: str = ""


class BatchSurvey:
    """One walk over `file` from `position` to `end`; `damage` grows while it is iterated, and is whole at its end.

    `until` is where the log goes on behind the file, if that is known: then offsets that are missing up to there are
    damage too.
    """

    __slots__ = (
        "_end",
        "_file",
        "_first_offset",
        "_is_lost",
        "_order",
        "_start",
        "_until",
        "_what",
        "_window",
        "_window_at",
        "damage",
        "ends_unfinished",
        "position",
    )

    def __init__(self, file: DiskFile, position: int, end: int, order: BatchOrder, *, until: int | None = None) -> None:
        self._file = file
        self._end = end
        self._order = order
        self._until = until
        self._window = b""
        self._window_at = 0
        self._start = -1
        self._first_offset = 0
        self._what = ""
        self._is_lost = False
        self.position = position
        self.damage: list[Damage] = []
        self.ends_unfinished = False
        """Whether all that follows the last sound batch is the beginning of one more.

        That is what a killed process leaves of the write in which it was.
        """

    @property
    def next_offset(self) -> int:
        """Where the last batch so far ends."""
        return self._order.next_offset

    def __iter__(self) -> Iterator[tuple[int, BatchHeader]]:
        order = self._order
        found = self._batch_at(self.position)
        while self.position < self._end:
            header = found.header
            if header is None:
                self._begin(found.fault, is_lost=True)
                self.position, found = self._next_whole(self.position)
                continue
            size = header.batch_length + LENGTH_OVERHEAD_BYTES
            following = self._batch_at(self.position + size)
            fault = order.fault(header)
            if fault is not None or following.header is None or not _agree(header, following.header):
                fault = self._misfit(header, following.header, fault)
            if fault is None:
                self._finish(header.base_offset)
                yield self.position, header
                order.take(header)
            else:
                self._begin(fault, is_lost=False)
                # Its records are whole, so they take up as many offsets as they always did.
                order.next_offset += header.last_offset_delta + 1
            self.position += size
            found = following
        self._finish_file()

    # Judging a whole batch.

    def _misfit(self, header: BatchHeader, following: BatchHeader | None, fault: str | None) -> str | None:
        """Why this batch cannot be relied on; None when it is sound, whatever offsets are missing before it.

        `fault` is what the order of batches has against it.
        """
        order = self._order
        base_offset = header.base_offset
        is_alone = following is None or following.base_offset != header.next_offset
        if fault is None:
            return None if following is None else self._contradiction(header, following)
        is_gap = base_offset > order.next_offset and header.last_offset_delta >= 0
        fits_otherwise = order.fault(header._replace(base_offset=order.next_offset)) is None
        if not is_gap or header.next_offset > order.limit or not fits_otherwise:
            return fault
        if self._start >= 0 and self._is_lost:
            # After bytes without a batch any offset may come, if what is behind it does not say otherwise.
            is_sound = following is None or not is_alone or order.gaps.is_compacted
        else:
            is_last = self.position + header.size >= self._end
            is_sound = header.next_offset == self._until if is_last else not is_alone
            if is_sound:
                self._begin("batches are missing", is_lost=True)
        return None if is_sound else fault

    def _contradiction(self, header: BatchHeader, following: BatchHeader) -> str | None:
        """Whether the next batch and the one before agree with each other, but not with this one."""
        order = self._order
        earliest = order.next_offset + header.last_offset_delta + 1
        if header.base_offset > order.next_offset and earliest <= following.base_offset < header.next_offset:
            return f"offset {header.base_offset} comes before offset {following.base_offset}"
        epoch, next_epoch = header.partition_leader_epoch, following.partition_leader_epoch
        if max(0, order.epoch) <= next_epoch < epoch:
            third = self._batch_at(self.position + header.size + following.size).header
            if order.epoch >= 0 or third is None or third.partition_leader_epoch < epoch:
                return f"leader epoch {epoch} comes before {next_epoch}"
        return None

    # Stretches of damage.

    def _begin(self, what: str, *, is_lost: bool) -> None:
        if self._start < 0:
            self._start, self._what, self._first_offset = self.position, what, self._order.next_offset
            self._is_lost = False
        self._is_lost = self._is_lost or is_lost

    def _finish(self, next_offset: int) -> None:
        if self._start >= 0:
            self.damage.append(Damage(self._start, self.position, self._first_offset, next_offset, self._what))
            self._start = -1

    def _finish_file(self) -> None:
        order, until = self._order, self._until
        if self._start < 0:
            due = order.gaps.end_of(order.next_offset)
            if until is not None and due < until:
                self.damage.append(Damage(self._end, self._end, due, until, "the file ends too early"))
            return
        self.ends_unfinished = self._is_unfinished()
        self._finish(order.next_offset if until is None else max(order.next_offset, until))

    def _is_unfinished(self) -> bool:
        if self._order.next_offset != self._first_offset:
            return False
        head = self._read(self._start, HEADER_BYTES)
        if len(head) < HEADER_BYTES:
            return True
        header = read_batch_header(head)
        is_shaped = header.magic == MAGIC and header.size >= HEADER_BYTES
        return is_shaped and self._start + header.size > self._end and self._order.fault(header) is None

    # Reading.

    def _batch_at(self, position: int) -> _Found:
        at = position - self._window_at
        if at < 0 or at + HEADER_BYTES > len(self._window):
            at = self._load(position, HEADER_BYTES)
            if len(self._window) < HEADER_BYTES:
                return _Found(None, f"{len(self._window)} bytes are too few for a batch")
        header = read_batch_header(self._window, at)
        fault = shape_fault(header, self._end - position)
        if fault is None:
            size = header.batch_length + LENGTH_OVERHEAD_BYTES
            if at + size > len(self._window):
                at = self._load(position, size)
            if len(self._window) < at + size or not crc_matches(self._window, at, header):
                fault = "the checksum does not match"
        return _Found(header) if fault is None else _Found(None, fault)

    def _load(self, position: int, size: int) -> int:
        """Read `size` bytes at `position` and some more; returns where they begin in the window."""
        wanted = max(size, CRC_WINDOW_BYTES)
        self._window = self._file.pread(max(0, min(wanted, self._end - position)), position)
        self._window_at = position
        return 0

    def _read(self, position: int, size: int) -> memoryview:
        """`size` bytes at `position`, fewer at the end of the file."""
        size = max(0, min(size, self._end - position))
        at = position - self._window_at
        if at < 0 or at + size > len(self._window):
            at = self._load(position, size)
        return memoryview(self._window)[at : at + size]

    def _next_whole(self, position: int) -> tuple[int, _Found]:
        """The next place behind `position` where a whole batch of this log can be, and what is there; else the end."""
        head = self._read(position, HEADER_BYTES)
        if len(head) == HEADER_BYTES:
            behind = position + read_batch_header(head).size
            if position + HEADER_BYTES <= behind < self._end:
                found = self._batch_at(behind)
                if found.header is not None and self._can_follow(found.header.base_offset):
                    return behind, found
        at = position + 1
        while at + HEADER_BYTES <= self._end:
            window = bytes(self._read(at, min(CRC_WINDOW_BYTES, self._end - at)))
            start = at
            hit = window.find(_MAGIC_BYTE, _MAGIC_AT)
            while hit >= 0:
                place = hit - _MAGIC_AT
                if self._could_be_batch(window, place, start + place):
                    found = self._batch_at(start + place)
                    if found.header is not None:
                        return start + place, found
                hit = window.find(_MAGIC_BYTE, hit + 1)
            at = start + max(1, len(window) - _MAGIC_AT)
        return self._end, _Found(None, "")

    def _could_be_batch(self, window: bytes, place: int, position: int) -> bool:
        base_offset, length = _PLACE.unpack_from(window, place)
        size = length + LENGTH_OVERHEAD_BYTES
        return HEADER_BYTES <= size <= self._end - position and self._can_follow(base_offset)

    def _can_follow(self, base_offset: int) -> bool:
        due = self._order.next_offset
        return due <= base_offset < min(self._order.limit, due + _FARTHEST)


def _agree(header: BatchHeader, following: BatchHeader) -> bool:
    """Whether two neighbours are as nearly all are: no gap between them, and of one leader's time."""
    return (
        following.base_offset == header.base_offset + header.last_offset_delta + 1
        and following.partition_leader_epoch == header.partition_leader_epoch
    )
