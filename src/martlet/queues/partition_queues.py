"""All subscriptions of one data partition, and how their changes go to the state log that lies beside it.

How it works: once per pass of the event loop the shell takes what has changed (`take`), at most one record of each
subscription, appends it as one batch, and says whether that worked (`stored`, `refused`); when the log is committed up
to an offset it says so (`committed`), and what was closing is finished. A subscription whose deltas have grown beyond
its snapshot writes the next change as a snapshot, so that loading reads a bounded tail; everything before the oldest
snapshot that counts may be cut off the log (`needed_from`).

Invariants:
QPQ-1 One batch at a time is between `take` and its answer; batches are committed in their order.
QPQ-2 Loading the log from `needed_from` on gives every subscription the state of loading all of it.

Proved by: tests/unit/queues/test_partition_queues.py, tests/properties/test_partition_queues.py
"""

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Final, NamedTuple

from martlet.base.ids import TopicId
from martlet.base.invariant import invariant
from martlet.coordinator.ports import LogEntry
from martlet.queues.engine import QueueEngine
from martlet.queues.record_codec import StateKey, decode_key, decode_state, encode_key, encode_state
from martlet.queues.records import Change, DeadLetter

DELTAS_MIN_BYTES: Final = 64 << 10
DELTAS_PER_SNAPSHOT: Final = 4
"""Deltas may take this many times the bytes of their snapshot: loading is bounded, and a fifth is overhead."""

MakeEngine = Callable[[str], QueueEngine]
"""An engine for a subscription, with the options that it has now and nothing known of its state."""


class SubscriptionDeadLetter(NamedTuple):
    """A copy to be made for a subscription."""

    subscription: str
    letter: DeadLetter


@dataclass(slots=True)
class _Stored:
    """One subscription and what of it is in the log."""

    engine: QueueEngine
    key: bytes
    needed_from: int = -1
    """Where its last committed snapshot is; -1 before there is one."""
    snapshot_bytes: int = 0
    delta_bytes: int = 0
    is_due: bool = False
    """Whether the next change is a snapshot, whatever the bytes."""

    @property
    def wants_snapshot(self) -> bool:
        return self.is_due or self.delta_bytes > max(DELTAS_MIN_BYTES, DELTAS_PER_SNAPSHOT * self.snapshot_bytes)


class _Taken(NamedTuple):
    """A change on its way; `engine` tells a subscription from a later one of the same name."""

    name: str
    engine: QueueEngine
    change: Change
    size: int


class _Removed(NamedTuple):
    """A subscription that is gone; its records must stay until that is committed."""

    key: bytes
    needed_from: int


class _Batch(NamedTuple):
    """What was appended together."""

    first_offset: int
    next_offset: int
    taken: tuple[_Taken, ...]
    removed: tuple[_Removed, ...]


class PartitionQueues:
    """The subscriptions of one partition, on its leader."""

    def __init__(self, topic_id: TopicId, partition: int, make_engine: MakeEngine) -> None:
        self._topic_id = topic_id
        self._partition = partition
        self._make_engine = make_engine
        self._stored: dict[str, _Stored] = {}
        self._removed: list[_Removed] = []
        """Not yet in the log."""
        self._taken: tuple[_Taken, ...] = ()
        self._removed_taken = 0
        """How many of the removed are in the batch that was taken."""
        self._is_taken = False
        self._batches: deque[_Batch] = deque()

    def __contains__(self, subscription: str) -> bool:
        return subscription in self._stored

    def __iter__(self) -> Iterator[tuple[str, QueueEngine]]:
        return ((name, stored.engine) for name, stored in self._stored.items())

    def get(self, subscription: str) -> QueueEngine | None:
        stored = self._stored.get(subscription)
        return None if stored is None else stored.engine

    def add(self, subscription: str, start: int) -> QueueEngine:
        """A new subscription that begins at this offset; it is durable with the next batch."""
        invariant(subscription not in self._stored, "a subscription is added once")
        engine = self._make_engine(subscription)
        engine.reset(start)
        self._stored[subscription] = _Stored(engine, self._key(subscription))
        return engine

    def remove(self, subscription: str) -> None:
        """Forget a subscription and its state, with the next batch for good."""
        stored = self._stored.pop(subscription)
        self._removed.append(_Removed(stored.key, stored.needed_from))

    def _key(self, subscription: str) -> bytes:
        return encode_key(StateKey(subscription, self._topic_id, self._partition))

    @property
    def low_mark(self) -> int | None:
        """The lowest offset of the data that any subscription still needs; None without one."""
        return min((stored.engine.low_mark for stored in self._stored.values()), default=None)

    def next_due_ms(self) -> int | None:
        """When `pass_time` has something to do."""
        due = (stored.engine.next_due_ms() for stored in self._stored.values())
        return min((at_ms for at_ms in due if at_ms is not None), default=None)

    def pass_time(self, now_ms: int) -> bool:
        """End leases and pauses whose time is over; whether there are more of them."""
        is_more = [stored.engine.pass_time(now_ms) for stored in self._stored.values()]
        return any(is_more)

    # --- storing

    def take(self) -> list[LogEntry]:
        """What has changed, to be appended as one batch; answer with `stored` or `refused` before the next one."""
        invariant(not self._is_taken, "one batch at a time is being appended")
        entries: list[LogEntry] = [(removed.key, None) for removed in self._removed]
        self._removed_taken = len(entries)
        taken: list[_Taken] = []
        for name, stored in self._stored.items():
            change = stored.engine.snapshot() if stored.wants_snapshot else stored.engine.take_change()
            if change is not None:
                value = encode_state(change.record)
                entries.append((stored.key, value))
                taken.append(_Taken(name, stored.engine, change, len(stored.key) + len(value)))
        self._taken = tuple(taken)
        self._is_taken = bool(entries)
        return entries

    def stored(self, first_offset: int, next_offset: int) -> None:
        """The batch is in the log, at these offsets."""
        invariant(self._is_taken, "a batch was taken")
        removed = tuple(self._removed[: self._removed_taken])
        self._batches.append(_Batch(first_offset, next_offset, self._taken, removed))
        del self._removed[: self._removed_taken]
        for name, engine, change, size in self._taken:
            stored = self._stored.get(name)
            if stored is None or stored.engine is not engine:
                continue
            if change.record.is_snapshot:
                stored.snapshot_bytes, stored.delta_bytes, stored.is_due = size, 0, False
            else:
                stored.delta_bytes += size
        self._taken, self._is_taken = (), False

    def refused(self, now_ms: int) -> None:
        """The batch could not be appended: nothing of it has happened."""
        invariant(self._is_taken, "a batch was taken")
        taken, self._taken, self._is_taken = self._taken, (), False
        for name, engine, change, _ in taken:
            if self.get(name) is engine:
                engine.failed(change, now_ms)

    def committed(self, offset: int) -> list[SubscriptionDeadLetter]:
        """The state log is committed up to this offset; the copies that are to be made now."""
        letters: list[SubscriptionDeadLetter] = []
        while self._batches and self._batches[0].next_offset <= offset:
            batch = self._batches.popleft()
            for name, engine, change, _ in batch.taken:
                stored = self._stored.get(name)
                if stored is None or stored.engine is not engine:
                    continue
                letters += [SubscriptionDeadLetter(name, letter) for letter in engine.committed(change)]
                if change.record.is_snapshot:
                    stored.needed_from = batch.first_offset
        return letters

    # --- the length of the log

    @property
    def needed_from(self) -> int | None:
        """Everything in the state log before this offset is needless; None without a subscription.

        -1 while one has no committed snapshot: nothing may be cut then.
        """
        needed = [stored.needed_from for stored in self._stored.values()]
        needed += [removed.needed_from for removed in self._removed]
        needed += [removed.needed_from for batch in self._batches for removed in batch.removed]
        return min(needed, default=None)

    def carry_forward(self, before: int) -> None:
        """The log is to be cut before this offset: who has its snapshot there writes another with the next batch."""
        for stored in self._stored.values():
            if stored.needed_from < before:
                stored.is_due = True

    # --- loading

    def replay(self, entries: Iterable[tuple[int, LogEntry]]) -> None:
        """Entries of the state log with their offsets, in order; those of other partitions are left alone.

        Raises ProtocolViolation for what is no state record.
        """
        for offset, (key, value) in entries:
            owner = decode_key(key)
            if owner[1:] != (self._topic_id, self._partition):
                continue
            if value is None:
                self._stored.pop(owner.subscription, None)
                continue
            record = decode_state(value)
            stored = self._stored.get(owner.subscription)
            if stored is None:
                stored = self._stored[owner.subscription] = _Stored(self._make_engine(owner.subscription), key)
            stored.engine.replay(record)
            size = len(key) + len(value)
            if record.is_snapshot:
                stored.needed_from, stored.snapshot_bytes, stored.delta_bytes = offset, size, 0
            else:
                stored.delta_bytes += size

    def loaded(self) -> list[SubscriptionDeadLetter]:
        """The whole log is replayed: serve. Returns the copies that were not surely made."""
        return [
            SubscriptionDeadLetter(name, letter)
            for name, stored in self._stored.items()
            for letter in stored.engine.loaded()
        ]
