"""The files of deleted segments, from their renaming to their removal.

How it works: a deleted file keeps its place for a while, for readers that are about to open it. When that is over its
space is given back; its name stays, empty, until a checkpoint says that the log starts behind it. Without the name a
start could not tell a deleted segment from a lost one.
Proved by: tests/unit/log/test_retention.py
"""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from martlet.base.disk import Disk
from martlet.log.file_names import DELETED, LOG

_EMPTY: Final = ".empty"


@dataclass(slots=True)
class _DeletedFile:
    at_ms: int
    path: str
    start_offset: int
    """Where the log starts without it."""
    is_emptied: bool = False


class DeletedFiles:
    """Owned by one log."""

    __slots__ = ("_disk", "_files", "noted_start")

    def __init__(self, disk: Disk) -> None:
        self._disk = disk
        self._files: list[_DeletedFile] = []
        self.noted_start = 0
        """Where the log starts, as far as a checkpoint says."""

    def add(self, paths: Iterable[str], now_ms: int, *, start_offset: int) -> None:
        """These were renamed now; the log starts at `start_offset` without them."""
        self._files += [_DeletedFile(now_ms, path, start_offset) for path in paths]

    def remove_due(self, now_ms: int, delay_ms: int) -> int:
        """Give back the space of those deleted `delay_ms` ago or earlier; returns how many files went."""
        waiting, count = [], 0
        for file in self._files:
            is_due = now_ms - file.at_ms >= delay_ms
            if is_due and (file.start_offset <= self.noted_start or not file.path.endswith(LOG + DELETED)):
                self._disk.remove(file.path)
                count += 1
                continue
            if is_due and not file.is_emptied:
                # Readers that have it open go on with it, and there is no moment without the name.
                self._disk.open(file.path + _EMPTY, create=True)
                self._disk.rename(file.path + _EMPTY, file.path)
                file.is_emptied = True
            waiting.append(file)
        self._files = waiting
        return count
