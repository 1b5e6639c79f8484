"""What is known of the messages of one subscription and partition, and how that is stored, committed and loaded.

Rules: what a request, the time or a policy wants is decided in `engine.py`; here is what follows from the log. Whatever
changes a stored state notes it, and is stored with the next change.

Proved by: tests/unit/queues/test_engine.py, tests/properties/test_queue_engine.py
"""

from martlet.queues.cells import (
    ACKNOWLEDGED,
    CANCELLED,
    CLOSING,
    COPYING,
    DEAD_LETTERED,
    FINISHED,
    GAP,
    KEEPS_LEASE,
    LEASED,
    STRAY,
    WAITING,
    Cell,
)
from martlet.queues.changes import Changes
from martlet.queues.delivery_order import DeliveryOrder
from martlet.queues.leases import Lease, LeaseBook
from martlet.queues.records import Change, DeadLetter, ReleasedUpTo, StateRecord
from martlet.queues.strays import Stray, StrayTable
from martlet.queues.window import CellRun, Window


class Ledger:
    """Window, strays and leases, and what of them is not stored yet."""

    def __init__(self, start: int) -> None:
        self.epoch = 0
        self.window = Window(start)
        self.strays = StrayTable()
        self.leases = LeaseBook()
        self.changes = Changes()
        self.changes.is_whole = True
        self.order: DeliveryOrder | None = None
        """Hears of every change of a state, while it is set."""
        self.log_start = 0
        self.released_stored: ReleasedUpTo | None = None
        """How far delayed messages were handed over for good."""

    def _begin_at(self, start: int) -> None:
        self.window, self.strays, self.leases = Window(start), StrayTable(), LeaseBook()

    def watch_with(self, order: DeliveryOrder | None) -> None:
        """This order hears of every change from now on."""
        self.order = self.window.watcher = self.strays.watcher = order

    @property
    def low_mark(self) -> int:
        """The lowest offset that this subscription still needs of the log."""
        oldest = self.strays.oldest
        return self.window.start if oldest is None else min(oldest, self.window.start)

    def held_under(self, lease: Lease, first: int, last: int) -> list[tuple[int, int]]:
        """The parts of this range, all in the window, that are leased by this very lease."""
        found: list[tuple[int, int]] = []
        window = self.window
        left = lease.left
        at = window.next_of(LEASED, first, last) if first <= last else None
        while at is not None and left > 0:
            run = window.run_at(at, last - at + 1)
            slots = window.slots(run.first, run.last)
            if slots.keys() == {lease.slot}:
                found.append((run.first, run.last))
                left -= run.last - run.first + 1
            elif lease.slot in slots:
                mine = [offset for offset in range(run.first, run.last + 1) if window.slot(offset) == lease.slot]
                found += [(offset, offset) for offset in mine]
                left -= len(mine)
            at = window.next_of(LEASED, run.last + 1, last) if run.last < last else None
        return found

    def leave(self, first: int, last: int) -> None:
        """These messages of the window no longer name their leases."""
        for slot, length in self.window.slots(first, last).items():
            self.leases.leave(self.leases[slot], length)

    def leave_stray(self, stray: Stray) -> None:
        self.leases.leave_stray(self.leases[stray.slot], stray.offset)

    # --- jumps

    def reset(self, start: int) -> None:
        """Go on at another offset: every lease, count and stray is forgotten, and what a holder still says of them."""
        self.epoch += 1
        self._begin_at(start)
        self.changes = Changes()
        self.changes.is_whole = True

    def log_begins_at(self, offset: int) -> None:
        """What lies before this offset is no longer in the log: no consumer can have it any more."""
        window = self.window
        self.log_start = max(self.log_start, offset)
        if offset >= window.frontier:
            self._begin_at(offset)
            self.changes.is_whole = True
            return
        if offset > window.start:
            for run in list(window.runs(window.start, offset - 1)):
                if run.cell == LEASED or run.cell - CLOSING in KEEPS_LEASE:
                    self.leave(run.first, run.last)
                window.move(run.first, run.last, run.cell, GAP)
            window.advance()
            self.changes.note(window.start, window.start)
        for stray in self.strays.within(0, offset - 1):
            if stray.cell == LEASED or stray.cell - CLOSING in KEEPS_LEASE:
                self.leave_stray(stray)
            self.strays.remove(stray.offset)
            self.changes.note_stray(stray.offset)

    # --- durability

    def take_change(self, copies: frozenset[Cell]) -> Change | None:
        """What must be stored since the last one; `copies` are the ends that lead to the dead-letter topic."""
        return self.changes.take(self.epoch, self.window, self.strays, copies=copies)

    def snapshot(self, copies: frozenset[Cell]) -> Change:
        return self.changes.take_all(self.epoch, self.window, self.strays, copies=copies)

    def committed(self, change: Change) -> list[DeadLetter]:
        """What was closing is finished; the copies to be made."""
        if change.record.epoch != self.epoch:
            return []
        self.released_stored = change.record.released
        letters: list[DeadLetter] = []
        for closing in change.closing:
            if closing.is_stray:
                self._close_stray(closing.first, closing.cell, closing.is_copied, letters)
            elif closing.last >= self.window.start:
                self._close(
                    max(closing.first, self.window.start), closing.last, closing.cell, closing.is_copied, letters
                )
        self.window.advance()
        return letters

    def _close(self, first: int, last: int, cell: Cell, is_copied: bool, letters: list[DeadLetter]) -> None:
        window = self.window
        if cell in KEEPS_LEASE:
            self.leave(first, last)
        if is_copied:
            for offset in range(first, last + 1):
                count = window.attempts(offset)
                self.strays.put(Stray(offset, COPYING, count, reason=cell))
                letters.append(DeadLetter(offset, count, cell))
        window.move(first, last, CLOSING + cell, STRAY if is_copied else cell)

    def _close_stray(self, offset: int, cell: Cell, is_copied: bool, letters: list[DeadLetter]) -> None:
        stray = self.strays.get(offset)
        if stray is None:
            return
        if cell in KEEPS_LEASE:
            self.leave_stray(stray)
        if is_copied:
            stray.reason = cell
            self.strays.set_cell(stray, COPYING)
            letters.append(DeadLetter(offset, stray.attempts, cell))
        else:
            self.strays.remove(offset)

    def failed(self, change: Change) -> tuple[list[tuple[int, int]], list[Stray]]:
        """What a holder asked for is undone, the rest will be stored with the next change.

        Returns the messages that are leased again though their lease is over, by ranges and as strays.
        """
        if change.record.epoch != self.epoch:
            return [], []
        self._note_again(change)
        over: list[tuple[int, int]] = []
        strays_over: list[Stray] = []
        for closing in change.closing:
            if closing.cell not in KEEPS_LEASE:
                continue
            if not closing.is_stray:
                if closing.last >= self.window.start:
                    over += self._reopen(max(closing.first, self.window.start), closing.last, closing.cell)
            elif (stray := self.strays.get(closing.first)) is not None:
                self.strays.set_cell(stray, LEASED)
                if self.leases[stray.slot].is_over:
                    strays_over.append(stray)
        return over, strays_over

    def _note_again(self, change: Change) -> None:
        if change.record.is_snapshot:
            self.changes.is_whole = True
        else:
            for run in change.record.runs:
                self.changes.note(run.first, run.last)
            for entry in change.record.strays:
                self.changes.note_stray(entry.offset)
        for closing in change.closing:
            if closing.is_stray:
                self.changes.note_stray(closing.first)
            else:
                self.changes.note(closing.first, closing.last)

    def _reopen(self, first: int, last: int, cell: Cell) -> list[tuple[int, int]]:
        """Lease again what was closing; the parts of it whose lease is over."""
        self.window.move(first, last, CLOSING + cell, LEASED)
        leases = [self.leases[slot] for slot in self.window.slots(first, last)]
        return [part for lease in leases if lease.is_over for part in self.held_under(lease, first, last)]

    def dead_letter_copied(self, offset: int) -> None:
        """The copy in the dead-letter topic is committed: the message can be finished."""
        stray = self.strays.get(offset)
        if stray is not None and stray.cell == COPYING:
            self.strays.set_cell(stray, CLOSING + DEAD_LETTERED)
            self.changes.note_stray(offset)

    # --- loading

    def replay(self, record: StateRecord) -> None:
        """Take in one record of the state log, in its order, before anything is served."""
        self.changes.is_whole = False
        self.changes.released = self.released_stored = record.released
        window = self.window
        if record.is_snapshot or record.epoch != self.epoch:
            self.epoch = record.epoch
            window = self.window = Window(record.start)
            self.strays = StrayTable()
            self.changes.cancelled = {}
        elif record.start >= window.frontier:
            window = self.window = Window(record.start)
        if record.frontier > window.frontier:
            window.open(record.frontier - window.frontier, WAITING)
        self._restore(CellRun(window.start, min(record.start, window.frontier) - 1, ACKNOWLEDGED, 0))
        for run in record.runs:
            self._restore(run)
        for entry in record.strays:
            if entry.cell == CANCELLED and entry.ready_ms:
                self.changes.cancelled[entry.offset] = entry.ready_ms
            elif entry.cell in FINISHED:
                if entry.offset in self.strays:
                    self.strays.remove(entry.offset)
            else:
                stray = Stray(entry.offset, entry.cell, entry.attempts, entry.ready_ms, entry.reason)
                self.strays.put(stray)
        window.advance()

    def _restore(self, run: CellRun) -> None:
        first = max(run.first, self.window.start)
        for old in list(self.window.runs(first, run.last)):
            self.window.move(old.first, old.last, old.cell, run.cell)
        if first <= run.last:
            self.window.set_attempts(first, run.last, run.attempts)

    def copying(self) -> list[DeadLetter]:
        """The copies that were not surely made."""
        strays = (stray for stray in self.strays if stray.cell == COPYING)
        return [DeadLetter(stray.offset, stray.attempts, stray.reason) for stray in strays]
