"""The synchronous half of the SQLite store: keys, their history and leases, used by one thread.

Rules: all SQL about them lives here, that about the file itself in `sqlite_file.py`; no task and no thread does. Every
method raises the errors of `martlet.cluster.store` or a StorageFailure naming the file.

How it works: a write is one BEGIN IMMEDIATE … COMMIT that first ends the leases whose time is over, each in a
revision of its own, then compares, then changes. Reads end such leases first too, so an expired key is never seen.
Only a lease's renewal is not synced: a power cut that undoes it ends the lease earlier, and its holder with it.

Invariants: STO-1 to STO-6 of `martlet.cluster.store`.

Proved by: tests/unit/stores/, tests/properties/test_meta_store.py
"""

import json
import sqlite3
from collections.abc import Callable, Collection, Iterator, Mapping
from typing import Final, NamedTuple, TypeVar

from martlet.base.clock import Clock
from martlet.base.errors import DiskFull
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
    prefix_end,
)
from martlet.stores.sqlite_file import SqliteFile

_REVISIONS_PER_READ: Final = 64
_TRIM_EVERY: Final = 100
# Larger than any visible ASCII character, which is all that keys are made of.
_LAST_KEY: Final = "\x7f"

_PUT: Final = (
    "INSERT INTO kv VALUES (?, ?, ?, ?, ?) ON CONFLICT (key) DO UPDATE"
    " SET value = excluded.value, mod_revision = excluded.mod_revision, lease = excluded.lease"
)
_REVISIONS_OF: Final = "SELECT key, create_revision, mod_revision FROM kv WHERE key IN (SELECT value FROM json_each(?))"


class _Revisions(NamedTuple):
    create_revision: int
    mod_revision: int


_ABSENT: Final = _Revisions(0, 0)


class ReadChanges(NamedTuple):
    """Some revisions of the history, the revision they reach, and whether there are more."""

    changes: tuple[Change, ...]
    reached: int
    more: bool


_Done = TypeVar("_Done")


class SqliteDatabase:
    """One open file; made, used and closed by one thread."""

    def __init__(self, path: str, clock: Clock, history_revisions: int) -> None:
        self._file = SqliteFile(path)
        self._clock = clock
        self._history_revisions = history_revisions

    def close(self) -> None:
        self._file.close()

    def retrying_on_full_disk(self, call: Callable[[], _Done]) -> _Done:
        """Make a call of this object; one that finds the disk full is made again where space is allocated already."""
        try:
            return call()
        except DiskFull:
            # Nothing of it happened.
            self._file.rewind_log()
        return call()

    # --- reading

    def get(self, key: str) -> Entry | None:
        with self._file.guard():
            self._end_expired_leases()
            row = self._file.connection.execute(
                "SELECT key, value, create_revision, mod_revision FROM kv WHERE key = ?", (key,)
            ).fetchone()
            return Entry(*row) if row is not None else None

    def list(self, prefix: str) -> Listing:
        with self._file.guard():
            self._end_expired_leases()
            with self._file.transaction("BEGIN"):
                rows = self._file.connection.execute(
                    "SELECT key, value, create_revision, mod_revision FROM kv WHERE key >= ? AND key < ? ORDER BY key",
                    (prefix, prefix_end(prefix) or _LAST_KEY),
                )
                return Listing(self._revision(), tuple(Entry(*row) for row in rows))

    def changes(self, prefix: str, after_revision: int) -> ReadChanges:
        """The next revisions after the given one, as far as there are any."""
        with self._file.guard():
            self._end_expired_leases()
            with self._file.transaction("BEGIN"):
                head, floor = self._file.connection.execute("SELECT revision, floor FROM state").fetchone()
                if after_revision < floor:
                    raise RevisionCompacted(floor + 1)
                reached = min(after_revision + _REVISIONS_PER_READ, max(head, after_revision))
                rows = self._file.connection.execute(
                    "SELECT revision, key, value, create_revision FROM history"
                    " WHERE revision > ? AND revision <= ? AND key >= ? AND key < ? ORDER BY revision, key",
                    (after_revision, reached, prefix, prefix_end(prefix) or _LAST_KEY),
                )
                return ReadChanges(_group(rows), reached, reached < head)

    def revision(self) -> int:
        with self._file.guard():
            return self._revision()

    # --- writing

    def commit(
        self,
        compares: Mapping[str, int],
        puts: Mapping[str, bytes],
        deletes: Collection[str],
        delete_prefixes: Collection[str],
        lease: LeaseId | None,
    ) -> CommitResult:
        with self._file.guard():
            result = self._commit(compares, puts, deletes, delete_prefixes, lease)
            self._file.keep_spare_space()
            return result

    def _commit(
        self,
        compares: Mapping[str, int],
        puts: Mapping[str, bytes],
        deletes: Collection[str],
        delete_prefixes: Collection[str],
        lease: LeaseId | None,
    ) -> CommitResult:
        with self._file.transaction("BEGIN IMMEDIATE"):
            before = self._end_leases_in_transaction()
            known = self._revisions_of((*compares, *puts, *deletes))
            if not all(known.get(key, _ABSENT).mod_revision == expected for key, expected in compares.items()):
                return CommitResult(False, before)
            revision = before + 1
            if puts and lease is not None:
                self._check_lease(lease)
            self._put(puts, known, revision, lease)
            deleted = [key for key in deletes if key in known]
            for prefix in delete_prefixes:
                deleted += self._keys_under(prefix)
            self._delete(deleted, revision)
            if not puts and not deleted:
                return CommitResult(True, before)
            self._set_revision(revision)
            return CommitResult(True, revision)

    def grant(self, ttl_ms: int) -> LeaseId:
        invariant(ttl_ms > 0, "a lease lives for some time")
        with self._file.guard(), self._file.transaction("BEGIN IMMEDIATE"):
            self._end_leases_in_transaction()
            lease = int(self._file.connection.execute("SELECT next_lease FROM state").fetchone()[0])
            self._file.connection.execute("UPDATE state SET next_lease = ?", (lease + 1,))
            self._file.connection.execute(
                "INSERT INTO leases VALUES (?, ?, ?)", (lease, ttl_ms, self._now_ms() + ttl_ms)
            )
            return LeaseId(lease)

    def keep_alive(self, lease: LeaseId) -> None:
        with self._file.guard():
            self._end_expired_leases()
            with self._file.without_sync(), self._file.transaction("BEGIN IMMEDIATE"):
                # A transaction that ends leases is synced, so one that has just run out is left to it.
                now_ms = self._now_ms()
                renewed = self._file.connection.execute(
                    "UPDATE leases SET expires_at_ms = ? + ttl_ms WHERE id = ? AND expires_at_ms > ?",
                    (now_ms, lease, now_ms),
                )
                if renewed.rowcount == 0:
                    raise LeaseLost(f"lease {lease} has expired or was revoked")

    def revoke(self, lease: LeaseId) -> None:
        with self._file.guard(), self._file.transaction("BEGIN IMMEDIATE"):
            self._end_leases_in_transaction()
            self._end_lease(lease)

    # --- leases

    def next_expiry_ms(self) -> int | None:
        """When the next lease runs out, by the wall clock."""
        with self._file.guard():
            value = self._file.connection.execute("SELECT MIN(expires_at_ms) FROM leases").fetchone()[0]
            return None if value is None else int(value)

    def end_expired_leases(self) -> None:
        """Delete what hangs on leases whose time is over."""
        with self._file.guard():
            self._end_expired_leases()

    def _end_expired_leases(self) -> None:
        query = "SELECT 1 FROM leases WHERE expires_at_ms <= ? LIMIT 1"
        if self._file.connection.execute(query, (self._now_ms(),)).fetchone() is not None:
            with self._file.transaction("BEGIN IMMEDIATE"):
                self._end_leases_in_transaction()

    def _end_leases_in_transaction(self) -> int:
        """End them, the longest overdue first, and return the revision reached."""
        query = "SELECT id FROM leases WHERE expires_at_ms <= ? ORDER BY expires_at_ms, id"
        for (lease,) in self._file.connection.execute(query, (self._now_ms(),)).fetchall():
            self._end_lease(lease)
        return self._revision()

    def _end_lease(self, lease: int) -> None:
        self._file.connection.execute("DELETE FROM leases WHERE id = ?", (lease,))
        keys = [row[0] for row in self._file.connection.execute("SELECT key FROM kv WHERE lease = ?", (lease,))]
        if keys:
            revision = self._revision() + 1
            self._delete(keys, revision)
            self._set_revision(revision)

    def _check_lease(self, lease: LeaseId) -> None:
        if self._file.connection.execute("SELECT 1 FROM leases WHERE id = ?", (lease,)).fetchone() is None:
            raise LeaseLost(f"lease {lease} has expired or was revoked")

    # --- steps of a transaction

    def _put(
        self, puts: Mapping[str, bytes], known: Mapping[str, _Revisions], revision: int, lease: LeaseId | None
    ) -> None:
        new = _Revisions(revision, revision)
        self._file.connection.executemany(
            _PUT, [(key, value, revision, revision, lease) for key, value in puts.items()]
        )
        self._file.connection.executemany(
            "INSERT INTO history VALUES (?, ?, ?, ?)",
            [(revision, key, value, known.get(key, new).create_revision) for key, value in puts.items()],
        )

    def _delete(self, keys: Collection[str], revision: int) -> None:
        self._file.connection.executemany("DELETE FROM kv WHERE key = ?", [(key,) for key in keys])
        # Overlapping prefixes may name a key twice; it is deleted once.
        self._file.connection.executemany(
            "INSERT OR IGNORE INTO history VALUES (?, ?, NULL, NULL)", [(revision, key) for key in keys]
        )

    def _set_revision(self, revision: int) -> None:
        self._file.connection.execute("UPDATE state SET revision = ?", (revision,))
        floor = revision - self._history_revisions
        if revision % _TRIM_EVERY == 0 and floor > 0:
            self._file.connection.execute("DELETE FROM history WHERE revision <= ?", (floor,))
            self._file.connection.execute("UPDATE state SET floor = ?", (floor,))

    def _revision(self) -> int:
        return int(self._file.connection.execute("SELECT revision FROM state").fetchone()[0])

    def _revisions_of(self, keys: Collection[str]) -> dict[str, _Revisions]:
        """The revisions of those keys that exist."""
        if not keys:
            return {}
        rows = self._file.connection.execute(_REVISIONS_OF, (json.dumps(keys),))
        return {key: _Revisions(create, mod) for key, create, mod in rows}

    def _keys_under(self, prefix: str) -> Collection[str]:
        query = "SELECT key FROM kv WHERE key >= ? AND key < ?"
        return [row[0] for row in self._file.connection.execute(query, (prefix, prefix_end(prefix) or _LAST_KEY))]

    def _now_ms(self) -> int:
        return self._clock.now_ms()


def _group(rows: Iterator[tuple[int, str, bytes | None, int]] | sqlite3.Cursor) -> tuple[Change, ...]:
    """Rows in the order of revision and key, as one change per revision."""
    changes: list[Change] = []
    current = 0
    events: list[Event] = []
    for revision, key, value, create_revision in rows:
        if revision != current and events:
            changes.append(Change(current, tuple(events)))
            events = []
        current = revision
        events.append(Event(key, None if value is None else Entry(key, value, create_revision, revision)))
    if events:
        changes.append(Change(current, tuple(events)))
    return tuple(changes)
