"""Messages that wait outside of the window: those that back off, and those on their way to the dead-letter topic.

What waits long must not hold the start of the window, or one message would stop a queue and pin its log. So the window
lets go of it, and it is kept here by itself until it is finished: an object and two heap entries, a few hundred bytes.

Rules: a stray is changed through this table only; the heaps may name strays that have moved on, and are asked with that
in mind.

Proved by: tests/unit/queues/test_strays.py, tests/properties/test_queue_engine.py
"""

from collections.abc import Iterator
from dataclasses import dataclass
from heapq import heappop, heappush
from typing import Protocol

from martlet.queues.cells import BACKING_OFF, WAITING, Cell


@dataclass(slots=True)
class Stray:
    """One message outside of the window."""

    offset: int
    cell: Cell
    attempts: int
    ready_ms: int = 0
    """When it may be leased again; for one being copied, nothing."""
    reason: Cell = WAITING
    """Of one being copied: why, as the finished state it would have without a dead-letter topic."""
    slot: int = 0
    """Of its lease; only while it is leased, or closing out of a lease."""


class StrayWatcher(Protocol):
    """Who has to know what becomes of the strays."""

    def stray_moved(self, stray: Stray, cell: Cell) -> None: ...

    def stray_gone(self, offset: int) -> None: ...


class StrayTable:
    """All strays of one subscription and partition, by offset."""

    __slots__ = ("_by_offset", "_pauses", "_ready", "watcher")

    def __init__(self) -> None:
        self._by_offset: dict[int, Stray] = {}
        self._pauses: list[tuple[int, int]] = []
        """(ready_ms, offset) of those backing off, and of some that no longer are."""
        self._ready: list[int] = []
        """Offsets of those that wait, and of some that no longer do."""
        self.watcher: StrayWatcher | None = None

    def __len__(self) -> int:
        return len(self._by_offset)

    def __iter__(self) -> Iterator[Stray]:
        return iter(self._by_offset.values())

    def __contains__(self, offset: int) -> bool:
        return offset in self._by_offset

    def __getitem__(self, offset: int) -> Stray:
        return self._by_offset[offset]

    def get(self, offset: int) -> Stray | None:
        return self._by_offset.get(offset)

    def within(self, first: int, last: int) -> list[Stray]:
        """Those of a range of offsets, ascending; as cheap as the smaller of the range and the table."""
        strays = self._by_offset
        if not strays:
            return []
        if last - first < len(strays):
            return [strays[offset] for offset in range(first, last + 1) if offset in strays]
        return sorted((s for s in strays.values() if first <= s.offset <= last), key=lambda stray: stray.offset)

    def put(self, stray: Stray) -> None:
        """Take in a stray in whatever state it is."""
        self._by_offset[stray.offset] = stray
        self.set_cell(stray, stray.cell)

    def set_cell(self, stray: Stray, cell: Cell) -> None:
        stray.cell = cell
        if cell == WAITING:
            heappush(self._ready, stray.offset)
        elif cell == BACKING_OFF:
            heappush(self._pauses, (stray.ready_ms, stray.offset))
        if self.watcher is not None:
            self.watcher.stray_moved(stray, cell)

    def remove(self, offset: int) -> None:
        del self._by_offset[offset]
        if self.watcher is not None:
            self.watcher.stray_gone(offset)

    def wake(self, now_ms: int) -> int:
        """Let those wait whose pause is over; their number."""
        woken = 0
        while (at_ms := self.next_ready_ms()) is not None and at_ms <= now_ms:
            self.set_cell(self._by_offset[heappop(self._pauses)[1]], WAITING)
            woken += 1
        return woken

    def next_ready_ms(self) -> int | None:
        """When the next pause is over."""
        while self._pauses:
            ready_ms, offset = self._pauses[0]
            stray = self._by_offset.get(offset)
            if stray is not None and stray.cell == BACKING_OFF and stray.ready_ms == ready_ms:
                return ready_ms
            heappop(self._pauses)
        return None

    def first_waiting(self) -> Stray | None:
        """The oldest that can be leased."""
        while self._ready:
            stray = self._by_offset.get(self._ready[0])
            if stray is not None and stray.cell == WAITING:
                return stray
            heappop(self._ready)
        return None

    def tally(self) -> dict[Cell, int]:
        """How many there are in each state."""
        counts: dict[Cell, int] = {}
        for stray in self._by_offset.values():
            counts[stray.cell] = counts.get(stray.cell, 0) + 1
        return counts

    @property
    def oldest(self) -> int | None:
        """The lowest offset, which the log must keep."""
        return min(self._by_offset, default=None)
