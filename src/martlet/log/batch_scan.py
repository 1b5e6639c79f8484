"""Walking the batches of a log file one after the other, as far as they are whole.

Rules: reads only, decides nothing: it stops at the first bytes that are no batch and says why. Whether that is a torn
tail to cut or damage to report is for the caller to know.

Invariants: (1) every batch given out is whole, of our magic and has an offset above the one before; (2) with
`check_crc` its checksum holds; (3) `position` and `next_offset` are where the last good batch
ends.
"""

from collections.abc import Iterator
from typing import Final

from martlet.base.disk import DiskFile
from martlet.wire.batch import HEADER_BYTES, MAGIC, BatchHeader, crc_matches, read_batch_header

HEADER_WINDOW_BYTES: Final = 16 * 1024
CRC_WINDOW_BYTES: Final = 1024 * 1024


class BatchScan:
    """One walk over `file` from `position` to `end`; iterate it once, then ask `position` and `fault`."""

    __slots__ = ("_check_crc", "_end", "_file", "fault", "next_offset", "position")

    def __init__(self, file: DiskFile, position: int, end: int, *, next_offset: int, check_crc: bool) -> None:
        self._file = file
        self._end = end
        self._check_crc = check_crc
        self.next_offset = next_offset
        self.position = position
        self.fault: str | None = None

    def __iter__(self) -> Iterator[tuple[int, BatchHeader]]:
        window_bytes = CRC_WINDOW_BYTES if self._check_crc else HEADER_WINDOW_BYTES
        window, start = b"", self.position
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
            self.fault = self._fault_in(header, size)
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
            self.next_offset = header.base_offset + header.last_offset_delta + 1
            self.position += size

    def _fault_in(self, header: BatchHeader, size: int) -> str | None:
        if header.magic != MAGIC or size < HEADER_BYTES:
            return "there is no batch"
        if self.position + size > self._end:
            return f"the batch of {size} bytes is cut off"
        if header.base_offset < self.next_offset or header.last_offset_delta < 0:
            return f"offset {header.base_offset} comes where {self.next_offset} was due"
        return None
