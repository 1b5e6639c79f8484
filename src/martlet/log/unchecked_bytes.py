"""The part of a segment that another process wrote, whose checksums are looked at before anybody is given its bytes.

What this process appended it has checked on the way in. What it found on disk may have suffered since it was flushed,
and to check all of it at start would make every restart as long as the log; so it is checked when it is first read,
and bit by bit in the background.

Invariants: (1) bytes are called checked only when every batch in them was whole, in order and matched its checksum;
(2) remembered are the stretch from the beginning of the file and the one last read: who reads on does not check again,
who jumps may have to. Readers call from worker threads; each stretch is one value, replaced as a whole.
Proved by: tests/unit/log/test_unchecked_bytes.py
"""

from martlet.base.errors import LogDamaged
from martlet.wire.batch import HEADER_BYTES, MAGIC, BatchHeader, crc_matches, read_batch_header


class UncheckedBytes:
    """The bytes of the file at `path` from its beginning to `end`."""

    __slots__ = ("_last_read", "_path", "checked", "end")

    def __init__(self, path: str, end: int) -> None:
        self._path = path
        self.end = end
        self.checked = 0
        """How many bytes from the beginning of the file on hold."""
        self._last_read = (0, 0)

    def trust_from(self, position: int) -> None:
        """The batches from `position` on have been checked otherwise, or are cut off."""
        self.end = min(self.end, position)
        self.checked = min(self.checked, self.end)
        start, stop = self._last_read
        self._last_read = (min(start, self.end), min(stop, self.end))

    def covers(self, position: int, size: int) -> bool:
        """Whether anything of these bytes must be checked before use."""
        stop = min(position + size, self.end)
        if position >= stop or stop <= self.checked:
            return False
        return not (self._last_read[0] <= position and stop <= self._last_read[1])

    def check(self, content: bytes, position: int) -> int:
        """How many bytes of the batches that were read at `position` can be used; raises LogDamaged when none can."""
        if not self.covers(position, len(content)):
            return len(content)
        at, next_offset = 0, 0
        stop = min(len(content), self.end - position)
        while at < stop:
            header = read_batch_header(content, at) if len(content) - at >= HEADER_BYTES else None
            fault = _fault(content, at, header, next_offset)
            if header is None or fault:
                if at == 0:
                    raise LogDamaged(f"{self._path}: damaged at byte {position}: {fault}")
                self._note(position, position + at)
                return at
            next_offset = header.last_offset + 1
            at += header.size
        self._note(position, position + at)
        return len(content)

    def _note(self, position: int, end: int) -> None:
        start, stop = self._last_read
        self._last_read = (start, max(stop, end)) if start <= position <= stop else (position, end)
        if position <= self.checked:
            self.checked = max(self.checked, end)


def _fault(content: bytes, at: int, header: BatchHeader | None, next_offset: int) -> str:
    """What is wrong with the batch there; empty when nothing is."""
    if header is None or header.magic != MAGIC or header.size < HEADER_BYTES or at + header.size > len(content):
        return "there is no whole batch"
    if header.base_offset < next_offset or header.last_offset_delta < 0:
        return "its offsets do not follow"
    if not crc_matches(content, at, header):
        return f"the checksum of the batch of offset {header.base_offset} does not match"
    return ""
