"""The index files of a segment on disk: taking up what they lack, and reading their last entries.

Rules: knows entries by their size only; what they mean is for the indexes to say. A file that cannot be read is the
same as none (`rebuilt_files`).
Proved by: tests/unit/log/test_segment.py
"""

from martlet.base.disk import Disk
from martlet.base.errors import StorageFailure
from martlet.log.offset_index import OffsetIndex
from martlet.log.rebuilt_files import open_rebuilt
from martlet.log.time_index import TimeIndex


def append_entries(disk: Disk, path: str, index: OffsetIndex | TimeIndex, entry_bytes: int) -> None:
    """Write the entries that the file does not hold yet, and none of what it holds too much."""
    if index.persisted == len(index) and not index.has_excess:
        return
    file = open_rebuilt(disk, path)
    start = index.persisted * entry_bytes
    if file.size() > start:
        file.truncate(start)
    elif file.size() < start:
        # Another program shortened it: write all of it again.
        index.persisted = start = 0
    file.pwrite(index.encode_from(index.persisted), start)
    index.persisted, index.has_excess = len(index), False


def last_entry(disk: Disk, path: str, entry_bytes: int) -> bytes:
    """The bytes of the last whole entry; empty when there is none to be read."""
    if not disk.exists(path):
        return b""
    try:
        file = disk.open(path)
        return file.pread(entry_bytes, max(0, file.size() // entry_bytes - 1) * entry_bytes)
    except StorageFailure:
        return b""
