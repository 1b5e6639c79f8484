"""Where the oldest transaction of a log begins that is not decided, or decided only by a marker that is not committed.

Rules: pure; `ProducerStates` feeds it with the transactional batches and the markers of one log, in the log's order.
Readers of committed data see nothing from `first_unstable_offset` on: the last stable offset is the smaller of it and
the high watermark.

A marker that is appended may still be lost with its leader, so its transaction holds readers back until the owner says
that the marker is committed (`release_below`). A snapshot remembers only the open ones: it is read for a
start or a truncation, and what was decided before it is decided wherever the history goes on.

Invariants: LOG-70 `first_unstable_offset` never passes an open transaction's first offset; LOG-71 it is None exactly
when no transaction is open or held.
Proved by: tests/unit/log/test_open_transactions.py
"""

from collections import OrderedDict
from collections.abc import Iterable
from itertools import islice
from typing import NamedTuple


class Decided(NamedTuple):
    """A transaction that a marker has ended."""

    first_offset: int
    marker_offset: int
    next_unstable: int
    """Where the oldest transaction begins that was still open then, else the offset after the marker."""


class OpenTransactions:
    """At most one open transaction for each producer; read `first_unstable_offset`, which is always up to date."""

    __slots__ = ("_decided", "_open", "first_unstable_offset")

    def __init__(self) -> None:
        self._open: OrderedDict[int, int] = OrderedDict()
        """First offsets by producer id; the order of the log, which is that of their offsets."""
        self._decided: list[Decided] = []
        """Those whose marker is not known to be committed, in order of the markers."""
        self.first_unstable_offset: int | None = None

    def __len__(self) -> int:
        return len(self._open)

    def stable_below(self, high_watermark: int) -> int:
        """Up to which offset everything is committed and decided, the high watermark being this."""
        if self.first_unstable_offset is None:
            return high_watermark
        self.release_below(high_watermark)
        return min([high_watermark, *self._firsts()])

    def begin(self, producer_id: int, first_offset: int) -> None:
        """A producer without an open transaction has written the first batch of one."""
        self._open[producer_id] = first_offset
        if self.first_unstable_offset is None:
            self.first_unstable_offset = first_offset

    def decide(self, producer_id: int, marker_offset: int) -> Decided | None:
        """A marker ends the producer's transaction, if it has one; it is held until the marker is committed."""
        first_offset = self._open.pop(producer_id, None)
        if first_offset is None:
            return None
        decided = Decided(first_offset, marker_offset, next(iter(self._open.values()), marker_offset + 1))
        self._decided.append(decided)
        return decided

    def release_below(self, high_watermark: int) -> None:
        """Hold no longer what markers below the high watermark have decided."""
        decided = self._decided
        if decided and decided[0].marker_offset < high_watermark:
            self._decided = [held for held in decided if held.marker_offset >= high_watermark]
            self.first_unstable_offset = min(self._firsts(), default=None)

    def _firsts(self) -> list[int]:
        """Where the oldest open one and those held begin."""
        return [held.first_offset for held in self._decided] + list(islice(self._open.values(), 1))

    def restore(self, open_ones: Iterable[tuple[int, int]]) -> None:
        """Take over the open transactions of a snapshot, as producer ids with first offsets; nothing else is known."""
        self._open = OrderedDict(sorted(open_ones, key=lambda one: one[1]))
        self._decided = []
        self.first_unstable_offset = next(iter(self._open.values()), None)
