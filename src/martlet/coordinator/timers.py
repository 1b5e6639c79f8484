"""Keyed timers as data: which ones there are and which are due; the time itself comes in from outside.

How it works: a dictionary holds the instant of each key, a heap the order. Moving a timer later, as every heartbeat
does, touches the dictionary only: the heap's entry is found too early when its turn comes, and put back where it
belongs. So a heartbeat costs the same in a group of one and of a thousand.

Invariant TIMER-1: every key in the dictionary has an entry in the heap that is not later than its instant.
"""

from collections.abc import Iterable
from heapq import heapify, heappop, heappush

from martlet.coordinator.result import CancelTimer, SetTimer, TimerKey

_STALE_ENTRIES_MAX = 1_000
"""The heap is rebuilt when it holds this many entries more than there are timers, and twice as many."""


class TimerQueue:
    """The timers of one machine, in milliseconds of a clock that never goes back."""

    __slots__ = ("_due_at_ms", "_heap")

    def __init__(self) -> None:
        self._due_at_ms: dict[TimerKey, int] = {}
        self._heap: list[tuple[int, TimerKey]] = []

    def __len__(self) -> int:
        return len(self._due_at_ms)

    def __contains__(self, key: TimerKey) -> bool:
        return key in self._due_at_ms

    def apply(self, changes: Iterable[SetTimer | CancelTimer], now_ms: int) -> None:
        """Set and forget timers as a machine asked for."""
        for change in changes:
            if isinstance(change, SetTimer):
                self.set(change.key, now_ms + max(0, change.delay_ms))
            else:
                self._due_at_ms.pop(change.key, None)

    def set(self, key: TimerKey, at_ms: int) -> None:
        """Have this timer run out at this instant and no other."""
        known_at_ms = self._due_at_ms.get(key)
        self._due_at_ms[key] = at_ms
        if known_at_ms is None or at_ms < known_at_ms:
            heappush(self._heap, (at_ms, key))
            stale = len(self._heap) - len(self._due_at_ms)
            if stale > max(_STALE_ENTRIES_MAX, len(self._due_at_ms)):
                self._heap = [(at_ms, key) for key, at_ms in self._due_at_ms.items()]
                heapify(self._heap)

    def next_at_ms(self) -> int | None:
        """When the next timer runs out; None without any."""
        heap = self._heap
        while heap:
            at_ms, key = heap[0]
            due_at_ms = self._due_at_ms.get(key)
            if due_at_ms == at_ms:
                return at_ms
            heappop(heap)
            if due_at_ms is not None and due_at_ms > at_ms:
                heappush(heap, (due_at_ms, key))
        return None

    def pop_due(self, now_ms: int) -> TimerKey | None:
        """Take out the next timer that has run out; None when there is none."""
        at_ms = self.next_at_ms()
        if at_ms is None or at_ms > now_ms:
            return None
        _, key = heappop(self._heap)
        del self._due_at_ms[key]
        return key
