"""The aborted transactions of one segment: what a reader of committed data has to leave out.

Rules: entries and their file only. An entry belongs to the segment that holds the abort marker. Like other index files
this one is written at roll, checkpoint and close. Unlike them it is believed without reading the log, so it says
itself whether it is whole, and `aborted_note` says whether there must be one.

How it works: Kafka's `.txnindex`, big-endian, 34 bytes an entry: i16 version 0, i64 producer id, i64 first offset, i64
last offset (the marker's), i64 last stable offset when the marker came. Behind the entries Martlet writes the CRC-32C
of them all; Kafka's reader takes no notice of fewer bytes than an entry. A segment without aborted data has no file,
or, after one that has some, a file that says so.

Invariants: ABORT-1 entries ascend by last offset; ABORT-2 a file whose checksum does not match, or that is missing
though it must be there, is never believed: `is_damaged` says so, and the owner makes them again from the batches.
Proved by: tests/unit/log/test_aborted_index.py, tests/properties/test_log_transactions.py
"""

from bisect import bisect_left
from operator import attrgetter
from struct import Struct
from typing import Final, NamedTuple

from crc32c import crc32c

from martlet.base.disk import Disk, DiskFile
from martlet.base.errors import StorageFailure
from martlet.log.aborted_note import indexed_since, note_indexed
from martlet.log.file_names import parse_offset_file
from martlet.log.rebuilt_files import open_rebuilt

_VERSION: Final = 0
_ENTRY: Final = Struct(">hqqqq")
_CHECKSUM: Final = Struct(">I")
_NONE: Final = b"none"
"""Stands for the entries where there are none, so that no shortened file is one."""
_UNKNOWN: Final = -1
_NO_FILE: Final = -2
_last_offset = attrgetter("last_offset")


class AbortedTransaction(NamedTuple):
    """The data of a producer between two offsets that was never committed."""

    producer_id: int
    first_offset: int
    last_offset: int
    """Of the marker."""
    last_stable_offset: int
    """Up to where everything was decided once this was: no later marker's transaction begins before it."""


def encode_aborted(entries: list[AbortedTransaction]) -> bytes:
    """The file's content."""
    body = b"".join(_ENTRY.pack(_VERSION, *entry) for entry in entries) or _NONE
    return body + _CHECKSUM.pack(crc32c(body))


def decode_aborted(content: bytes) -> list[AbortedTransaction] | None:
    """The inverse of `encode_aborted`; None when the bytes are damaged, not ours, or none at all."""
    body = content[: -_CHECKSUM.size]
    if not body or content[-_CHECKSUM.size :] != _CHECKSUM.pack(crc32c(body)):
        return None
    if body == _NONE:
        return []
    if len(body) % _ENTRY.size:
        return None
    found = list(_ENTRY.iter_unpack(body))
    return None if any(fields[0] != _VERSION for fields in found) else [AbortedTransaction(*row[1:]) for row in found]


class AbortedIndex:
    """Owned by one segment; its file is read when the entries are first needed."""

    __slots__ = ("_disk", "_entries", "_is_noted", "_is_whole", "_saved", "path")

    def __init__(self, disk: Disk, path: str) -> None:
        self._disk = disk
        self.path = path
        self._entries: list[AbortedTransaction] | None = None
        self._is_whole = True
        self._is_noted = False
        """Whether `aborted_note` is known to ask for this file."""
        self._saved = _UNKNOWN
        """How many entries the file holds, if it holds nothing but the first of these."""

    @property
    def entries(self) -> list[AbortedTransaction]:
        """In order of their markers; ask `is_damaged` first."""
        entries = self._entries
        return self._load() if entries is None else entries

    @property
    def is_damaged(self) -> bool:
        """Whether the file cannot be believed, so that the entries have to be made again."""
        if self._entries is None:
            self._load()
        return not self._is_whole

    def since(self, offset: int) -> list[AbortedTransaction]:
        """Those whose marker is at `offset` or later."""
        entries = self.entries
        return entries[bisect_left(entries, offset, key=_last_offset) :] if entries else entries

    def add(self, aborted: AbortedTransaction) -> None:
        """An abort marker has been written or found, later than all before."""
        self.entries.append(aborted)

    def truncate(self, offset: int) -> None:
        """Forget the markers from `offset` on."""
        entries = self.entries
        keep = bisect_left(entries, offset, key=_last_offset)
        if keep < len(entries):
            del entries[keep:]
            self._saved = _UNKNOWN

    def clear(self) -> None:
        """Begin without entries, whatever the file holds."""
        self._entries, self._is_whole, self._saved = [], True, _UNKNOWN

    def save(self) -> None:
        """Bring the file up to date; raises StorageFailure."""
        entries = self._entries
        if entries is None or not self._is_whole or self._saved == len(entries):
            return
        if not entries:
            if self._saved == _NO_FILE:
                return
            if not self._must_be_there():
                self._disk.remove(self.path)
                self._saved = _NO_FILE
                return
        elif not self._is_noted:
            note_indexed(self._disk, *self._place())
            self._is_noted = True
        self._saved = _UNKNOWN  # a write that fails leaves a part of it
        content = encode_aborted(entries)
        file = open_rebuilt(self._disk, self.path)
        if file.size() > len(content):
            file.truncate(len(content))
        file.pwrite(content, 0)
        self._saved = len(entries)

    def files(self) -> list[DiskFile]:
        """The file, if there is one, to be synced."""
        return [self._disk.open(self.path)] if self._saved != _NO_FILE and self._disk.exists(self.path) else []

    def release(self) -> None:
        """Let go of entries that are safe in the file."""
        if self._is_whole and self._entries and self._saved == len(self._entries):
            self._entries = None

    def remove(self) -> None:
        """Begin without entries and without a file."""
        self._disk.remove(self.path)
        self._entries, self._is_whole, self._saved = [], True, _UNKNOWN

    def _place(self) -> tuple[str, int]:
        """The directory, and the base offset of the segment."""
        directory, _, name = self.path.rpartition("/")
        parsed = parse_offset_file(name)
        return directory, 0 if parsed is None else parsed[0]

    def _must_be_there(self) -> bool:
        directory, base_offset = self._place()
        since = indexed_since(self._disk, directory)
        return since is not None and since <= base_offset

    def _load(self) -> list[AbortedTransaction]:
        try:
            content = self._disk.read_file(self.path)
        except StorageFailure:
            content = b""
        if content is None:
            self._entries, self._is_whole = [], not self._must_be_there()
            self._saved = _NO_FILE if self._is_whole else _UNKNOWN
            return self._entries
        entries = decode_aborted(content)
        self._is_whole = entries is not None
        self._entries = [] if entries is None else entries
        if entries is not None:
            self._saved = len(entries)
        return self._entries
