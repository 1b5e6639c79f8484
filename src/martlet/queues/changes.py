"""What has changed since the last record, and the record that says so.

How it works: only offsets are noted, as ranges. What is stored of them is read from the columns when the record is
made, so however often a message changed within a pass it is stored once, as it is. Strays are noted by offset.
"""

from collections.abc import Iterable
from typing import TypeAlias

from martlet.queues.cells import (
    BACKING_OFF,
    CANCELLED,
    CLOSING,
    COPYING,
    DEAD_LETTERED,
    FINISHED,
    LEASED,
    STRAY,
    WAITING,
    Cell,
)
from martlet.queues.records import Change, Closing, ReleasedUpTo, StateRecord, StrayEntry
from martlet.queues.strays import Stray, StrayTable
from martlet.queues.window import CellRun, Window

_Noted: TypeAlias = tuple[int, Stray | None]
"""An offset outside of the window, and the message there if it is not finished."""


class Changes:
    """The notes of one engine between two records."""

    __slots__ = ("_ranges", "_strays", "cancelled", "is_whole", "released")

    def __init__(self) -> None:
        self._ranges: list[tuple[int, int]] = []
        self._strays: set[int] = set()
        self.is_whole = False
        """Whether only a snapshot can say what has changed."""
        self.cancelled: dict[int, int] = {}
        """Messages that were cancelled before they were due or met, by offset: when they would have been due."""
        self.released: ReleasedUpTo | None = None
        """Stored with every record, so that it always fits the frontier."""

    def note(self, first: int, last: int) -> None:
        """The state of these cells has changed."""
        self._ranges.append((first, last))

    def note_stray(self, offset: int) -> None:
        self._strays.add(offset)

    def take(self, epoch: int, window: Window, strays: StrayTable, *, copies: frozenset[Cell]) -> Change | None:
        """The record of what was noted, and nothing is noted any more."""
        if self.is_whole:
            return self.take_all(epoch, window, strays, copies=copies)
        if not self._ranges and not self._strays:
            return None
        noted, moved = self._noted(window, strays)
        closing = _closing(noted, moved, copies)
        record = _record(epoch, window, noted, moved, copies, is_snapshot=False, released=self.released)
        return Change(record, closing)

    def take_all(self, epoch: int, window: Window, strays: StrayTable, *, copies: frozenset[Cell]) -> Change:
        """A snapshot, which contains what was noted."""
        # What an earlier change closes is in the record as well, and is that change's to report.
        closing = _closing(*self._noted(window, strays), copies)
        self.is_whole = False
        runs = list(window.runs(window.start, window.frontier - 1))
        moved: list[_Noted] = [(stray.offset, stray) for stray in strays]
        moved += [(offset, self._cancelled(offset)) for offset in self.cancelled]
        known = sorted(moved, key=lambda entry: entry[0])
        record = _record(epoch, window, runs, known, copies, is_snapshot=True, released=self.released)
        return Change(record, closing)

    def _noted(self, window: Window, strays: StrayTable) -> tuple[list[CellRun], list[_Noted]]:
        """What was noted, as it is now; nothing is noted any more."""
        ranges = _united(self._ranges, window.start, window.frontier - 1)
        moved = [(offset, strays.get(offset) or self._cancelled(offset)) for offset in sorted(self._strays)]
        self._ranges, self._strays = [], set()
        return [run for first, last in ranges for run in window.runs(first, last)], moved

    def _cancelled(self, offset: int) -> Stray | None:
        due_ms = self.cancelled.get(offset)
        return None if due_ms is None else Stray(offset, CANCELLED, 0, due_ms)


def _united(ranges: list[tuple[int, int]], first: int, last: int) -> list[tuple[int, int]]:
    """The same offsets as ascending, disjoint ranges, without those outside of `first` to `last`."""
    if len(ranges) > 1:
        ranges.sort()
    united: list[tuple[int, int]] = []
    end = first - 1
    for begin, stop in ranges:
        begin, stop = max(begin, first, end + 1 if united else first), min(stop, last)
        if begin > stop:
            continue
        if united and begin == end + 1:
            united[-1] = (united[-1][0], stop)
        else:
            united.append((begin, stop))
        end = stop
    return united


def _closing(runs: Iterable[CellRun], moved: Iterable[_Noted], copies: frozenset[Cell]) -> tuple[Closing, ...]:
    """What of this is finished once the record is committed."""
    closing = [
        Closing(run.first, run.last, run.cell - CLOSING, False, run.cell - CLOSING in copies)
        for run in runs
        if run.cell >= CLOSING
    ]
    closing += [
        Closing(offset, offset, stray.cell - CLOSING, True, stray.cell - CLOSING in copies)
        for offset, stray in moved
        if stray is not None and stray.cell >= CLOSING
    ]
    return tuple(closing)


def _record(
    epoch: int,
    window: Window,
    runs: Iterable[CellRun],
    moved: Iterable[_Noted],
    copies: frozenset[Cell],
    *,
    is_snapshot: bool,
    released: ReleasedUpTo | None,
) -> StateRecord:
    stored: list[CellRun] = []
    entries: list[StrayEntry] = []
    for run in runs:
        cell, attempts = run.cell, run.attempts
        if cell - CLOSING in copies:
            reason, cell = cell - CLOSING, STRAY
            entries += [StrayEntry(at, COPYING, attempts, 0, reason) for at in range(run.first, run.last + 1)]
        elif cell >= CLOSING:
            cell -= CLOSING
        elif cell == LEASED:
            cell, attempts = WAITING, attempts - 1
        if cell != WAITING:
            attempts = 0
        if not (is_snapshot and cell == WAITING and attempts == 0):
            _append(stored, CellRun(run.first, run.last, cell, attempts))
    entries += [_entry(offset, stray, copies) for offset, stray in moved]
    entries.sort()
    return StateRecord(epoch, window.start, window.frontier, tuple(stored), tuple(entries), is_snapshot, released)


def _append(runs: list[CellRun], run: CellRun) -> None:
    """Add a run to the others, and make one of it and the last where they are alike."""
    if runs and runs[-1].last == run.first - 1 and runs[-1][2:] == run[2:]:
        run = CellRun(runs.pop().first, *run[1:])
    runs.append(run)


def _entry(offset: int, stray: Stray | None, copies: frozenset[Cell]) -> StrayEntry:
    """A stray as it is stored; one that is gone is finished, however it was."""
    if stray is None:
        return StrayEntry(offset, DEAD_LETTERED, 0)
    if stray.cell - CLOSING in copies:
        return StrayEntry(offset, COPYING, stray.attempts, 0, stray.cell - CLOSING)
    if stray.cell - CLOSING in FINISHED:
        return StrayEntry(offset, stray.cell - CLOSING, 0)
    if stray.cell == LEASED:
        return StrayEntry(offset, WAITING, stray.attempts - 1)
    if stray.cell in (BACKING_OFF, CANCELLED):
        return StrayEntry(offset, stray.cell, stray.attempts, stray.ready_ms)
    return StrayEntry(offset, stray.cell, stray.attempts, 0, stray.reason)
