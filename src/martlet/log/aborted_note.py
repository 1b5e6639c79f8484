"""From which segment on each one of a log has an index of aborted transactions, written down beside them.

Rules: written durably before the first such index is, and only ever lowered. Without it an index that is gone would be
the same as one that was never needed, and readers of committed messages would get what was aborted.

How it works: one number with its checksum. Segments before that one have an index only if they have aborted
transactions, which they have not. A note that is damaged or cannot be read asks for an index of every segment: what
has none is walked over once. One that is gone is made again from the names of the indexes there are.

Invariants: ABORT-3 a single file that is gone or damaged, index or note, never hides an aborted transaction.
Proved by: tests/unit/log/test_aborted_index.py, tests/unit/log/test_aborted_transactions.py,
tests/properties/test_log_transactions.py
"""

from contextlib import suppress
from typing import Final

from crc32c import crc32c

from martlet.base.disk import Disk
from martlet.base.errors import DiskFull, StorageFailure
from martlet.log.file_names import ABORTED_NOTE

_EVERY_SEGMENT: Final = 0


def encode_note(base_offset: int) -> bytes:
    """The content of the file."""
    text = f"{base_offset:020d}"
    return f"{text} {crc32c(text.encode()):08x}\n".encode()


def decode_note(content: bytes) -> int | None:
    """The inverse of `encode_note`; None when the bytes are damaged."""
    digits = content[:20]
    return int(digits) if digits.isdigit() and content == encode_note(int(digits)) else None


def indexed_since(disk: Disk, directory: str) -> int | None:
    """Base offset of the first segment that must have an index; None when none must."""
    try:
        content = disk.read_file(f"{directory}/{ABORTED_NOTE}")
    except StorageFailure:
        return _EVERY_SEGMENT
    if content is None:
        return None
    since = decode_note(content)
    return _EVERY_SEGMENT if since is None else since


def note_indexed(disk: Disk, directory: str, base_offset: int) -> None:
    """The segment there is about to have an index; raises StorageFailure."""
    since = indexed_since(disk, directory)
    if since is None or since > base_offset:
        _write(disk, directory, base_offset)


def restore_note(disk: Disk, directory: str, indexed: list[int]) -> None:
    """Make the note again if it says nothing, by the base offsets of the indexes that a start has found."""
    try:
        content = disk.read_file(f"{directory}/{ABORTED_NOTE}")
    except StorageFailure:
        content = b""
    if (content or indexed) and decode_note(content or b"") is None:
        with suppress(DiskFull):  # then at another start
            _write(disk, directory, min(indexed, default=_EVERY_SEGMENT))


def _write(disk: Disk, directory: str, base_offset: int) -> None:
    path = f"{directory}/{ABORTED_NOTE}"
    try:
        disk.replace_file(path, encode_note(base_offset))
    except DiskFull:
        raise
    except StorageFailure:
        disk.remove(path)
        disk.replace_file(path, encode_note(base_offset))
