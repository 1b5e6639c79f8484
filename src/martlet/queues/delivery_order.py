"""Which waiting message of a subscription is leased next, where its messages have keys, levels, or an end.

How it works: window and strays say of every change of a state what it is (`moved`, `stray_moved`, `stray_gone`), and
what waits, has its turn, or is parked follows from that: there is no second bookkeeping of states that could drift. A
message gets its level, key and end when it is looked at (`entered`); a stray that waits and was not looked at yet is
`unseen`.

Rules: a message waits in the priority column if it waits in the window or as a stray, and its key, if order counts, has
no other message before it. The turn passes on when the end of a message is committed, not when it is asked for.

Invariants:
QDO-1 What the column hands out waits in the window or is a stray that waits; each of them is in the column, parked, or
not looked at yet.

Proved by: tests/unit/queues/test_frontier.py, tests/properties/test_queue_features.py
"""

from collections.abc import Callable
from heapq import heapify, heappop, heappush
from typing import Final

from martlet.queues.cells import BACKING_OFF, CLOSING, COPYING, FINISHED, WAITING, Cell
from martlet.queues.key_order import KeyOrder
from martlet.queues.priority import HELD, AgeLadder, PriorityColumn
from martlet.queues.strays import Stray

_STALE_MAX: Final = 1_000
"""Entries of finished messages that the heap of ends may hold before it is made again."""


class Ends:
    """When messages expire that are not finished."""

    __slots__ = ("_at", "_heap")

    def __init__(self) -> None:
        self._at: dict[int, int] = {}
        self._heap: list[tuple[int, int]] = []

    def __len__(self) -> int:
        return len(self._at)

    def put(self, offset: int, at_ms: int) -> None:
        self._at[offset] = at_ms
        heappush(self._heap, (at_ms, offset))

    def forget(self, offset: int) -> None:
        if self._at.pop(offset, None) is not None and len(self._heap) > 2 * len(self._at) + _STALE_MAX:
            self._heap = [(at_ms, offset) for offset, at_ms in self._at.items()]
            heapify(self._heap)

    def next_ms(self) -> int | None:
        heap = self._heap
        while heap and self._at.get(heap[0][1]) != heap[0][0]:
            heappop(heap)
        return heap[0][0] if heap else None

    def pop(self, now_ms: int) -> int | None:
        """A message whose end has come; each is told once."""
        at_ms = self.next_ms()
        if at_ms is None or at_ms > now_ms:
            return None
        return heappop(self._heap)[1]

    def is_over(self, offset: int, now_ms: int) -> bool:
        return self._at.get(offset, now_ms + 1) <= now_ms


class DeliveryOrder:
    """What waits, in the order in which it is handed out."""

    __slots__ = ("_age", "_waits", "column", "ends", "keys", "overdue", "unseen")

    def __init__(self, start: int, age_ms: int, keys: KeyOrder | None, waits: Callable[[int], bool]) -> None:
        self._waits = waits
        """Whether a message is in the state to be leased."""
        self.column = PriorityColumn(start)
        self.keys = keys
        self.ends = Ends()
        self.overdue: set[int] = set()
        """Messages that are out although their end has come; they expire when they come back."""
        self.unseen: list[int] = []
        """Strays that wait and were not looked at, as a heap of offsets, and some that no longer do."""
        self._age = AgeLadder(age_ms, start)

    def __len__(self) -> int:
        """How many messages can be handed out now."""
        return len(self.column)

    # --- what is handed out

    def saw_end(self, end: int, now_ms: int) -> None:
        """The deliverable messages end here now."""
        self._age.saw(end, now_ms)

    def next(self, now_ms: int) -> int | None:
        return self.column.next(self._age.aged_before(now_ms))

    # --- what comes in

    def level_of_new(self, offset: int, level: int, key: bytes | None) -> int:
        """What the column gets for a new message of the window: its level, HELD when it is parked."""
        if self.keys is None or key is None or self.keys.enter(offset, key):
            return level
        return HELD | level

    def stray_entered(self, stray: Stray, rank: int, level: int, key: bytes | None) -> None:
        """A stray was looked at."""
        self.column.set_apart(stray.offset, rank, level)
        has_turn = self.keys is None or key is None or self.keys.enter(stray.offset, key)
        if has_turn and stray.cell == WAITING:
            self.column.give_back(stray.offset)

    # --- what the states say

    def moved(self, first: int, last: int, old: Cell, new: Cell) -> None:
        """These messages of the window were in state `old` and are in state `new`."""
        if new == WAITING:
            for offset in range(first, last + 1):
                if self.column.knows(offset) and not (self.keys is not None and self.keys.is_parked(offset)):
                    self.column.give_back(offset)
            return
        if old == WAITING:
            for offset in range(first, last + 1):
                self._withdraw(offset)
        if new in FINISHED:
            for offset in range(first, last + 1):
                self._finished(offset)

    def stray_moved(self, stray: Stray, cell: Cell) -> None:
        """A stray is in this state now."""
        offset = stray.offset
        if cell == WAITING:
            if not self.column.is_apart(offset):
                heappush(self.unseen, offset)
            elif self.keys is None or not self.keys.is_parked(offset):
                self.column.give_back(offset)
        elif cell == BACKING_OFF:
            if not self.column.is_apart(offset) and self.column.knows(offset):
                self.column.move_apart(offset)
        elif cell == COPYING:
            self._finished(offset)
        elif cell >= CLOSING:
            self._withdraw(offset)

    def stray_gone(self, offset: int) -> None:
        self._finished(offset)

    def _withdraw(self, offset: int) -> None:
        """It waits no more, and was not handed out."""
        if not self.column.remove(offset) and self.keys is not None:
            self.keys.drop(offset)

    def _finished(self, offset: int) -> None:
        self.ends.forget(offset)
        self.overdue.discard(offset)
        if self.column.is_apart(offset):
            self.column.forget(offset)
        following = None if self.keys is None else self.keys.finished(offset)
        if following is not None and self._waits(following):
            self.column.give_back(following)
