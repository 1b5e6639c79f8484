"""Where a subscription meets its messages: each is looked at once, and then waits, is parked, scheduled, or finished.

How it works: the shell asks which offsets are to be looked at (`wanted`), reads them, and says what it saw
(`take_seen`); the frontier moves over them. A message that is due later is marked as moved aside, so the start passes
it; the delay index of the partition keeps it, and `release_due` makes a stray of it when its time has come. How far
that went is stored with every record, together with the frontier: so every delayed message is either before the stored
frontier and handed over by the index, or met again, and never both. After loading, the messages that wait are looked at
again before anything is handed out.

Rules: a delayed message that the frontier meets belongs to the index if it lies after what was released, whatever the
clock says; else it is due, unless the clock went back, when it becomes a stray that waits for its time.

Invariants:
QFR-1 A message is handed over by the index at most once, and not before its due time.
QFR-2 What the filter leaves out, and what has expired, never waits, and never holds the start.

Proved by: tests/unit/queues/test_frontier.py, tests/properties/test_queue_features.py
"""

from collections.abc import Sequence
from heapq import heappop
from typing import Final

from martlet.base.errors import ApiError, ErrorCode
from martlet.base.invariant import invariant
from martlet.queues.cells import (
    BACKING_OFF,
    CANCELLED,
    CLOSING,
    EXPIRED,
    FILTERED,
    GAP,
    LEASED,
    NAMES,
    STRAY,
    WAITING,
    Cell,
)
from martlet.queues.delivery_order import DeliveryOrder
from martlet.queues.features import Features, Seen
from martlet.queues.key_order import KeyOrder
from martlet.queues.ledger import Ledger
from martlet.queues.priority import DEFAULT_LEVEL, HELD, LEVELS
from martlet.queues.releases import Releases
from martlet.queues.strays import Stray

_EXPIRED_AT_ONCE: Final = 1_000


class Frontier:
    """Of one engine whose subscription has features; `order` says what is leased next."""

    def __init__(self, ledger: Ledger, features: Features) -> None:
        self.features = features
        self._ledger = ledger
        self._again: list[tuple[int, int]] = []
        """What is to be looked at again after loading, ascending."""
        self.releases = Releases(ledger, features.schedule)
        self.order = self._new_order()

    def _new_order(self) -> DeliveryOrder:
        features = self.features
        keys = KeyOrder(features.parked_max) if features.has_key_order else None
        order = DeliveryOrder(self._ledger.window.start, features.age_ms, keys, self._waits)
        self._ledger.watch_with(order)
        return order

    def _waits(self, offset: int) -> bool:
        return self._cell(offset) == WAITING

    def _cell(self, offset: int) -> Cell:
        """The state of a message; of one outside of window and strays, that of none."""
        stray, window = self._ledger.strays.get(offset), self._ledger.window
        if stray is not None:
            return stray.cell
        return window.cell(offset) if window.start <= offset < window.frontier else GAP

    def begin(self) -> None:
        """The window is empty, at another offset."""
        self._again = []
        self.order = self._new_order()

    def begin_loaded(self) -> None:
        """The state was loaded: what waits is to be looked at again."""
        self.order = self._new_order()
        window, strays = self._ledger.window, self._ledger.strays
        again = [(stray.offset, stray.offset + 1) for stray in strays if stray.offset < window.start]
        if window.frontier > window.start:
            again.append((window.start, window.frontier))
        self._again = sorted(again)
        cancelled, released = self._ledger.changes.cancelled, self.releases.upto
        for offset, due_ms in list(cancelled.items()):
            if offset < window.frontier and (due_ms, offset) <= released:
                del cancelled[offset]

    @property
    def is_ready(self) -> bool:
        """Whether all that was loaded has been looked at."""
        return not self._again

    # --- looking

    def wanted(self, limit: int, end: int, window_max: int, strays_max: int) -> tuple[int, int] | None:
        """From which offset to before which the shell should look next; None when there is nothing or no room."""
        if self._again:
            first, stop = self._again[0]
            return first, min(stop, first + limit)
        order, window = self.order, self._ledger.window
        while order.unseen:
            offset = order.unseen[0]
            if self._is_unseen(offset):
                end = offset + 1
                while end - offset < limit and self._is_unseen(end):
                    end += 1
                return offset, end
            heappop(order.unseen)
        if self._is_full(strays_max) or (not self.features.has_priority and len(order) >= limit):
            return None
        length = min(limit, end - window.frontier, window_max - len(window))
        return (window.frontier, window.frontier + length) if length > 0 else None

    def _is_full(self, strays_max: int) -> bool:
        keys = self.order.keys
        return len(self._ledger.strays) >= strays_max or (keys is not None and keys.is_full)

    def _is_unseen(self, offset: int) -> bool:
        stray = self._ledger.strays.get(offset)
        return stray is not None and stray.cell == WAITING and not self.order.column.is_apart(offset)

    def take_seen(self, first: int, end: int, seen: Sequence[Seen], now_ms: int, engine_end: int) -> int:
        """What is at the offsets that were wanted, ascending; the rest holds no message. Returns how far."""
        window = self._ledger.window
        if self._again:
            again_first, again_end = self._again[0]
            invariant(again_first == first and end <= again_end, "what is taken was wanted")
            self._look_again(first, end, seen, rank_of_strays=None)
            self._again[0:1] = [(end, again_end)] if end < again_end else []
            self.expire(now_ms)
            return end
        if first < window.frontier:
            self._look_again(first, end, seen, rank_of_strays=engine_end)
            self.expire(now_ms)
            return end
        invariant(first == window.frontier and end <= engine_end, "the frontier moves over what was looked at")
        return self._meet(first, end, seen, now_ms)

    # --- what the frontier meets

    def _meet(self, first: int, end: int, seen: Sequence[Seen], now_ms: int) -> int:
        self.releases.set_out(now_ms)
        cells, levels = bytearray(), bytearray()
        later: list[Stray] = []
        for message in seen:
            gap = message.offset - first - len(cells)
            cells += bytes((GAP,)) * gap
            levels += bytes((LEVELS,)) * gap
            cell = self._cell_of(message, now_ms)
            level = LEVELS
            if cell == WAITING:
                keys = self.order.keys
                if keys is not None and keys.is_full and message.key is not None and keys.is_busy(message.key):
                    end = message.offset
                    break
                level = self._level(message)
            elif cell == BACKING_OFF:
                later.append(Stray(message.offset, BACKING_OFF, 0, message.due_ms))
                cell = STRAY
            cells.append(cell)
            levels.append(level)
        gap = end - first - len(cells)
        cells += bytes((GAP,)) * gap
        levels += bytes((LEVELS,)) * gap
        self.order.column.extend(bytes(levels))
        self._open(bytes(cells))
        for stray in later:
            self._ledger.strays.put(stray)
            self._ledger.changes.note_stray(stray.offset)
        self._ledger.window.advance()
        return end

    def _open(self, cells: bytes) -> None:
        window, at = self._ledger.window, 0
        while at < len(cells):
            length = len(cells) - at - len(cells[at:].lstrip(cells[at : at + 1]))
            first = window.open(length, cells[at])
            if cells[at] != WAITING:
                self._ledger.changes.note(first, first + length - 1)
            at += length

    def _cell_of(self, message: Seen, now_ms: int) -> Cell:
        entry = (message.due_ms, message.offset)
        is_scheduled = message.due_ms > 0 and self.features.schedule is not None and entry > self.releases.upto
        cancelled = self._ledger.changes.cancelled
        if message.offset in cancelled:
            if not is_scheduled:
                del cancelled[message.offset]
            return CANCELLED
        if is_scheduled:
            return STRAY  # whatever else is to be said of it is said when it is due
        if not message.is_wanted:
            return FILTERED
        if 0 < message.expires_ms <= now_ms:
            return CLOSING + EXPIRED
        if message.due_ms > now_ms and self.features.schedule is not None:
            return BACKING_OFF
        return WAITING

    def _level(self, message: Seen) -> int:
        """What the column gets for a message that waits; its key and its end are noted."""
        if message.expires_ms:
            self.order.ends.put(message.offset, message.expires_ms)
        return self.order.level_of_new(message.offset, self._priority(message), message.key)

    def _priority(self, message: Seen) -> int:
        return message.priority if self.features.has_priority else DEFAULT_LEVEL

    def _look_again(self, first: int, end: int, seen: Sequence[Seen], rank_of_strays: int | None) -> None:
        """Messages before the frontier; `rank_of_strays` is that of those that became ready just now."""
        window, strays, order = self._ledger.window, self._ledger.strays, self.order
        at = first
        for message in (*seen, None):
            offset = end if message is None else message.offset
            for missing in range(at, offset):
                self._is_gone(missing)
            if message is None:
                break
            at = offset + 1
            stray = strays.get(offset)
            is_of_column = offset == order.column.end
            if stray is not None:
                self._stray_seen(stray, message, rank_of_strays)
            if is_of_column:
                cell = GAP if stray is not None or offset < window.start else window.cell(offset)
                level = LEVELS
                if cell == WAITING:
                    level = self._level(message)
                elif cell == LEASED or cell >= CLOSING:
                    level = HELD | self._level(message)
                order.column.extend(bytes((level,)))

    def _stray_seen(self, stray: Stray, message: Seen, rank: int | None) -> None:
        if stray.cell not in (WAITING, BACKING_OFF) or self.order.column.is_apart(stray.offset):
            return
        if stray.cell == BACKING_OFF and stray.attempts == 0:
            return  # it was delayed, and takes part in nothing before it is due
        if not message.is_wanted and stray.attempts == 0:
            self._end(stray.offset, FILTERED)
            return
        if message.expires_ms:
            self.order.ends.put(stray.offset, message.expires_ms)
        if rank is None or stray.attempts > 0:
            rank = stray.offset
        self.order.stray_entered(stray, rank, self._priority(message), message.key)

    def _is_gone(self, offset: int) -> None:
        """No message is there any more: compaction took it."""
        ledger = self._ledger
        window, stray = ledger.window, ledger.strays.get(offset)
        if offset == self.order.column.end:
            self.order.column.extend(bytes((LEVELS,)))
        if stray is not None and stray.cell in (WAITING, BACKING_OFF):
            ledger.strays.set_cell(stray, CLOSING + GAP)
            ledger.strays.remove(offset)
            ledger.changes.note_stray(offset)
        elif stray is None and offset >= window.start and window.cell(offset) == WAITING:
            window.move(offset, offset, WAITING, GAP)
            ledger.changes.note(offset, offset)
            window.advance()

    def next_due_ms(self, strays_max: int) -> int | None:
        """When something is due or expires; None also while what is due has no room."""
        due = (self.order.ends.next_ms(), self.releases.next_due_ms(strays_max))
        return min((at_ms for at_ms in due if at_ms is not None), default=None)

    # --- what ends

    def expire(self, now_ms: int) -> bool:
        """End what has expired and is not out; whether there is more of it."""
        order = self.order
        for offset in [offset for offset in order.overdue if self._expire(offset)]:
            order.overdue.discard(offset)
        for _ in range(_EXPIRED_AT_ONCE):
            ended = order.ends.pop(now_ms)
            if ended is None:
                return False
            if not self._expire(ended):
                order.overdue.add(ended)
        return True

    def _expire(self, offset: int) -> bool:
        """Whether nothing is left to do for it; a message that is out ends when it comes back."""
        return self._end(offset, EXPIRED) or not self._is_out(offset)

    def _is_out(self, offset: int) -> bool:
        cell = self._cell(offset)
        return cell == LEASED or cell >= CLOSING  # which may come back when it cannot be stored

    def _end(self, offset: int, cell: Cell) -> bool:
        """Finish a message that waits in this way; False when it does not wait."""
        ledger = self._ledger
        window, stray = ledger.window, ledger.strays.get(offset)
        if stray is not None:
            if stray.cell not in (WAITING, BACKING_OFF):
                return False
            ledger.strays.set_cell(stray, CLOSING + cell)
            ledger.changes.note_stray(offset)
            return True
        if not window.start <= offset < window.frontier or window.cell(offset) != WAITING:
            return False
        window.move(offset, offset, WAITING, CLOSING + cell)
        ledger.changes.note(offset, offset)
        return True

    def cancel(self, offset: int, due_ms: int) -> None:
        """This message is not to be delivered; `due_ms` is 0 for one that is not delayed.

        ApiError when it was handed out already or is finished.
        """
        ledger, released = self._ledger, self._ledger.changes.released
        window = ledger.window
        if self._end(offset, CANCELLED):
            return
        begin = 0 if released is None else released.begin
        is_scheduled = (due_ms, offset) > self.releases.upto and self.releases.is_scheduled(offset, begin)
        if offset in ledger.changes.cancelled:
            return
        if offset >= window.frontier or is_scheduled:
            ledger.changes.cancelled[offset] = max(1, due_ms)
            ledger.changes.note_stray(offset)
            return
        stray = ledger.strays.get(offset)
        cell = stray.cell if stray is not None else window.cell(offset) if offset >= window.start else STRAY
        name = "finished" if cell == STRAY else NAMES.get(cell % CLOSING, "unknown")
        raise ApiError(ErrorCode.INVALID_RECORD_STATE, f"the message at offset {offset} cannot be cancelled: {name}")
