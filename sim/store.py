"""The metadata store's deterministic twin: the same contract in memory, with faults on demand.

How it works: `SimStoreState` is what a real store keeps on its disks and outlives every connection to it; `SimStore` is
one process's connection. Several of them on one state are several brokers on one cluster's store, and making a
new one on an old state is a restart. There is no chance and no thread in it: the same calls give the same
answers, and leases run out by the given clock.

Faults: `lose_next_answer` makes one commit's outcome unknown, whether it happened or not; `refuse_next` makes calls
fail before they do anything; `disconnect` makes all of them fail, waiting watches included; `hold_watches` lets a
connection's watches fall behind while its calls go on. `SimStoreState.compact` forgets the history and
`SimStoreState.restart_leases` gives every lease its full time again, as an etcd may do at any time.

Proved by: tests/properties/test_meta_store.py, which holds it equal to the SQLite store
"""

import asyncio
from bisect import bisect_left
from collections import deque
from collections.abc import AsyncGenerator, Collection, Mapping
from dataclasses import dataclass
from typing import Final

from martlet.base.clock import Clock
from martlet.base.invariant import invariant
from martlet.cluster.store import (
    Change,
    CommitResult,
    Entry,
    Event,
    LeaseId,
    LeaseLost,
    Listing,
    RevisionCompacted,
    StoreClosed,
    StoreUnavailable,
    UnknownOutcome,
    check_commit,
    check_key,
)

_TRIM_EVERY: Final = 100


@dataclass(slots=True)
class _Lease:
    ttl_ms: int
    expires_at_ms: int


class WaitingWatches:
    """What wakes each waiting watch, in the order in which they began: a set's order differs from run to run."""

    __slots__ = ("_events",)

    def __init__(self) -> None:
        self._events: dict[asyncio.Event, None] = {}

    def add(self, moved: asyncio.Event) -> None:
        self._events[moved] = None

    def discard(self, moved: asyncio.Event) -> None:
        self._events.pop(moved, None)

    def wake(self) -> None:
        for moved in self._events:
            moved.set()


class SimStoreState:
    """The content of a store, shared by all connections to it."""

    def __init__(self, *, history_revisions: int = 1_000) -> None:
        self.revision = 0
        self.floor = 0
        """History up to this revision is gone."""
        self.entries: dict[str, Entry] = {}
        self.moved = WaitingWatches()
        """Woken when the revision moves."""
        self._history: list[Change] = []
        self._history_revisions = history_revisions
        self._leases: dict[LeaseId, _Lease] = {}
        self._lease_of: dict[str, LeaseId] = {}
        self._next_lease = 1

    def compact(self) -> None:
        """Forget the whole history."""
        self._forget(self.revision)

    def under(self, prefix: str) -> list[Entry]:
        return [self.entries[key] for key in sorted(self.entries) if key.startswith(prefix)]

    def changes_after(self, revision: int) -> list[Change]:
        if revision < self.floor:
            raise RevisionCompacted(self.floor + 1)
        start = bisect_left(self._history, revision + 1, key=lambda change: change.revision)
        return self._history[start:]

    def apply(
        self,
        compares: Mapping[str, int],
        puts: Mapping[str, bytes],
        deletes: Collection[str],
        delete_prefixes: Collection[str],
        lease: LeaseId | None,
    ) -> CommitResult:
        """A commit, once expired leases have been ended."""
        for key, expected in compares.items():
            found = self.entries.get(key)
            if (found.mod_revision if found is not None else 0) != expected:
                return CommitResult(False, self.revision)
        if puts and lease is not None:
            self.check_lease(lease)
        doomed = {key for key in deletes if key in self.entries}
        doomed.update(entry.key for prefix in delete_prefixes for entry in self.under(prefix))
        self._change(puts, doomed, lease)
        return CommitResult(True, self.revision)

    # --- leases

    def grant(self, ttl_ms: int, now_ms: int) -> LeaseId:
        invariant(ttl_ms > 0, "a lease lives for some time")
        lease = LeaseId(self._next_lease)
        self._next_lease += 1
        self._leases[lease] = _Lease(ttl_ms, now_ms + ttl_ms)
        self.moved.wake()  # waiting watches must learn when this one runs out
        return lease

    def keep_alive(self, lease: LeaseId, now_ms: int) -> None:
        self.check_lease(lease)
        self._leases[lease].expires_at_ms = now_ms + self._leases[lease].ttl_ms

    def end_lease(self, lease: LeaseId) -> None:
        self._leases.pop(lease, None)
        self._change({}, {key for key, holder in self._lease_of.items() if holder == lease}, None)

    def end_lease_of(self, key: str) -> None:
        """The lease that this key hangs on ends early, as leases may without any fault of their holders."""
        if key in self._lease_of:
            self.end_lease(self._lease_of[key])

    def end_expired_leases(self, now_ms: int) -> None:
        overdue = [(held.expires_at_ms, lease) for lease, held in self._leases.items() if held.expires_at_ms <= now_ms]
        for _, lease in sorted(overdue):
            self.end_lease(lease)

    def restart_leases(self, now_ms: int) -> None:
        """Every lease lives for its full time from now, as after a change of etcd's leader: they run out late."""
        for held in self._leases.values():
            held.expires_at_ms = now_ms + held.ttl_ms

    def next_expiry_ms(self) -> int | None:
        return min((held.expires_at_ms for held in self._leases.values()), default=None)

    def check_lease(self, lease: LeaseId) -> None:
        if lease not in self._leases:
            raise LeaseLost(f"lease {lease} has expired or was revoked")

    # --- the one way anything changes

    def _change(self, puts: Mapping[str, bytes], doomed: Collection[str], lease: LeaseId | None) -> None:
        if not puts and not doomed:
            return
        self.revision += 1
        events = [Event(key, None) for key in doomed]
        for key in doomed:
            del self.entries[key]
            self._lease_of.pop(key, None)
        for key, value in puts.items():
            before = self.entries.get(key)
            created = before.create_revision if before is not None else self.revision
            self.entries[key] = entry = Entry(key, bytes(value), created, self.revision)
            self._lease_of.pop(key, None)
            if lease is not None:
                self._lease_of[key] = lease
            events.append(Event(key, entry))
        self._history.append(Change(self.revision, tuple(sorted(events, key=lambda event: event.key))))
        if self.revision % _TRIM_EVERY == 0 and self.revision > self._history_revisions:
            self._forget(self.revision - self._history_revisions)
        self.moved.wake()

    def _forget(self, up_to_revision: int) -> None:
        self._history = [change for change in self._history if change.revision > up_to_revision]
        self.floor = up_to_revision


class SimStore:
    """One connection to a `SimStoreState`; a `MetaStore` like the real ones."""

    def __init__(self, clock: Clock, state: SimStoreState | None = None) -> None:
        self.state = state if state is not None else SimStoreState()
        self._clock = clock
        self._closed = False
        self._connected = True
        self._are_watches_held = False
        self._refusals = 0
        self._lost_answers: deque[bool] = deque()
        self._waiting = WaitingWatches()

    # --- faults

    def lose_next_answer(self, *, applied: bool) -> None:
        """The next commit raises UnknownOutcome, having happened or not; several calls queue up."""
        self._lost_answers.append(applied)

    def refuse_next(self, count: int = 1) -> None:
        """The next calls raise StoreUnavailable without doing anything."""
        self._refusals += count

    def disconnect(self) -> None:
        """Every call and every waiting watch raises StoreUnavailable until `reconnect`."""
        self._connected = False
        self._waiting.wake()

    def reconnect(self) -> None:
        self._connected = True

    def hold_watches(self) -> None:
        """Watches deliver nothing until `release_watches`; calls go on. Nothing bounds the delay of a watch."""
        self._are_watches_held = True

    def release_watches(self) -> None:
        self._are_watches_held = False
        self._waiting.wake()

    # --- the port

    async def get(self, key: str) -> Entry | None:
        check_key(key)
        await self._begin()
        return self.state.entries.get(key)

    async def list(self, prefix: str) -> Listing:
        await self._begin()
        return Listing(self.state.revision, tuple(self.state.under(prefix)))

    async def commit(
        self,
        compares: Mapping[str, int],
        puts: Mapping[str, bytes],
        deletes: Collection[str] = (),
        *,
        delete_prefixes: Collection[str] = (),
        lease: LeaseId | None = None,
    ) -> CommitResult:
        check_commit(compares, puts, deletes, delete_prefixes)
        await self._begin()
        lost = self._lost_answers.popleft() if self._lost_answers else None
        if lost is False:
            raise UnknownOutcome("the answer was lost; the commit was lost before it")
        result = self.state.apply(compares, puts, deletes, delete_prefixes, lease)
        if lost:
            raise UnknownOutcome("the answer was lost; the commit happened")
        return result

    async def watch(self, prefix: str, after_revision: int) -> AsyncGenerator[Change, None]:
        position = after_revision
        moved = asyncio.Event()
        self.state.moved.add(moved)
        self._waiting.add(moved)
        try:
            while not self._closed:
                moved.clear()
                try:
                    await self._begin()
                except StoreClosed:
                    return
                for change in () if self._are_watches_held else self.state.changes_after(position):
                    events = tuple(event for event in change.events if event.key.startswith(prefix))
                    position = change.revision
                    yield Change(position, events)
                await self._wait_for(moved)
        finally:
            self.state.moved.discard(moved)
            self._waiting.discard(moved)

    async def grant(self, ttl_ms: int) -> LeaseId:
        await self._begin()
        return self.state.grant(ttl_ms, self._clock.now_ms())

    async def keep_alive(self, lease: LeaseId) -> None:
        await self._begin()
        self.state.keep_alive(lease, self._clock.now_ms())

    async def revoke(self, lease: LeaseId) -> None:
        await self._begin()
        self.state.end_lease(lease)

    async def close(self) -> None:
        self._closed = True
        self._waiting.wake()
        await asyncio.sleep(0)

    async def _begin(self) -> None:
        """What every call starts with: a chance for others to run, the faults, the leases."""
        await asyncio.sleep(0)
        if self._closed:
            raise StoreClosed("the metadata store has been closed")
        if not self._connected or self._refusals:
            self._refusals = max(0, self._refusals - 1)
            raise StoreUnavailable("the metadata store cannot be reached")
        self.state.end_expired_leases(self._clock.now_ms())

    async def _wait_for(self, moved: asyncio.Event) -> None:
        """Wait until the revision moves, or until the next lease should have run out."""
        expiry_ms = self.state.next_expiry_ms()
        if expiry_ms is None:
            await moved.wait()
            return
        remaining_seconds = max(0.001, (expiry_ms - self._clock.now_ms()) / 1000)
        try:
            async with asyncio.timeout(remaining_seconds):
                await moved.wait()
        except TimeoutError:
            return
