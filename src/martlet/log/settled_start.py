"""Where a log from which no record is deleted for its age may say on disk that it starts.

The start of such a log moves when a coordinator has written a snapshot behind it. A replica may hold the snapshot in
memory only; a power loss that takes it must find the old start, and the segments before it.

Rule SETTLED-1: the start on disk moves, and segments before it go, when the log is flushed to where it ended then.

Proved by: tests/unit/log/test_settled_start.py
"""

from typing import Protocol

from martlet.log.options import LogOptions


class StartingLog(Protocol):
    """What is asked of the log."""

    log_start_offset: int
    end_offset: int

    @property
    def options(self) -> LogOptions: ...


class Flushing(Protocol):
    """What is asked of its durability."""

    flushed_offset: int


class SettledStart:
    """Owned by one log; asked whenever the start is written down or acted on."""

    __slots__ = ("_durability", "_log", "_needs", "_offset", "_wanted")

    def __init__(self, log: StartingLog, durability: Flushing) -> None:
        self._log = log
        self._durability = durability
        self._offset = self._wanted = log.log_start_offset
        self._needs = 0
        """Where the log has to be flushed to for `_wanted`."""

    def offset(self) -> int:
        """Where the log may say now that it starts; never behind its start."""
        log = self._log
        start_offset = log.log_start_offset
        if log.options.delete:
            return start_offset
        if start_offset < self._wanted:  # it was truncated
            self._offset = min(self._offset, start_offset)
            self._wanted = self._offset
        # One move at a time, or a start that moves all the time would never settle.
        for _ in range(2):
            if self._wanted > self._offset and self._durability.flushed_offset >= self._needs:
                self._offset = self._wanted
            if self._wanted == self._offset < start_offset:
                self._wanted, self._needs = start_offset, log.end_offset
        return self._offset
