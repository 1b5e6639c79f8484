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

How it works: one byte a message, its level + 1, and 0 when it is taken. Each level has a cursor, and the next of a
level is a byte search from there: a million low messages that wait cost the high ones nothing.

Proved by: tests/unit/queues/test_priority.py, tests/properties/test_queue_priority.py
"""

from typing import Final

from martlet.base.invariant import invariant

LEVELS: Final = 10
DEFAULT_LEVEL: Final = 4
FAIR_EVERY: Final = 8
_KEPT_MAX: Final = 65_536
"""Bytes of messages taken long ago that are kept before the column is cut."""


class PriorityColumn:
    """The messages that wait, by offset and level; those behind the end have not been looked at yet."""

    __slots__ = ("_base", "_column", "_cursors", "_highest_served", "_levels", "_since_fair", "_waiting")

    def __init__(self, start: int) -> None:
        self._base = start
        self._column = bytearray()
        self._cursors = [0] * LEVELS
        """No message of the level waits before its cursor."""
        self._waiting = [0] * LEVELS
        self._levels = 0
        """A bit for every level of which a message waits."""
        self._since_fair = 0
        self._highest_served = 0

    def __len__(self) -> int:
        """How many messages wait."""
        return sum(self._waiting)

    @property
    def end(self) -> int:
        """The offset after the last message known here."""
        return self._base + len(self._column)

    def waiting(self) -> tuple[int, ...]:
        """How many messages wait, by level."""
        return tuple(self._waiting)

    def extend(self, levels: bytes) -> None:
        """The next messages, by their levels; LEVELS stands for one that is not to be handed out."""
        self._column += levels.translate(_TO_COLUMN)
        for level in range(LEVELS):
            self._add(level, levels.count(level))

    def take(self, limit: int, aged_before: int) -> list[int]:
        """Up to `limit` offsets in the order of the policy; those below `aged_before` have waited the age."""
        taken: list[int] = []
        column, waiting, cursors = self._column, self._waiting, self._cursors
        aged_before -= self._base
        while self._levels and len(taken) < limit:
            level = self._levels.bit_length() - 1
            at = fair = -1
            self._since_fair += 1
            if self._since_fair >= FAIR_EVERY and (overtaken := self._levels & (1 << self._highest_served) - 1):
                fair = min(self._head(lower) for lower in range(LEVELS) if overtaken >> lower & 1)
            if 0 <= fair < aged_before:
                at, level = fair, column[fair] - 1
                self._since_fair = self._highest_served = 0
            else:
                at = column.find(level + 1, cursors[level])
                cursors[level] = at
                if level > self._highest_served:
                    self._highest_served = level
            column[at] = 0
            waiting[level] -= 1
            if not waiting[level]:
                self._levels &= ~(1 << level)
            taken.append(self._base + at)
        return taken

    def give_back(self, offset: int, level: int) -> None:
        """A message that was taken waits again, in its old place among its level."""
        at = offset - self._base
        invariant(0 <= at < len(self._column) and self._column[at] == 0, "only a message that was taken comes back")
        self._column[at] = level + 1
        self._add(level, 1)
        self._cursors[level] = min(self._cursors[level], at)

    def remove(self, offset: int) -> bool:
        """Take this very message out of turn, because it expired or was cancelled; False when it does not wait."""
        at = offset - self._base
        if not 0 <= at < len(self._column) or self._column[at] == 0:
            return False
        self._add(self._column[at] - 1, -1)
        self._column[at] = 0
        return True

    def forget_before(self, offset: int) -> None:
        """Messages before this offset are finished and will not come back."""
        length = offset - self._base
        if length > _KEPT_MAX and 2 * length > len(self._column):
            invariant(not any(self._column[:length]), "only what does not wait is forgotten")
            del self._column[:length]
            self._base = offset
            self._cursors = [max(0, cursor - length) for cursor in self._cursors]

    def _head(self, level: int) -> int:
        """Where the oldest of a level is that has one."""
        at = self._column.find(level + 1, self._cursors[level])
        self._cursors[level] = at
        return at

    def _add(self, level: int, count: int) -> None:
        self._waiting[level] += count
        if self._waiting[level]:
            self._levels |= 1 << level
        else:
            self._levels &= ~(1 << level)


_TO_COLUMN: Final = bytes((*range(1, LEVELS + 1), *[0] * (256 - LEVELS)))


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
