"""The files of one segment: their names, the indexes and what of these is in the files.

Rules: an index is read when it is first needed and can be released once its file holds all of it. Whether entries from
a file are true is for the segment to find out (SEG-2). A full disk costs a rebuild at worst (SEG-3).
Proved by: tests/unit/log/test_segment.py, tests/unit/log/test_rebuilt_files.py
"""

from martlet.base.disk import Disk, DiskFile
from martlet.base.errors import DiskFull
from martlet.log import offset_index, time_index
from martlet.log.aborted_index import AbortedIndex
from martlet.log.file_names import ABORTED_INDEX, DELETED, INDEX, INDEX_KINDS, LOG, TIME_INDEX, offset_file
from martlet.log.index_files import append_entries, last_entry
from martlet.log.offset_index import OffsetIndex, decode_offset_index
from martlet.log.rebuilt_files import read_rebuilt
from martlet.log.time_index import TimeIndex, decode_time_index


class SegmentFiles:
    """Owned by one segment; `offsets` and `times` are None while they are only in their files."""

    __slots__ = ("_disk", "_prefix", "aborted", "log_path", "offsets", "times")

    def __init__(self, disk: Disk, directory: str, base_offset: int) -> None:
        self._disk = disk
        self._prefix = f"{directory}/{offset_file(base_offset, '')}"
        self.log_path = self._prefix + LOG
        self.offsets: OffsetIndex | None = None
        self.times: TimeIndex | None = None
        self.aborted = AbortedIndex(disk, self._prefix + ABORTED_INDEX)

    def open_log(self) -> DiskFile:
        return self._disk.open(self.log_path)

    def create_log(self) -> DiskFile:
        """An empty log file and no others; what an earlier life left under their names is overwritten."""
        file = self._disk.open(self.log_path, create=True)
        if file.size():
            file.truncate(0)
        self.aborted.remove()
        self._disk.remove(self._prefix + INDEX)
        self._disk.remove(self._prefix + TIME_INDEX)
        self.start_indexes()
        return file

    def start_indexes(self) -> None:
        """Begin with empty indexes, whatever their files hold."""
        self.offsets, self.times = OffsetIndex(), TimeIndex()
        self.offsets.has_excess = self.times.has_excess = True

    def read_indexes(self, *, log_bytes: int, check: bool) -> tuple[OffsetIndex, TimeIndex]:
        """Both indexes from their files; with `check` only what can be one of a log file of that size."""
        content = read_rebuilt(self._disk, self._prefix + INDEX) or b""
        offsets = decode_offset_index(content, log_bytes=log_bytes, check=check)
        times = decode_time_index(read_rebuilt(self._disk, self._prefix + TIME_INDEX) or b"", check=check)
        self.offsets, self.times = offsets, times
        return offsets, times

    def last_offset_entry(self) -> tuple[int, int] | None:
        """Relative offset and position in the last entry of the file; reads nothing else."""
        tail = last_entry(self._disk, self._prefix + INDEX, offset_index.ENTRY_BYTES)
        return offset_index.decode_last_entry(tail)

    def last_time_entry(self) -> time_index.TimeEntry | None:
        """The last entry of the file; reads nothing else."""
        tail = last_entry(self._disk, self._prefix + TIME_INDEX, time_index.ENTRY_BYTES)
        return time_index.decode_last_entry(tail)

    def save_indexes(self) -> bool:
        """Bring the index files up to date; whether there was space."""
        try:
            self.aborted.save()
            if self.offsets is not None and self.times is not None:
                append_entries(self._disk, self._prefix + INDEX, self.offsets, offset_index.ENTRY_BYTES)
                append_entries(self._disk, self._prefix + TIME_INDEX, self.times, time_index.ENTRY_BYTES)
        except DiskFull:
            return False
        return True

    def index_files(self) -> list[DiskFile]:
        """The index files, to be synced."""
        paths = (self._prefix + INDEX, self._prefix + TIME_INDEX)
        files = [self._disk.open(path) for path in paths if self._disk.exists(path)]
        return files + self.aborted.files()

    def release(self) -> None:
        """Let go of indexes that are safe in their files."""
        if all(index is None or index.persisted == len(index) for index in (self.offsets, self.times)):
            self.offsets = self.times = None
        self.aborted.release()

    def rename(self, suffix: str) -> list[str]:
        """Give all files the name they wait for removal under; returns the new names."""
        renamed = []
        for kind in (LOG, *INDEX_KINDS):
            if self._disk.exists(self._prefix + kind):
                self._disk.rename(self._prefix + kind, self._prefix + kind + suffix)
                renamed.append(self._prefix + kind + suffix)
        return renamed

    def discard(self) -> None:
        """Remove all files."""
        for path in self.rename(DELETED):
            self._disk.remove(path)
