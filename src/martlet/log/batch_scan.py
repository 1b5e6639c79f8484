"""Walking the batches of a log file one after the other, as far as they are whole and follow each other.

Rules: reads only, decides nothing: it stops at the first bytes that are no batch, or a batch that does not follow, and
says why. What lies behind that is for `batch_survey` to find out.

Invariants: SCAN-1 every batch given out is whole, of our magic and in order (`batch_order`); SCAN-2 with `check_crc`
its checksum holds; SCAN-3 `position` and `next_offset` are where the last good batch ends.
"""

from collections.abc import Iterator
from typing import Final

from martlet.base.disk import DiskFile
from martlet.log.batch_order import BatchOrder
from martlet.wire.batch import HEADER_BYTES, MAGIC, BatchHeader, crc_matches, read_batch_header
from martlet.wire.primitives import Buffer

HEADER_WINDOW_BYTES: Final = 16 * 1024
CRC_WINDOW_BYTES: Final = 1024 * 1024


class BatchScan:
    """One walk over `file` from `position` to `end`; iterate it once, then ask `position` and `fault`."""

    __slots__ = ("_check_crc", "_end", "_file", "_order", "fault", "position")

    def __init__(self, file: DiskFile, position: int, end: int, order: BatchOrder, *, check_crc: bool) -> None:
        self._file = file
        self._end = end
        self._order = order
        self._check_crc = check_crc
        self.position = position
        self.fault: str | None = None

    @property
    def next_offset(self) -> int:
        """Where the last good batch ends."""
        return self._order.next_offset

    def __iter__(self) -> Iterator[tuple[int, BatchHeader]]:
        window_bytes = CRC_WINDOW_BYTES if self._check_crc else HEADER_WINDOW_BYTES
        window, start, order = b"", self.position, self._order
        while self.position < self._end:
            at = self.position - start
            if at + HEADER_BYTES > len(window):
                start, at = self.position, 0
                window = self._file.pread(min(window_bytes, self._end - start), start)
                if len(window) < HEADER_BYTES:
                    self.fault = f"{len(window)} bytes are too few for a batch"
                    return
            header = read_batch_header(window, at)
            size = header.batch_length + 12
            self.fault = shape_fault(header, self._end - self.position) or order.fault(header)
            if self.fault is not None:
                return
            if self._check_crc:
                if at + size > len(window):
                    start, at = self.position, 0
                    window = self._file.pread(max(size, min(window_bytes, self._end - start)), start)
                if len(window) < at + size or not crc_matches(window, at, header):
                    self.fault = "the checksum does not match"
                    return
            yield self.position, header
            order.take(header)
            self.position += size


def shape_fault(header: BatchHeader, room_bytes: int) -> str | None:
    """Why these bytes are no whole batch, with `room_bytes` up to the end of the file."""
    size = header.batch_length + 12
    if header.magic != MAGIC or size < HEADER_BYTES:
        return "there is no batch"
    if size > room_bytes:
        return f"the batch of {size} bytes is cut off"
    return None


def batch_fault(content: Buffer, at: int, header: BatchHeader, order: BatchOrder) -> str | None:
    """Why the batch of this header, at `at` of the bytes read, is not whole, not sound, or not the next one."""
    fault = shape_fault(header, len(content) - at) or order.fault(header)
    if fault is None and not crc_matches(content, at, header):
        return f"the checksum of the batch of offset {header.base_offset} does not match"
    return fault
