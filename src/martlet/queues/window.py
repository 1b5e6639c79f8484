"""The messages between the first unfinished one and the last ever leased: state, delivery count and lease, in columns.

Six bytes a message, whatever the order in which messages are finished. Runs of equal cells are found and written by the
searches and slices of `bytearray`, so that a lease of 500 costs little more than one of a single message.

Rules: every change of a state goes through `move` or `open`, which keep the counters; nothing else counts anything.

Invariants:
QWN-1 `start` is the first offset whose cell the start may not move over, or the frontier.
QWN-2 No cell below `waiting_from` is WAITING.
QWN-3 `waiting`, `leased` and `closing` equal a recount of the cells.

Proved by: tests/unit/queues/test_window.py, tests/properties/test_queue_engine.py
"""

from array import array
from collections.abc import Iterator
from typing import Final, NamedTuple, Protocol

from martlet.queues.cells import CLOSING, LEASED, ONE, PASSABLE, STRAY, WAITING, Cell

_KEPT_MAX: Final = 4096
"""Cells below the start that are kept before the columns are cut."""
_FIRST_STEP: Final = 64
"""Searches look at this many cells first, and at more and more when that does not end them."""


class CellRun(NamedTuple):
    """Neighbours with the same state and delivery count."""

    first: int
    last: int
    cell: Cell
    attempts: int


class WindowWatcher(Protocol):
    """Who has to know what becomes of the messages."""

    def moved(self, first: int, last: int, old: Cell, new: Cell) -> None: ...


class Window:
    """The columns over the offsets from `start` to before `frontier`."""

    __slots__ = (
        "_base",
        "_counts",
        "_slots",
        "_states",
        "closing",
        "frontier",
        "leased",
        "start",
        "waiting",
        "waiting_from",
        "watcher",
    )

    def __init__(self, start: int) -> None:
        self._base = start
        self._states = bytearray()
        self._counts = bytearray()
        self._slots = array("I")
        self.start = self.frontier = self.waiting_from = start
        self.waiting = self.leased = self.closing = 0
        self.watcher: WindowWatcher | None = None
        """Hears of every `move`; what is opened or leased is its own doing."""

    def __len__(self) -> int:
        return self.frontier - self.start

    # --- reading

    def cell(self, offset: int) -> Cell:
        return self._states[offset - self._base]

    def attempts(self, offset: int) -> int:
        return self._counts[offset - self._base]

    def slot(self, offset: int) -> int:
        """Of the lease; only while it is leased, or closing out of a lease."""
        return self._slots[offset - self._base]

    def has_only(self, first: int, last: int, cell: Cell) -> bool:
        """Whether all cells of this range are in one state."""
        if first == last:
            return self._states[first - self._base] == cell
        at = first - self._base
        return self._states.count(cell, at, at + last - first + 1) == last - first + 1

    def slots(self, first: int, last: int) -> dict[int, int]:
        """How many cells of this range have each lease slot."""
        at = first - self._base
        if first == last:
            return {self._slots[at]: 1}
        part = self._slots[at : at + last - first + 1]
        return {slot: part.count(slot) for slot in set(part)}

    def next_waiting(self) -> int | None:
        """The first message that waits."""
        if not self.waiting:
            return None
        at = self._states.find(WAITING, self.waiting_from - self._base)
        self.waiting_from = self._base + at
        return self.waiting_from

    def run_at(self, offset: int, limit: int) -> CellRun:
        """The run that begins here, of at most `limit` cells."""
        at = offset - self._base
        cell, attempts = self._states[at], self._counts[at]
        length = 1
        step = min(limit, _FIRST_STEP)
        while length < limit:
            states = self._states[at + length : at + step]
            alike = len(states) - len(states.lstrip(ONE[cell]))
            counts = self._counts[at + length : at + length + alike]
            alike -= len(counts.lstrip(ONE[attempts]))
            length += alike
            if length < step:
                break
            step = min(limit, 4 * step)
        return CellRun(offset, offset + length - 1, cell, attempts)

    def runs(self, first: int, last: int) -> Iterator[CellRun]:
        """The cells of this range, run by run."""
        while first <= last:
            run = self.run_at(first, last - first + 1)
            yield run
            first = run.last + 1

    def next_of(self, cell: Cell, first: int, last: int) -> int | None:
        """The first message of this range that is in this state."""
        at = self._states.find(cell, first - self._base, last - self._base + 1)
        return None if at < 0 else self._base + at

    # --- changing

    def open(self, length: int, cell: Cell, count: int = 0, slot: int = 0) -> int:
        """Move the frontier over this many offsets, which get this state; the first of them."""
        first = self.frontier
        self._states += ONE[cell] * length
        self._counts += ONE[count] * length
        self._slots.extend(array("I", (slot,)) * length)
        self.frontier += length
        self._tally(cell, length, first)
        return first

    def move(self, first: int, last: int, old: Cell, new: Cell) -> None:
        """All cells of this range, which are in state `old`, get the state `new`."""
        at = first - self._base
        length = last - first + 1
        if length == 1:
            self._states[at] = new
        else:
            self._states[at : at + length] = ONE[new] * length
        self._tally(old, -length, first)
        self._tally(new, length, first)
        if self.watcher is not None:
            self.watcher.moved(first, last, old, new)

    def lease(self, first: int, last: int, count: int, slot: int) -> None:
        """All cells of this range, which wait, are leased with this delivery count."""
        at = first - self._base
        length = last - first + 1
        if length == 1:
            self._states[at] = LEASED
            self._counts[at] = count
            self._slots[at] = slot
        else:
            self._states[at : at + length] = ONE[LEASED] * length
            self._counts[at : at + length] = ONE[count] * length
            self._slots[at : at + length] = array("I", (slot,)) * length
        self.waiting -= length
        self.leased += length

    def set_attempts(self, first: int, last: int, count: int) -> None:
        at = first - self._base
        self._counts[at : at + last - first + 1] = ONE[count] * (last - first + 1)

    def set_slot(self, first: int, last: int, slot: int) -> None:
        at = first - self._base
        self._slots[at : at + last - first + 1] = array("I", (slot,)) * (last - first + 1)

    def advance(self) -> None:
        """Move the start over what is finished or moved aside (QWN-1)."""
        states, at, step = self._states, self.start - self._base, _FIRST_STEP
        if at >= len(states) or not STRAY <= states[at] < CLOSING:
            return
        while at < len(states):
            part = states[at : at + step]
            rest = len(part.lstrip(PASSABLE))
            at += len(part) - rest
            if rest:
                break
            step *= 2
        self.start = self._base + at
        self.waiting_from = max(self.waiting_from, self.start)
        if at > _KEPT_MAX and 2 * at > len(states):
            self._cut(at)

    def _cut(self, length: int) -> None:
        del self._states[:length]
        del self._counts[:length]
        del self._slots[:length]
        self._base += length

    def _tally(self, cell: Cell, change: int, first: int) -> None:
        if cell == WAITING:
            self.waiting += change
            if change > 0 and first < self.waiting_from:
                self.waiting_from = first
        elif cell == LEASED:
            self.leased += change
        elif cell >= CLOSING:
            self.closing += change
