"""One message of a key at a time, the keys beside each other: which messages wait behind another where order counts.

A key belongs to a message, not to a consumer. The first message of a key has its turn: it may be leased, is out, or
failed and is to be tried again. The later ones are parked behind it; other keys go on. When it is finished the next
has its turn. So the messages of a key are finished in their order, with any workers. Messages without a key have no
order and never come here.

Rules: how many may be parked is bounded; at the bound nothing new is taken in, and `busiest` says behind which key.
Nothing here is stored: after a change of leader it is filled again from the keys of the messages that are not finished.

Invariants:
QKO-1 Exactly one message of a busy key has its turn; the parked ones came after it.

Proved by: tests/unit/queues/test_key_order.py, tests/properties/test_queue_key_order.py
"""

from collections import deque
from typing import Final

PARKED_MAX: Final = 100_000

_NOTHING_PARKED: Final[deque[int]] = deque()
"""Shared by all busy keys with nothing behind them; never changed."""


class KeyOrder:
    """The keys of one subscription and partition that have an unfinished message."""

    __slots__ = ("_busy", "_key_of", "_parked", "_parked_max")

    def __init__(self, parked_max: int = PARKED_MAX) -> None:
        self._busy: dict[bytes, deque[int]] = {}
        """Behind every busy key the offsets that wait for it."""
        self._key_of: dict[int, bytes] = {}
        """Of the messages that have their turn."""
        self._parked: set[int] = set()
        """All that are parked; the queues may name others, which were finished before their turn came."""
        self._parked_max = parked_max

    @property
    def parked(self) -> int:
        """How many messages wait behind others."""
        return len(self._parked)

    @property
    def is_full(self) -> bool:
        """Whether nothing new is taken in until some of what is parked moves on."""
        return self.parked >= self._parked_max

    def is_busy(self, key: bytes) -> bool:
        return key in self._busy

    def enter(self, offset: int, key: bytes) -> bool:
        """A message of this key comes in: whether it has its turn at once; else it is parked."""
        parked = self._busy.get(key)
        if parked is None:
            self._busy[key] = _NOTHING_PARKED
            self._key_of[offset] = key
            return True
        if parked is _NOTHING_PARKED:
            self._busy[key] = parked = deque()
        parked.append(offset)
        self._parked.add(offset)
        return False

    def finished(self, offset: int) -> int | None:
        """A message is finished: the one whose turn has come by that, if any."""
        key = self._key_of.pop(offset, None)
        if key is None:
            self._parked.discard(offset)
            return None
        parked = self._busy[key]
        while parked:
            following = parked.popleft()
            if following in self._parked:
                self._parked.discard(following)
                self._key_of[following] = key
                return following
        del self._busy[key]
        return None

    def drop(self, offset: int) -> None:
        """If this message is parked, it is finished out of turn: it expired or was cancelled."""
        self._parked.discard(offset)

    def busiest(self) -> tuple[bytes, int] | None:
        """The key behind which most is parked, and how much."""
        if not self._parked:
            return None
        key = max(self._busy, key=lambda key: len(self._busy[key]))
        return key, len(self.waits_behind(key))

    def waits_behind(self, key: bytes) -> tuple[int, ...]:
        """What is parked behind a key, in order."""
        return tuple(offset for offset in self._busy.get(key, ()) if offset in self._parked)

    def is_parked(self, offset: int) -> bool:
        return offset in self._parked

    def turn_of(self, key: bytes) -> int | None:
        """The message of this key that has its turn; looked for among all of them, for people."""
        return next((offset for offset, of in self._key_of.items() if of == key), None)
