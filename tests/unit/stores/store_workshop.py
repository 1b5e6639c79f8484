"""What the contract tests need of a kind of store: to open it, to let time pass for its leases, to let it forget.

A workshop makes stores over one lasting state, so that closing one and opening another is a restart.
"""

from pathlib import Path
from typing import Protocol

from sim.clock import SimClock
from sim.store import SimStore, SimStoreState

from martlet.cluster.store import LeaseId, MetaStore
from martlet.stores.sqlite import SqliteStore

HISTORY = 150
"""Revisions that are remembered after `forget_old_history`."""


class Workshop(Protocol):
    """Makes stores whose revisions begin at 0, and ends them."""

    lease_ms: int
    """The shortest life of a lease that the store keeps to."""

    async def open(self) -> MetaStore: ...

    async def let_pass(self, elapsed_ms: int) -> None: ...

    async def let_run_out(self, lease: LeaseId) -> None:
        """Come back when the lease's time is over."""
        ...

    async def forget_old_history(self, store: MetaStore) -> None: ...

    async def close(self) -> None: ...


class LocalWorkshop:
    """SQLite or the simulated twin, on a clock that only the test moves."""

    lease_ms = 1_000

    def __init__(self, kind: str, path: Path) -> None:
        self.clock = SimClock()
        self._kind = kind
        self._path = str(path / "metadata.db")
        self._state = SimStoreState(history_revisions=HISTORY)
        self._opened: list[MetaStore] = []

    async def open(self) -> MetaStore:
        store: MetaStore
        if self._kind == "sqlite":
            store = await SqliteStore.open(self._path, clock=self.clock, history_revisions=HISTORY)
        else:
            store = SimStore(self.clock, self._state)
        self._opened.append(store)
        return store

    async def let_pass(self, elapsed_ms: int) -> None:
        self.clock.advance(elapsed_ms)

    async def let_run_out(self, lease: LeaseId) -> None:
        self.clock.advance(self.lease_ms)

    async def forget_old_history(self, store: MetaStore) -> None:
        """They do so by themselves, at every hundredth revision."""

    async def close(self) -> None:
        for store in self._opened:
            await store.close()
