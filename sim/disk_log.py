"""A replica's log as it lies on its simulated disk, read past the broker's own code: the judge's second pair of eyes.

How it works: the batches of all segments are listed once and then only what was added; a file that lost or changed
something (`SimContent.cuts`) is read again from its beginning. Reading ends at the first batch that is not whole, so it
also says what is left on the disk of a machine that has lost power. Bits that rot has changed are read as they were:
the broker does not know yet, and the invariants speak of what was copied and is counted on.

The number of a batch is the same in every replica that holds it: topics of these runs keep everything but the history
before a coordinator's snapshot, and what a log that starts there lacks is filled in from what was committed.
"""

from collections.abc import Callable, Sequence
from typing import NamedTuple

from martlet.wire.batch import MAGIC, BatchHeader, batch_crc, read_batch_header
from martlet.wire.records.record import Record, read_records
from sim.disk import SimDisk
from sim.disk_content import SimContent

_RECORDS_BYTES_MAX = 1 << 20
_HEADER_BYTES = 61


class Batch(NamedTuple):
    """What names a batch for ever: equal ones are the same bytes."""

    base_offset: int
    next_offset: int
    epoch: int
    crc: int


class _Part:
    """One segment's file, as far as it was read."""

    __slots__ = ("cuts", "first_number", "node", "read_bytes")

    def __init__(self, node: SimContent, first_number: int) -> None:
        self.node = node
        self.cuts = node.cuts
        self.first_number = first_number
        self.read_bytes = 0


class DiskLog:
    """The batches of one replica; `refresh` brings it up to date."""

    def __init__(
        self,
        disk: SimDisk,
        directory: str,
        before: Callable[[int], Sequence[Batch]] = lambda offset: (),
        *,
        durable: bool = False,
    ) -> None:
        """`before` gives the batches that a log which starts at this offset may lack."""
        self.batches: list[Batch] = []
        self.headers: list[BatchHeader] = []
        self.damaged = False
        """Whether something stands behind the last whole batch."""
        self._disk = disk
        self._directory = directory
        self._before = before
        self._durable = durable
        self._lacking = 0
        """How many batches the log starts after."""
        self._parts: dict[str, _Part] = {}

    @property
    def end_offset(self) -> int:
        return self.batches[-1].next_offset if self.batches else 0

    def refresh(self) -> int:
        """Read what is new; returns the number of the first batch that may have changed."""
        files = self._disk.durable_files(self._directory) if self._durable else self._disk.files(self._directory)
        names = sorted([name for name in files if name.endswith(".log")])
        known = list(self._parts)
        same = 0
        for name, old in zip(names, known, strict=False):
            part = self._parts[old]
            size = len(self._content(part.node))
            if name != old or part.node is not files[name] or part.cuts != part.node.cuts or part.read_bytes > size:
                break
            if part.read_bytes < size and same < len(known) - 1:
                break  # more came to a file that was not the last: it is read on, and all after it again
            same += 1
        changed = len(self.batches)
        if same < len(known):
            changed = self._parts[known[same]].first_number if same else 0
            for name in known[same:]:
                del self._parts[name]
            del self.batches[changed:]
            del self.headers[max(0, changed - self._lacking) :]
        elif same and same <= len(names):
            self._read(self._parts[names[same - 1]])
        if not same and names:
            self._start(int(names[0].removesuffix(".log")))
        for name in names[same:]:
            part = self._parts[name] = _Part(files[name], len(self.batches))
            self._read(part)
        return changed

    def _start(self, offset: int) -> None:
        self.batches[:] = self._before(offset) if offset else ()
        self._lacking = len(self.batches)

    def _content(self, node: SimContent) -> bytes | bytearray:
        return node.as_written(durable=self._durable)

    def _read(self, part: _Part) -> None:
        content = self._content(part.node)
        size, position = len(content), part.read_bytes
        self.damaged = False
        while position < size:
            header = read_batch_header(content, position) if size - position >= _HEADER_BYTES else None
            if header is None or not self._is_whole(content, position, header):
                self.damaged = True
                break
            self.batches.append(
                Batch(header.base_offset, header.next_offset, header.partition_leader_epoch, header.crc)
            )
            self.headers.append(header)
            position += header.size
        part.read_bytes = position

    def _is_whole(self, content: bytes | bytearray, position: int, header: BatchHeader) -> bool:
        if header.magic != MAGIC or header.batch_length < _HEADER_BYTES - 12 or position + header.size > len(content):
            return False
        follows = header.base_offset == self.end_offset
        return follows and batch_crc(content, position, header.size) == header.crc

    def header(self, number: int) -> BatchHeader:
        return self.headers[number - self._lacking]

    def records(self, number: int) -> list[Record]:
        """What is in a batch."""
        for part in reversed(list(self._parts.values())):
            if part.first_number <= number:
                first, wanted = part.first_number - self._lacking, number - self._lacking
                position = sum(header.size for header in self.headers[first:wanted])
                content = self._content(part.node)
                batch = memoryview(bytes(content[position : position + self.headers[wanted].size]))
                return list(read_records(batch, _RECORDS_BYTES_MAX))
        raise IndexError(number)
