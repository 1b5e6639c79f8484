"""The metadata store in one SQLite file, for one broker or several processes on one host.

Rules: this half knows asyncio and no SQL; `sqlite_database.py` is the other way round. The connection belongs to one
worker thread, so nothing here ever blocks the event loop.

How it works: every call becomes a call on the thread. A watch reads the history from its position whenever it is
notified that the revision has moved: at once after a commit of this process, and, when the store is opened as shared,
within the poll interval after a commit of another one (the file's revision is read, a few microseconds, only while
there are watches). The thread also ends leases when their time is over; with neither leases nor other processes it
sleeps until it is called.

Invariants: STO-1 to STO-6 of `martlet.cluster.store`.

Proved by: tests/unit/stores/, tests/properties/test_meta_store.py
"""

import asyncio
import threading
from collections.abc import AsyncGenerator, Callable, Collection, Mapping
from functools import partial
from typing import Final, TypeVar

from martlet.base.clock import Clock, SystemClock
from martlet.base.errors import StorageFailure
from martlet.base.threads import ThreadWorkers
from martlet.cluster.store import (
    Change,
    CommitResult,
    Entry,
    LeaseId,
    Listing,
    StoreClosed,
    StoreError,
    StoreUnavailable,
    check_commit,
    check_key,
)
from martlet.stores.sqlite_database import SqliteDatabase

T = TypeVar("T")

HISTORY_REVISIONS: Final = 1_000
"""Revisions a watch may lag behind before it must list again."""

POLL_INTERVAL_MS: Final = 50

_OPEN_SECONDS_MAX: Final = 10.0
_OPEN_PAUSE_SECONDS: Final = 0.02
_SLEEP_SECONDS_MAX: Final = 60.0
_SLEEP_SECONDS_AFTER_ERROR: Final = 1.0


class _Watcher:
    """A watch that waits, seen from the thread."""

    __slots__ = ("_loop", "moved")

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self.moved = asyncio.Event()

    def wake(self) -> None:
        try:
            self._loop.call_soon_threadsafe(self.moved.set)
        except RuntimeError:
            # Its loop was closed without closing the watch; nothing is left to wake.
            return


class SqliteStore:
    """Made by `open`, ended by `close`; used from one event loop, like everything of a broker."""

    def __init__(
        self, database: SqliteDatabase, thread: ThreadWorkers, clock: Clock, poll_seconds: float | None
    ) -> None:
        self._database = database
        self._thread = thread
        self._clock = clock
        self._poll_seconds = poll_seconds
        self._closed = False
        self._watchers: set[_Watcher] = set()
        self._watchers_lock = threading.Lock()
        # Used on the thread only.
        self._announced_revision = 0

    @classmethod
    async def open(
        cls,
        path: str,
        *,
        clock: Clock | None = None,
        shared: bool = False,
        poll_interval_ms: int = POLL_INTERVAL_MS,
        history_revisions: int = HISTORY_REVISIONS,
    ) -> "SqliteStore":
        """Open the file, making it if need be; `shared` lets watches see what other processes change."""
        clock = clock or SystemClock()
        thread = ThreadWorkers("martlet-metadata", 1)
        thread.start_thread()
        try:
            database = await _open_database(thread, partial(SqliteDatabase, path, clock, history_revisions))
        except BaseException:
            thread.join()
            raise
        store = cls(database, thread, clock, poll_interval_ms / 1000 if shared else None)
        thread.settle = store._settle
        return store

    async def get(self, key: str) -> Entry | None:
        check_key(key)
        return await self._run(partial(self._database.get, key))

    async def list(self, prefix: str) -> Listing:
        return await self._run(partial(self._database.list, prefix))

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
        return await self._run(
            partial(self._database.commit, dict(compares), dict(puts), tuple(deletes), tuple(delete_prefixes), lease)
        )

    async def watch(self, prefix: str, after_revision: int) -> AsyncGenerator[Change, None]:
        watcher = _Watcher()
        with self._watchers_lock:
            self._watchers.add(watcher)
        try:
            position = after_revision
            while not self._closed:
                watcher.moved.clear()
                read = await self._run(partial(self._database.changes, prefix, position))
                for change in read.changes:
                    position = change.revision
                    yield change
                if read.reached > position:
                    position = read.reached
                    yield Change(position, ())
                if not read.more:
                    await watcher.moved.wait()
        finally:
            with self._watchers_lock:
                self._watchers.discard(watcher)

    async def grant(self, ttl_ms: int) -> LeaseId:
        return await self._run(partial(self._database.grant, ttl_ms))

    async def keep_alive(self, lease: LeaseId) -> None:
        await self._run(partial(self._database.keep_alive, lease))

    async def revoke(self, lease: LeaseId) -> None:
        await self._run(partial(self._database.revoke, lease))

    async def close(self) -> None:
        if self._closed:
            return
        self._closed = True
        try:
            await self._thread.run(self._database.close)
        finally:
            self._thread.join()
            self._wake_watchers()

    async def _run(self, function: Callable[[], T]) -> T:
        if self._closed:
            raise StoreClosed("the metadata store has been closed")
        return await self._thread.run(partial(self._database.retrying_on_full_disk, function))

    # --- on the thread

    def _settle(self) -> float | None:
        """After each call and each wait: notify watches of what has moved; returns how long to sleep."""
        if self._closed:
            return None
        try:
            return self._end_leases_and_notify()
        except (StoreError, StorageFailure):
            # The next caller or watch meets the same error and can report it.
            self._wake_watchers()
            return _SLEEP_SECONDS_AFTER_ERROR

    def _end_leases_and_notify(self) -> float | None:
        database = self._database
        expiry_ms = database.next_expiry_ms()
        if expiry_ms is not None and expiry_ms <= self._clock.now_ms():
            database.retrying_on_full_disk(database.end_expired_leases)
            expiry_ms = database.next_expiry_ms()
        if self._watchers:
            revision = database.revision()
            if revision != self._announced_revision:
                self._announced_revision = revision
                self._wake_watchers()
        sleep = self._poll_seconds if self._watchers else None
        if expiry_ms is None:
            return sleep
        until_expiry = max(0.001, min((expiry_ms - self._clock.now_ms()) / 1000, _SLEEP_SECONDS_MAX))
        return until_expiry if sleep is None else min(sleep, until_expiry)

    def _wake_watchers(self) -> None:
        with self._watchers_lock:
            watchers = tuple(self._watchers)
        for watcher in watchers:
            watcher.wake()


async def _open_database(thread: ThreadWorkers, make: Callable[[], SqliteDatabase]) -> SqliteDatabase:
    """Open the file, waiting for others that make it just now: the one lock SQLite does not wait for by itself."""
    deadline = asyncio.get_running_loop().time() + _OPEN_SECONDS_MAX
    while True:
        try:
            return await thread.run(make)
        except StoreUnavailable:
            if asyncio.get_running_loop().time() > deadline:
                raise
            await asyncio.sleep(_OPEN_PAUSE_SECONDS)
