"""Which message is next where messages have a priority of 0 to 9: the highest first, and none waits for ever.

Policy: the highest level that has a message is served, its oldest message first. The highest level h served since the
last *fair* delivery is remembered. Once FAIR_EVERY deliveries have passed and the oldest message of the levels below h
has waited the subscription's age, that one is served: the fair delivery, and h starts over.

Invariant: QPR-1 let a message m of a level below 9 have waited the age, and let n older ones wait in the levels 0 to 8.
Then m is served within FAIR_EVERY · (n + 2) further deliveries, whatever arrives later. Proof: take FAIR_EVERY
deliveries that end with a fair one and lie wholly after that moment. If one of the others was of m's level, it was m or
older, because levels are served in order. If none was, all were of higher levels (a lower level is served only when m's
is empty), so h is above m's level, m qualifies, and the fair delivery took m or an older one. Either way the block
removes m or one of the n, and newcomers are never older. The first block may be cut by the moment itself: one more.

That h is the highest level *served*, and not the highest that *waits*, is what the proof needs: with the latter, an
endless level 0 and a level 9 absent only at each fair delivery starve every level between; a test plays that adversary.

How it works: one byte a message, its level + 1, with HELD when it is out or parked, and 0 when it is not to be handed
out. Each level has a cursor, and the next of a level is a byte search from there: a million low messages that wait cost
the high ones nothing. A message that has left the window (it was delayed, or failed) waits *apart*, in a heap of its
level, ordered by its rank: the end of the log when it became ready. The rank of the others is their offset. Among one
level the lower rank is the older, so the proof holds for both together.

Proved by: tests/unit/queues/test_priority.py, tests/properties/test_queue_priority.py
"""

from heapq import heappop, heappush
from typing import Final, NamedTuple

from martlet.base.invariant import invariant

LEVELS: Final = 10
DEFAULT_LEVEL: Final = 4
FAIR_EVERY: Final = 8
HELD: Final = 0x80
"""Added to a level: the message is known and not to be handed out now."""
_KEPT_MAX: Final = 65_536
"""Bytes of messages taken long ago that are kept before the column is cut."""


class _Taken(NamedTuple):
    """What `undo` needs."""

    offset: int
    since_fair: int
    highest_served: int


class PriorityColumn:
    """The messages that wait, by offset and level; those behind the end have not been looked at yet."""

    __slots__ = (
        "_apart",
        "_base",
        "_column",
        "_cursors",
        "_heaps",
        "_highest_served",
        "_levels",
        "_since_fair",
        "_taken",
        "_waiting",
    )

    def __init__(self, start: int) -> None:
        self._base = start
        self._column = bytearray()
        self._cursors = [0] * LEVELS
        """No message of the level waits in the column before its cursor."""
        self._waiting = [0] * LEVELS
        self._levels = 0
        """A bit for every level of which a message waits."""
        self._apart: dict[int, tuple[int, int, bool]] = {}
        """Rank, level, and whether it waits, of every message that is not in the column."""
        self._heaps: list[list[tuple[int, int]]] = [[] for _ in range(LEVELS)]
        """(rank, offset) of those that wait apart, and of some that no longer do."""
        self._since_fair = 0
        self._highest_served = 0
        self._taken: _Taken | None = None

    def __len__(self) -> int:
        """How many messages wait."""
        return sum(self._waiting)

    @property
    def end(self) -> int:
        """The offset after the last message of the column."""
        return self._base + len(self._column)

    def waiting(self) -> tuple[int, ...]:
        """How many messages wait, by level."""
        return tuple(self._waiting)

    def knows(self, offset: int) -> bool:
        """Whether this message has a level here."""
        at = offset - self._base
        return offset in self._apart or (0 <= at < len(self._column) and self._column[at] != 0)

    def is_apart(self, offset: int) -> bool:
        return offset in self._apart

    # --- coming in

    def extend(self, levels: bytes) -> None:
        """The next messages, by their levels, with HELD where not now; LEVELS stands for one never to be handed out."""
        self._column += levels.translate(_TO_COLUMN)
        for level in range(LEVELS):
            if count := levels.count(level):
                self._add(level, count)

    def set_apart(self, offset: int, rank: int, level: int) -> None:
        """A message with a rank of its own, which does not wait yet."""
        self._apart[offset] = (rank, level, False)

    def move_apart(self, offset: int) -> None:
        """A message of the column that was taken goes on apart, in its old place: the column may be cut behind it."""
        at = offset - self._base
        invariant(self._column[at] > HELD, "only a message that was taken moves apart")
        self._apart[offset] = (offset, self._column[at] - HELD - 1, False)
        self._column[at] = 0

    def give_back(self, offset: int) -> None:
        """A message that is known waits (again), in its place among its level."""
        if offset in self._apart:
            rank, level, waits = self._apart[offset]
            invariant(not waits, "a message waits once")
            self._apart[offset] = (rank, level, True)
            heappush(self._heaps[level], (rank, offset))
        else:
            at = offset - self._base
            held = self._column[at] if 0 <= at < len(self._column) else 0
            invariant(held > HELD, "only a message that was taken comes back")
            self._column[at] = held - HELD
            level = held - HELD - 1
            self._cursors[level] = min(self._cursors[level], at)
        self._add(level, 1)

    # --- going out

    def next(self, aged_before: int) -> int | None:
        """Hand out the next one of the policy; those of a rank below `aged_before` have waited the age."""
        if not self._levels:
            return None
        level = self._levels.bit_length() - 1
        before = self._since_fair, self._highest_served
        self._since_fair += 1
        fair: tuple[int, int] | None = None
        if self._since_fair >= FAIR_EVERY and (overtaken := self._levels & (1 << self._highest_served) - 1):
            heads = [(self._head(lower), lower) for lower in range(LEVELS) if overtaken >> lower & 1]
            oldest, lower = min(heads)
            if oldest[0] < aged_before:
                fair, level = oldest, lower
        if fair is not None:
            offset = fair[1]
            self._since_fair = self._highest_served = 0
        else:
            offset = self._head(level)[1]
            self._highest_served = max(self._highest_served, level)
        self._hold(offset, level)
        self._taken = _Taken(offset, *before)
        return offset

    def undo(self) -> None:
        """The last one was not handed out after all: everything is as it was before that."""
        invariant(self._taken is not None, "the last one is put back once")
        if self._taken is not None:
            offset, self._since_fair, self._highest_served = self._taken
            self._taken = None
            self.give_back(offset)

    def take(self, limit: int, aged_before: int) -> list[int]:
        """Up to `limit` offsets in the order of the policy."""
        taken: list[int] = []
        while len(taken) < limit and (offset := self.next(aged_before)) is not None:
            taken.append(offset)
        return taken

    def remove(self, offset: int) -> bool:
        """Take this very message out of turn, because it expired or was cancelled; False when it does not wait."""
        if offset in self._apart:
            _, level, waits = self._apart[offset]
            if not waits:
                return False
        else:
            at = offset - self._base
            if not 0 <= at < len(self._column) or not 0 < self._column[at] < HELD:
                return False
            level = self._column[at] - 1
        self._hold(offset, level)
        return True

    def forget(self, offset: int) -> None:
        """A message apart is finished."""
        self.remove(offset)
        self._apart.pop(offset, None)

    def forget_before(self, offset: int) -> None:
        """Messages of the column before this offset are finished, or apart, and will not come back."""
        length = min(offset - self._base, len(self._column))
        if length > _KEPT_MAX and 2 * length > len(self._column):
            invariant(not self._column[:length].translate(None, _NOT_WAITING), "only what does not wait is forgotten")
            del self._column[:length]
            self._base += length
            self._cursors = [max(0, cursor - length) for cursor in self._cursors]

    def _hold(self, offset: int, level: int) -> None:
        if offset in self._apart:
            self._apart[offset] = (self._apart[offset][0], level, False)
        else:
            self._column[offset - self._base] = HELD + level + 1
        self._add(level, -1)

    def _head(self, level: int) -> tuple[int, int]:
        """Rank and offset of the oldest of a level that has one."""
        heap = self._heaps[level]
        while heap and self._apart.get(heap[0][1]) != (heap[0][0], level, True):
            heappop(heap)
        at = self._column.find(level + 1, self._cursors[level])
        if at < 0:
            self._cursors[level] = len(self._column)
            return heap[0]
        self._cursors[level] = at
        here = (self._base + at, self._base + at)
        return min(here, heap[0]) if heap else here

    def _add(self, level: int, count: int) -> None:
        self._waiting[level] += count
        if self._waiting[level]:
            self._levels |= 1 << level
        else:
            self._levels &= ~(1 << level)


def _column_byte(value: int) -> int:
    return value + 1 if value & ~HELD < LEVELS else 0


_TO_COLUMN: Final = bytes(_column_byte(value) for value in range(256))
_NOT_WAITING: Final = bytes((0, *range(HELD, 256)))


class AgeLadder:
    """Which offsets have waited a given time, told from where the end was when: one step a second at most."""

    __slots__ = ("_age_ms", "_aged_before", "_steps")

    STEP_MS: Final = 1_000

    def __init__(self, age_ms: int, start: int) -> None:
        self._age_ms = age_ms
        self._aged_before = start
        self._steps: list[tuple[int, int]] = []
        """(time, end of the log then), ascending."""

    def saw(self, end: int, now_ms: int) -> None:
        """Everything below `end` is there now."""
        if not self._steps or now_ms >= self._steps[-1][0] + self.STEP_MS:
            self._steps.append((now_ms, end))

    def aged_before(self, now_ms: int) -> int:
        """Offsets below this one have surely waited the age."""
        passed = 0
        for at_ms, end in self._steps:
            if at_ms > now_ms - self._age_ms:
                break
            self._aged_before = max(self._aged_before, end)
            passed += 1
        del self._steps[:passed]
        return self._aged_before
