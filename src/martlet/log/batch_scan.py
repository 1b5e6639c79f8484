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

    __slots__ = ("_check_crc", "_end", "_file", "_wanted_offset", "fault", "next_offset", "position")

    def __init__(self, file: DiskFile, position: int, end: int, *, next_offset: int, check_crc: bool) -> None:
        self._file = file
        self._end = end
        self._check_crc = check_crc
        self.next_offset = next_offset
        self.position = position
        self.fault: str | None = None
        self._wanted_offset: int | None = None

    def ends_in_unfinished_write(self) -> bool:
        """Whether all that follows the last good batch is the beginning of one more.

        That is what a killed process leaves of the write it was in. A batch whose length was damaged looks the same,
        but for the batches behind it.
        """
        if self.fault is None or self._wanted_offset is None:
            return False
        sought = self._wanted_offset.to_bytes(8, "big")
        position = self.position + 1
        while position < self._end:
            window = self._file.pread(min(CRC_WINDOW_BYTES, self._end - position), position)
            if not window:
                return True
            at = window.find(sought)
            while at >= 0:
                if self._is_batch_at(position + at):
                    return False
                at = window.find(sought, at + 1)
            position += max(1, len(window) - len(sought) + 1)
        return True

    def _is_batch_at(self, position: int) -> bool:
        head = self._file.pread(min(HEADER_BYTES, self._end - position), position)
        if len(head) < HEADER_BYTES:
            return False
        header = read_batch_header(head)
        size = header.batch_length + 12
        if header.magic != MAGIC or not HEADER_BYTES <= size <= self._end - position:
            return False
        return crc_matches(self._file.pread(size, position), 0, header)

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
                    self._wanted_offset = self.next_offset
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
        follows = header.base_offset >= self.next_offset and header.last_offset_delta >= 0
        if self.position + size > self._end:
            self._wanted_offset = header.base_offset + header.last_offset_delta + 1 if follows else None
            return f"the batch of {size} bytes is cut off"
        if not follows:
            return f"offset {header.base_offset} comes where {self.next_offset} was due"
        return None
