"""Which leader epoch begins at which offset: the memory that lets replicas find where their histories part.

Rules: pure; `PartitionLog` writes the content to `leader-epoch-checkpoint` before its recovery point moves.

Invariants: EPOCH-1 epochs strictly increase, start offsets never decrease; EPOCH-2 an entry stays although no record
carries its epoch: a leader that wrote nothing is part of the history (KAFKA-20961); EPOCH-3 truncated at the log's end,
the entries that start there go too, so that two replicas with conflicting empty epochs can agree again (KAFKA-10706);
EPOCH-4 apart from entries without records, the cache is what the batches in the log say.
Proved by: tests/unit/log/test_epoch_cache.py, tests/properties/test_log_model.py
"""

from bisect import bisect_right
from collections.abc import Iterable
from operator import itemgetter
from typing import NamedTuple

from martlet.base.ids import NO_LEADER_EPOCH, NO_OFFSET
from martlet.base.invariant import invariant
from martlet.log.batch_order import EPOCH_MAX


class EpochEntry(NamedTuple):
    """An epoch and the offset of the first record it may have."""

    epoch: int
    start_offset: int


class EpochEnd(NamedTuple):
    """The answer to "where does this epoch end?": the largest known epoch not above the asked one, and its end."""

    epoch: int
    end_offset: int


UNKNOWN_EPOCH_END = EpochEnd(NO_LEADER_EPOCH, NO_OFFSET)


class EpochCache:
    """The epochs of one log, oldest first."""

    __slots__ = ("changes", "entries", "latest_epoch", "saved_changes")

    def __init__(self, entries: Iterable[tuple[int, int]] = ()) -> None:
        self.entries = [EpochEntry(*entry) for entry in entries]
        self.latest_epoch: int = self.entries[-1].epoch if self.entries else NO_LEADER_EPOCH
        self.changes = self.saved_changes = 0

    @property
    def is_dirty(self) -> bool:
        """Whether the entries differ from those last written to disk."""
        return self.changes != self.saved_changes

    @property
    def epoch_max(self) -> int:
        """No batch has a later one. Without entries nothing is known: the log is empty, but for deleted records."""
        return self.latest_epoch if self.entries else EPOCH_MAX

    def assign(self, epoch: int, start_offset: int) -> bool:
        """Note that `epoch` begins at `start_offset`; entries that contradict it go. Whether anything changed."""
        invariant(epoch >= 0 and start_offset >= 0, "an epoch and its start are not negative")
        entries = self.entries
        if entries and entries[-1].epoch == epoch and entries[-1].start_offset <= start_offset:
            return False
        while entries and (entries[-1].epoch >= epoch or entries[-1].start_offset > start_offset):
            entries.pop()
        entries.append(EpochEntry(epoch, start_offset))
        self._changed()
        return True

    def end_offset_for(self, epoch: int, *, log_end_offset: int) -> EpochEnd:
        """Where `epoch` ends in a log that ends at `log_end_offset`; UNKNOWN_EPOCH_END when it is newer than all."""
        entries = self.entries
        if epoch < 0 or not entries or epoch > self.latest_epoch:
            return UNKNOWN_EPOCH_END
        if epoch == self.latest_epoch:
            return EpochEnd(epoch, log_end_offset)
        following = bisect_right(entries, epoch, key=itemgetter(0))
        if following == 0:
            # Older than anything kept: it ended where what is kept begins.
            return EpochEnd(epoch, entries[0].start_offset)
        return EpochEnd(entries[following - 1].epoch, entries[following].start_offset)

    def epoch_at(self, offset: int) -> int:
        """The epoch of the record at `offset`, -1 when it lies before all entries."""
        following = bisect_right(self.entries, offset, key=itemgetter(1))
        return self.entries[following - 1].epoch if following else NO_LEADER_EPOCH

    def truncate_from_end(self, end_offset: int) -> None:
        """Forget the epochs that start at or after `end_offset` (EPOCH-3)."""
        entries = self.entries
        before = len(entries)
        while entries and entries[-1].start_offset >= end_offset:
            entries.pop()
        if len(entries) != before:
            self._changed()

    def truncate_from_start(self, start_offset: int) -> None:
        """Forget what lies before `start_offset`; the epoch in force there now starts there."""
        entries = self.entries
        covering = bisect_right(entries, start_offset, key=itemgetter(1)) - 1
        if covering < 0 or (covering == 0 and entries[0].start_offset == start_offset):
            return
        if entries[covering].start_offset < start_offset:
            entries[covering] = EpochEntry(entries[covering].epoch, start_offset)
        # Of several that start there only the newest can have records, yet all are history (EPOCH-2).
        first = covering
        while first > 0 and entries[first - 1].start_offset == start_offset:
            first -= 1
        del entries[:first]
        self._changed()

    def clear(self) -> None:
        """Forget everything."""
        if self.entries:
            self.entries.clear()
            self._changed()

    def _changed(self) -> None:
        self.latest_epoch = self.entries[-1].epoch if self.entries else NO_LEADER_EPOCH
        self.changes += 1
