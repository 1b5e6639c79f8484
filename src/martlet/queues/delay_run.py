"""One file of delayed messages: (due, offset) pairs in order of their due times, read in blocks.

    header     magic "MDLY" · version u16 · 0 u16 · count u32 · first due i64 · last due i64 ·
               covered from i64 · covered to i64 · checksum of header and table u32
    table      a checksum u32 for every block of 512 entries
    entries    due i64 · offset i64, ascending; all numbers little-endian

A run holds every delayed message of the offsets it covers. It is derived from the log and never changed.

Rules: whatever cannot be believed raises DamagedRun; the index then reads that part of the log again.

Proved by: tests/unit/queues/test_delay_index.py, tests/properties/test_queue_delay_index.py
"""

from collections.abc import Iterator, Sequence
from struct import Struct, error, pack, unpack
from typing import Final, NamedTuple, TypeAlias
from zlib import crc32

from martlet.base.disk import Disk, DiskFile

BLOCK: Final = 512

Entry: TypeAlias = tuple[int, int]
"""When a message is due, and its offset; compared in this order."""

_HEADER: Final = Struct("<4sHHIqqqqI")
_MAGIC: Final = b"MDLY"
_VERSION: Final = 1
_ENTRY_BYTES: Final = 16
_COUNT_MAX: Final = 1 << 20


class DamagedRun(Exception):
    """The file is not what was written."""


class Coverage(NamedTuple):
    """The offsets that a run speaks for."""

    first: int
    end: int


def encode_run(entries: Sequence[Entry], coverage: Coverage) -> bytes:
    """The bytes of a run; the entries are sorted and there is at least one."""
    body = pack(f"<{2 * len(entries)}q", *(number for entry in entries for number in entry))
    step = BLOCK * _ENTRY_BYTES
    checksums = [crc32(body[at : at + step]) for at in range(0, len(body), step)]
    table = pack(f"<{len(checksums)}I", *checksums)
    fields = (_MAGIC, _VERSION, 0, len(entries), entries[0][0], entries[-1][0], *coverage)
    checksum = crc32(_HEADER.pack(*fields, 0) + table)
    return _HEADER.pack(*fields, checksum) + table + body


class DelayRun:
    """An open run, with a cursor that moves through it once."""

    __slots__ = (
        "_block",
        "_block_index",
        "_checksums",
        "_file",
        "_start",
        "count",
        "coverage",
        "cursor",
        "dues",
        "name",
    )

    def __init__(self, disk: Disk, path: str, name: str) -> None:
        """Raises DamagedRun, or StorageFailure when there is no such file."""
        self.name = name
        self._file: DiskFile = disk.open(path)
        self._block: list[Entry] = []
        self._block_index = -1
        self.cursor = 0
        """How many entries have been taken."""
        header = self._file.pread(_HEADER.size, 0)
        try:
            magic, version, _, count, first_due, last_due, first, end, checksum = _HEADER.unpack(header)
        except error:
            raise DamagedRun(f"{path} has {len(header)} bytes") from None
        if magic != _MAGIC or version != _VERSION or not 0 < count <= _COUNT_MAX:
            raise DamagedRun(f"{path} is no run of delayed messages")
        blocks = -(-count // BLOCK)
        table = self._file.pread(4 * blocks, _HEADER.size)
        if len(table) != 4 * blocks or crc32(header[:-4] + bytes(4) + table) != checksum:
            raise DamagedRun(f"the header of {path} is damaged")
        self._checksums = unpack(f"<{blocks}I", table)
        self._start = _HEADER.size + len(table)
        self.count: int = count
        self.dues: tuple[int, int] = (first_due, last_due)
        self.coverage = Coverage(first, end)

    def close(self) -> None:
        self._file.close()

    def __getitem__(self, index: int) -> Entry:
        block = index // BLOCK
        if block != self._block_index:
            self._block = self._read(block)
            self._block_index = block
        return self._block[index % BLOCK]

    def position_after(self, entry: Entry) -> int:
        """How many entries are not after this one."""
        low, high = 0, self.count
        while low < high:
            middle = (low + high) // 2
            if self[middle] <= entry:
                low = middle + 1
            else:
                high = middle
        return low

    @property
    def next_due(self) -> int | None:
        """When the entry at the cursor is due."""
        if self.cursor == 0:
            return self.dues[0]
        return self[self.cursor][0] if self.cursor < self.count else None

    def take(self, upto_ms: int) -> list[Entry]:
        """The entries from the cursor on that are due by then; the cursor moves behind them."""
        taken: list[Entry] = []
        while self.cursor < self.count:
            entry = self[self.cursor]
            if entry[0] > upto_ms:
                break
            taken.append(entry)
            self.cursor += 1
        return taken

    def after(self, entry: Entry) -> Iterator[Entry]:
        """The entries after this one, read as they are asked for; the cursor stays where it is."""
        at = self.position_after(entry)
        while at < self.count:
            block = self._read(at // BLOCK)
            yield from block[at % BLOCK :]
            at += len(block) - at % BLOCK

    def check(self) -> None:
        """Read all of it; raises DamagedRun."""
        for block in range(-(-self.count // BLOCK)):
            self._read(block)

    def _read(self, block: int) -> list[Entry]:
        length = min(BLOCK, self.count - block * BLOCK)
        data = self._file.pread(length * _ENTRY_BYTES, self._start + block * BLOCK * _ENTRY_BYTES)
        if crc32(data) != self._checksums[block]:
            raise DamagedRun(f"block {block} of {self._file.path} is damaged")
        numbers = unpack(f"<{2 * length}q", data)
        return list(zip(numbers[::2], numbers[1::2], strict=True))
