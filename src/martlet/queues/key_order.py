"""One message of a key at a time, the keys beside each other: which messages may be leased where order counts.

A key belongs to a message, not to a consumer. While a message of a key is out, or failed and to be tried again, the
later ones of that key are parked behind it; other keys go on. When it is finished the next one is ready; ready ones go
before new ones. So the messages of a key are finished in their order, with any worker. Messages without a key
have no order.

Rules: how many may be parked is bounded; at the bound nothing new is taken in, and `busiest` says behind which key.
Nothing here is stored: after a change of leader it is filled again from the keys of the window.

Invariants:
QKO-1 At most one message of a key is out or ready; the parked ones of the key come after it in the log.

Proved by: tests/unit/queues/test_key_order.py, tests/properties/test_queue_key_order.py
"""

from collections import deque
from collections.abc import Sequence
from heapq import heappop, heappush
from typing import Final

from martlet.base.invariant import invariant

PARKED_MAX: Final = 100_000

_NOTHING_PARKED: Final[deque[int]] = deque()
"""Shared by all busy keys with nothing behind them; never changed."""


class KeyOrder:
    """The keys of one subscription and partition that have a message out, ready or parked."""

    __slots__ = ("_busy", "_key_of", "_parked_max", "_ready", "parked")

    def __init__(self, parked_max: int = PARKED_MAX) -> None:
        self._busy: dict[bytes, deque[int]] = {}
        """Behind every busy key the offsets that wait for it."""
        self._key_of: dict[int, bytes] = {}
        """Of the messages that are out."""
        self._ready: list[tuple[int, bytes]] = []
        self._parked_max = parked_max
        self.parked = 0

    @property
    def has_ready(self) -> bool:
        return bool(self._ready)

    @property
    def is_full(self) -> bool:
        """Whether nothing new is taken in until some of what is parked moves on."""
        return self.parked >= self._parked_max

    def take_ready(self, limit: int) -> list[int]:
        """Up to `limit` messages whose turn has come, the oldest first; they are out now."""
        taken: list[int] = []
        while self._ready and len(taken) < limit:
            offset, key = heappop(self._ready)
            self._key_of[offset] = key
            taken.append(offset)
        return taken

    def take_new(self, first: int, keys: Sequence[bytes | None], limit: int) -> tuple[list[int], int]:
        """Up to `limit` of the messages from `first` on, given by their keys; and how many were looked at."""
        taken: list[int] = []
        for at, key in enumerate(keys):
            if len(taken) == limit or (self.is_full and key in self._busy):
                return taken, at
            if key is None:
                taken.append(first + at)
                continue
            parked = self._busy.get(key)
            if parked is None:
                self._busy[key] = _NOTHING_PARKED
                self._key_of[first + at] = key
                taken.append(first + at)
                continue
            if parked is _NOTHING_PARKED:
                self._busy[key] = parked = deque()
            parked.append(first + at)
            self.parked += 1
        return taken, len(keys)

    def finished(self, offset: int) -> None:
        """A message that was out is acknowledged, rejected or dead: the next one of its key is ready."""
        key = self._key_of.pop(offset, None)
        if key is None:
            return
        parked = self._busy[key]
        if not parked:
            del self._busy[key]
            return
        self.parked -= 1
        heappush(self._ready, (parked.popleft(), key))

    def released(self, offset: int) -> bool:
        """A message that was out is to be tried again: it is ready and its key stays busy. False without a key."""
        key = self._key_of.pop(offset, None)
        if key is None:
            return False
        heappush(self._ready, (offset, key))
        return True

    def restore(self, offset: int, key: bytes) -> None:
        """While loading, in the order of offsets: this message waits and is not finished."""
        invariant(not self._key_of, "nothing is out while a subscription is loaded")
        parked = self._busy.get(key)
        if parked is None:
            self._busy[key] = _NOTHING_PARKED
            heappush(self._ready, (offset, key))
            return
        if parked is _NOTHING_PARKED:
            self._busy[key] = parked = deque()
        parked.append(offset)
        self.parked += 1

    def busiest(self) -> tuple[bytes, int] | None:
        """The key behind which most is parked, and how much."""
        if not self.parked:
            return None
        key = max(self._busy, key=lambda key: len(self._busy[key]))
        return key, len(self._busy[key])

    def waits_behind(self, key: bytes) -> tuple[int, ...]:
        """What is parked behind a key, in order."""
        return tuple(self._busy.get(key, ()))
