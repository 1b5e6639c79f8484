"""How far the log of one replica counts, is committed and is stable, and the callbacks that wait for each.

The *own offset* is how far this replica counts by itself: the flushed offset under the flush mode `commit`, else the
end offset. The high watermark is what the leader's rules call committed; the log keeps it, only this class moves it.
The last stable offset is the high watermark or, below it, where the oldest transaction begins that is not decided.

Invariants: PAR-1 the high watermark never passes the end offset and goes back only when committed data is lost, which
is logged loudly; PAR-3 a waiter is called once.
Proved by: tests/unit/broker/partitions/test_watermarks.py, tests/unit/broker/partitions/test_last_stable_offset.py
"""

from collections import deque
from collections.abc import Callable
from typing import Final, TypeAlias

from martlet.base.invariant import invariant
from martlet.broker.partitions.flush_policy import FlushState
from martlet.log.partition_log import PartitionLog

READ_UNCOMMITTED: Final = 0
READ_COMMITTED: Final = 1
"""Isolation levels as requests name them; one that is not known is served like READ_COMMITTED."""

Callback: TypeAlias = Callable[[], None]


class ChangeWaiters:
    """Callbacks that are called at every change, until they are removed."""

    __slots__ = ("_callbacks",)

    def __init__(self) -> None:
        self._callbacks: dict[Callback, None] = {}

    def add(self, callback: Callback) -> None:
        self._callbacks[callback] = None

    def remove(self, callback: Callback) -> None:
        self._callbacks.pop(callback, None)

    def wake(self) -> None:
        for callback in tuple(self._callbacks):
            callback()


class OffsetWaiters:
    """Callbacks that wait for an offset to be reached; added with offsets that do not fall, called in their order."""

    __slots__ = ("_waiting",)

    def __init__(self) -> None:
        self._waiting: deque[tuple[int, Callback, bool]] = deque()

    def add(self, offset: int, callback: Callback, *, gives_up: bool = False) -> None:
        self._waiting.append((offset, callback, gives_up))

    def reached(self, offset: int) -> None:
        """Call those that wait for this offset or an earlier one."""
        waiting = self._waiting
        while waiting and waiting[0][0] <= offset:
            waiting.popleft()[1]()

    def give_up(self) -> None:
        """Call those that wait no longer when the offset is not to be reached for now."""
        before = self._waiting
        if before:
            self._waiting = deque(waiter for waiter in before if not waiter[2])
            for _, callback, gives_up in before:
                if gives_up:
                    callback()

    def end(self) -> None:
        """Call all of them: what they wait for does not come."""
        before, self._waiting = self._waiting, deque()
        for _, callback, _ in before:
            callback()


class Watermarks:
    """Owned by a partition."""

    __slots__ = ("_flush", "_log", "commits", "followers", "is_closed", "own", "readers")

    def __init__(self, log: PartitionLog, flush: FlushState) -> None:
        self._log = log
        self._flush = flush
        self.commits = OffsetWaiters()
        """What waits for the high watermark."""
        self.own = OffsetWaiters()
        """What waits for the own offset."""
        self.readers = ChangeWaiters()
        """What is to hear of every change that a reader may care about."""
        self.followers = ChangeWaiters()
        """What is to hear of every change that a follower may care about: appends too."""
        self.is_closed = False
        """Whether the replica is out of use: nothing comes any more that could be waited for."""

    @property
    def own_offset(self) -> int:
        """Up to where this replica counts by itself."""
        return self._log.durability.flushed_offset if self._flush.policy.before_acknowledge else self._log.end_offset

    def readable_end(self, isolation: int) -> int:
        """Where a reader of that isolation level has to stop."""
        return self._log.high_watermark if isolation == READ_UNCOMMITTED else self._log.last_stable_offset

    def commit(self, offset: int) -> None:
        """Everything below `offset` is committed: call those that wait for it."""
        log = self._log
        if offset <= log.high_watermark:
            return
        invariant(offset <= log.end_offset, "PAR-1: the high watermark never passes the end offset")
        log.high_watermark = offset
        self.commits.reached(offset)
        self.wake()

    def when_own(self, next_offset: int, callback: Callback) -> bool:
        """Call back once this replica alone counts up to `next_offset`, or the role ends; False when it does now."""
        if next_offset <= self.own_offset or self.is_closed:
            return False
        self.own.add(next_offset, callback)
        return True

    def truncated(self) -> None:
        """The log has lost its end: what waits for that is called, and finds out."""
        self.wake()
        self.own.end()

    def end_role(self) -> None:
        """Call everything that waits, to find out what the role is now."""
        self.commits.end()
        self.own.end()
        self.wake()

    def wake(self) -> None:
        """Something has changed that readers and followers may care about."""
        self.readers.wake()
        self.followers.wake()
