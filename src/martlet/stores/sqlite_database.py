"""The synchronous half of the SQLite store: one connection to one file, used by one thread.

Rules: all SQL lives here; no task and no thread does. Every method raises the errors of `martlet.cluster.store` or a
StorageFailure naming the file. A file that cannot be read is left exactly as it is.

Layout of the file (WAL, synchronous=FULL, so that what was committed survives a power cut):

    kv       key, value, create_revision, mod_revision, lease     what exists now
    history  revision, key, value, create_revision                what each revision changed; value NULL: deleted
    leases   id, ttl_ms, expires_at_ms
    state    revision, floor, next_lease                          one row; history up to `floor` is gone

How it works: a write is one BEGIN IMMEDIATE … COMMIT that first ends the leases whose time is over, each in a
revision of its own, then compares, then changes. Reads end such leases first too, so nobody sees an expired key. Only
that a lease is kept alive is not synced: a power cut that undoes it ends the lease earlier, and its holder with it.

On a full disk: while there is space the file is given free pages and the write-ahead log a length, and a write that
finds no space folds the log into the file, which need not grow for that, and is made once more at the log's beginning.
While no broker has the file open, another one keeps the log's place. So a broker starts, leases are renewed and small
changes made on a disk on which others have left nothing. Without that every broker of the host would act no more, and
refuse even its readers, for want of a few bytes.

Invariants: STO-1 to STO-6 of `martlet.cluster.store`, and
STO-12 after a COMMIT failed in a way that leaves its fate open, this connection does nothing more.

Proved by: tests/unit/stores/, tests/properties/test_meta_store.py
"""

import json
import os
import sqlite3
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager, suppress
from typing import Final, NamedTuple, TypeVar

from martlet.base.clock import Clock
from martlet.base.errors import DiskFull, StorageFailure
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
    StoreUnavailable,
    UnknownOutcome,
    prefix_end,
)

_SCHEMA_VERSION: Final = 1
_APPLICATION_ID: Final = 0x4D41524C  # "MARL": tells our files from other programs'
_BUSY_TIMEOUT_SECONDS: Final = 5.0
_REVISIONS_PER_READ: Final = 64
_TRIM_EVERY: Final = 100
_SPARE_BYTES: Final = 256 * 1024
"""Room for hundreds of changes of partitions at once, and for a lease to be renewed many times."""
# Larger than any visible ASCII character, which is all that keys are made of.
_LAST_KEY: Final = "\x7f"

_SCHEMA: Final = (
    "CREATE TABLE kv (key TEXT PRIMARY KEY, value BLOB NOT NULL, create_revision INTEGER NOT NULL,"
    " mod_revision INTEGER NOT NULL, lease INTEGER) WITHOUT ROWID",
    "CREATE INDEX kv_by_lease ON kv (lease) WHERE lease IS NOT NULL",
    "CREATE TABLE history (revision INTEGER NOT NULL, key TEXT NOT NULL, value BLOB, create_revision INTEGER,"
    " PRIMARY KEY (revision, key)) WITHOUT ROWID",
    "CREATE TABLE leases (id INTEGER PRIMARY KEY, ttl_ms INTEGER NOT NULL, expires_at_ms INTEGER NOT NULL)",
    "CREATE INDEX leases_by_expiry ON leases (expires_at_ms)",
    "CREATE TABLE state (revision INTEGER NOT NULL, floor INTEGER NOT NULL, next_lease INTEGER NOT NULL)",
    "INSERT INTO state VALUES (0, 0, 1)",
)

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
        self._path = path
        self._clock = clock
        self._history_revisions = history_revisions
        self._failure: str | None = None
        _give_place_back(path)
        try:
            self._connection = sqlite3.connect(path, timeout=_BUSY_TIMEOUT_SECONDS, isolation_level=None)
        except sqlite3.Error as error:
            raise _storage_failure(path, error) from error
        try:
            with self._guard():
                self._prepare()
        except BaseException:
            self._connection.close()
            raise

    def close(self) -> None:
        """Close the file; the last to close it also folds the write-ahead log into it."""
        try:
            self._connection.close()
        except sqlite3.Error as error:
            raise _storage_failure(self._path, error) from error
        _keep_place(self._path)

    # --- reading

    def get(self, key: str) -> Entry | None:
        with self._guard():
            self._end_expired_leases()
            row = self._connection.execute(
                "SELECT key, value, create_revision, mod_revision FROM kv WHERE key = ?", (key,)
            ).fetchone()
            return Entry(*row) if row is not None else None

    def list(self, prefix: str) -> Listing:
        with self._guard():
            self._end_expired_leases()
            with self._transaction("BEGIN"):
                rows = self._connection.execute(
                    "SELECT key, value, create_revision, mod_revision FROM kv WHERE key >= ? AND key < ? ORDER BY key",
                    (prefix, prefix_end(prefix) or _LAST_KEY),
                )
                return Listing(self._revision(), tuple(Entry(*row) for row in rows))

    def changes(self, prefix: str, after_revision: int) -> ReadChanges:
        """The next revisions after the given one, as far as there are any."""
        with self._guard():
            self._end_expired_leases()
            with self._transaction("BEGIN"):
                head, floor = self._connection.execute("SELECT revision, floor FROM state").fetchone()
                if after_revision < floor:
                    raise RevisionCompacted(floor + 1)
                reached = min(after_revision + _REVISIONS_PER_READ, max(head, after_revision))
                rows = self._connection.execute(
                    "SELECT revision, key, value, create_revision FROM history"
                    " WHERE revision > ? AND revision <= ? AND key >= ? AND key < ? ORDER BY revision, key",
                    (after_revision, reached, prefix, prefix_end(prefix) or _LAST_KEY),
                )
                return ReadChanges(_group(rows), reached, reached < head)

    def revision(self) -> int:
        with self._guard():
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
        with self._guard():
            result = self._commit(compares, puts, deletes, delete_prefixes, lease)
            self._keep_spare_room()
            return result

    def _commit(
        self,
        compares: Mapping[str, int],
        puts: Mapping[str, bytes],
        deletes: Collection[str],
        delete_prefixes: Collection[str],
        lease: LeaseId | None,
    ) -> CommitResult:
        with self._transaction("BEGIN IMMEDIATE"):
            before = self._end_leases_in_transaction()
            known = self._revisions_of((*compares, *puts, *deletes))
            if not all(known.get(key, _ABSENT).mod_revision == expected for key, expected in compares.items()):
                return CommitResult(False, before)
            revision = before + 1
            if puts and lease is not None:
                self._check_lease(lease)
            self._put(puts, known, revision, lease)
            doomed = [key for key in deletes if key in known]
            for prefix in delete_prefixes:
                doomed += self._keys_under(prefix)
            self._delete(doomed, revision)
            if not puts and not doomed:
                return CommitResult(True, before)
            self._set_revision(revision)
            return CommitResult(True, revision)

    def grant(self, ttl_ms: int) -> LeaseId:
        invariant(ttl_ms > 0, "a lease lives for some time")
        with self._guard(), self._transaction("BEGIN IMMEDIATE"):
            self._end_leases_in_transaction()
            lease = int(self._connection.execute("SELECT next_lease FROM state").fetchone()[0])
            self._connection.execute("UPDATE state SET next_lease = ?", (lease + 1,))
            self._connection.execute("INSERT INTO leases VALUES (?, ?, ?)", (lease, ttl_ms, self._now_ms() + ttl_ms))
            return LeaseId(lease)

    def keep_alive(self, lease: LeaseId) -> None:
        with self._guard():
            self._end_expired_leases()
            with self._without_sync(), self._transaction("BEGIN IMMEDIATE"):
                # Whoever ends leases makes that durable, so one that has run out just now is left to them.
                now_ms = self._now_ms()
                renewed = self._connection.execute(
                    "UPDATE leases SET expires_at_ms = ? + ttl_ms WHERE id = ? AND expires_at_ms > ?",
                    (now_ms, lease, now_ms),
                )
                if renewed.rowcount == 0:
                    raise LeaseLost(f"lease {lease} has expired or was revoked")

    def revoke(self, lease: LeaseId) -> None:
        with self._guard(), self._transaction("BEGIN IMMEDIATE"):
            self._end_leases_in_transaction()
            self._end_lease(lease)

    # --- leases

    def next_expiry_ms(self) -> int | None:
        """When the next lease runs out, by the wall clock."""
        with self._guard():
            value = self._connection.execute("SELECT MIN(expires_at_ms) FROM leases").fetchone()[0]
            return None if value is None else int(value)

    def end_expired_leases(self) -> None:
        """Delete what hangs on leases whose time is over."""
        with self._guard():
            self._end_expired_leases()

    def _end_expired_leases(self) -> None:
        query = "SELECT 1 FROM leases WHERE expires_at_ms <= ? LIMIT 1"
        if self._connection.execute(query, (self._now_ms(),)).fetchone() is not None:
            with self._transaction("BEGIN IMMEDIATE"):
                self._end_leases_in_transaction()

    def _end_leases_in_transaction(self) -> int:
        """End them, the longest overdue first, and return the revision reached."""
        query = "SELECT id FROM leases WHERE expires_at_ms <= ? ORDER BY expires_at_ms, id"
        for (lease,) in self._connection.execute(query, (self._now_ms(),)).fetchall():
            self._end_lease(lease)
        return self._revision()

    def _end_lease(self, lease: int) -> None:
        self._connection.execute("DELETE FROM leases WHERE id = ?", (lease,))
        keys = [row[0] for row in self._connection.execute("SELECT key FROM kv WHERE lease = ?", (lease,))]
        if keys:
            revision = self._revision() + 1
            self._delete(keys, revision)
            self._set_revision(revision)

    def _check_lease(self, lease: LeaseId) -> None:
        if self._connection.execute("SELECT 1 FROM leases WHERE id = ?", (lease,)).fetchone() is None:
            raise LeaseLost(f"lease {lease} has expired or was revoked")

    # --- steps of a transaction

    def _put(
        self, puts: Mapping[str, bytes], known: Mapping[str, _Revisions], revision: int, lease: LeaseId | None
    ) -> None:
        new = _Revisions(revision, revision)
        self._connection.executemany(_PUT, [(key, value, revision, revision, lease) for key, value in puts.items()])
        self._connection.executemany(
            "INSERT INTO history VALUES (?, ?, ?, ?)",
            [(revision, key, value, known.get(key, new).create_revision) for key, value in puts.items()],
        )

    def _delete(self, keys: Collection[str], revision: int) -> None:
        self._connection.executemany("DELETE FROM kv WHERE key = ?", [(key,) for key in keys])
        # Overlapping prefixes may name a key twice; it is deleted once.
        self._connection.executemany(
            "INSERT OR IGNORE INTO history VALUES (?, ?, NULL, NULL)", [(revision, key) for key in keys]
        )

    def _set_revision(self, revision: int) -> None:
        self._connection.execute("UPDATE state SET revision = ?", (revision,))
        floor = revision - self._history_revisions
        if revision % _TRIM_EVERY == 0 and floor > 0:
            self._connection.execute("DELETE FROM history WHERE revision <= ?", (floor,))
            self._connection.execute("UPDATE state SET floor = ?", (floor,))

    def _revision(self) -> int:
        return int(self._connection.execute("SELECT revision FROM state").fetchone()[0])

    def _revisions_of(self, keys: Collection[str]) -> dict[str, _Revisions]:
        """The revisions of those keys that exist."""
        if not keys:
            return {}
        rows = self._connection.execute(_REVISIONS_OF, (json.dumps(keys),))
        return {key: _Revisions(create, mod) for key, create, mod in rows}

    def _keys_under(self, prefix: str) -> Collection[str]:
        query = "SELECT key FROM kv WHERE key >= ? AND key < ?"
        return [row[0] for row in self._connection.execute(query, (prefix, prefix_end(prefix) or _LAST_KEY))]

    def _now_ms(self) -> int:
        return self._clock.now_ms()

    # --- the file

    def _prepare(self) -> None:
        """Set the connection up and make the tables of a new file; refuse a file that is not ours."""
        execute = self._connection.execute
        with self._transaction("BEGIN"):  # one look, in case another process is making the file right now
            tables = execute("SELECT COUNT(*) FROM sqlite_master").fetchone()[0]
            application = execute("PRAGMA application_id").fetchone()[0]
            version = execute("PRAGMA user_version").fetchone()[0]
        if tables and application != _APPLICATION_ID:
            raise StorageFailure(f"{self._path} is a database of another program, not Martlet's metadata")
        if tables and version != _SCHEMA_VERSION:
            raise StorageFailure(
                f"{self._path} has format {version}, this version of Martlet reads {_SCHEMA_VERSION}: "
                "start the version that wrote it"
            )
        mode = execute("PRAGMA journal_mode = WAL").fetchone()[0]
        if mode != "wal":
            raise StorageFailure(f"{self._path}: its file system allows no write-ahead log (mode {mode})")
        execute("PRAGMA synchronous = FULL")
        if not tables:
            self._create()
        self._keep_spare_room()

    def _create(self) -> None:
        with self._transaction("BEGIN IMMEDIATE"):
            # Another process may have been faster.
            if self._connection.execute("SELECT COUNT(*) FROM sqlite_master").fetchone()[0] == 0:
                for statement in _SCHEMA:
                    self._connection.execute(statement)
                self._connection.execute(f"PRAGMA application_id = {_APPLICATION_ID}")
                self._connection.execute(f"PRAGMA user_version = {_SCHEMA_VERSION}")

    def _keep_spare_room(self) -> None:
        """See to it that later writes fit although the disk is full by then, as far as there is space for it now."""
        execute = self._connection.execute
        free_bytes = execute("PRAGMA freelist_count").fetchone()[0] * execute("PRAGMA page_size").fetchone()[0]
        if free_bytes >= _SPARE_BYTES // 2 and _size(f"{self._path}-wal") >= _SPARE_BYTES:
            return
        try:
            with self._transaction("BEGIN IMMEDIATE"):
                execute("CREATE TABLE IF NOT EXISTS spare (content BLOB)")
                execute("INSERT INTO spare VALUES (zeroblob(?))", (_SPARE_BYTES,))
            with self._transaction("BEGIN IMMEDIATE"):
                execute("DROP TABLE IF EXISTS spare")
            execute("PRAGMA wal_checkpoint(PASSIVE)")
        except sqlite3.Error as error:
            if _primary_code(error) not in (sqlite3.SQLITE_FULL, sqlite3.SQLITE_BUSY):
                raise

    def in_spare_room(self, call: Callable[[], _Done]) -> _Done:
        """Make a call of this object; one that finds the disk full is made again where space is allocated already."""
        try:
            return call()
        except DiskFull:
            # Nothing of it happened. With the log folded into the file the next write starts at the log's beginning.
            with self._guard():
                self._connection.execute("PRAGMA wal_checkpoint(RESTART)")
        return call()

    @contextmanager
    def _guard(self) -> Iterator[None]:
        """Turn the driver's errors into ours, and let a connection in doubt do nothing (STO-12)."""
        if self._failure is not None:
            raise StorageFailure(self._failure)
        try:
            yield
        except sqlite3.Error as error:
            raise _translate(self._path, error) from error

    @contextmanager
    def _without_sync(self) -> Iterator[None]:
        """Commit without waiting for the device: for what a power cut may undo, which is only that a lease lives on.

        It happens all the time, and a device that is slow for a while must not cost anybody a lease.
        """
        self._connection.execute("PRAGMA synchronous = NORMAL")
        try:
            yield
        finally:
            self._connection.execute("PRAGMA synchronous = FULL")

    @contextmanager
    def _transaction(self, begin: str) -> Iterator[None]:
        self._connection.execute(begin)
        try:
            yield
        except BaseException:
            self._roll_back()
            raise
        try:
            self._connection.execute("COMMIT")
        except sqlite3.Error as error:
            self._roll_back()
            if _primary_code(error) in (sqlite3.SQLITE_FULL, sqlite3.SQLITE_BUSY):
                raise  # the commit's last page was not written: it did not happen
            self._failure = str(_storage_failure(self._path, error))
            raise UnknownOutcome(self._failure) from error

    def _roll_back(self) -> None:
        # Some errors end the transaction by themselves.
        if self._connection.in_transaction:
            self._connection.execute("ROLLBACK")


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


def _size(path: str) -> int:
    try:
        return os.stat(path).st_size
    except FileNotFoundError:
        return 0


def _keep_place(path: str) -> None:
    """Once no broker has the file open, take what its log has given back: the next start needs it."""
    if not os.path.exists(f"{path}-wal"):
        with suppress(OSError), open(f"{path}-spare", "wb") as file:
            file.write(bytes(_SPARE_BYTES * 2))


def _give_place_back(path: str) -> None:
    with suppress(OSError):
        os.unlink(f"{path}-spare")


def _primary_code(error: sqlite3.Error) -> int:
    # The low byte is the kind of error; the rest only details it.
    return int(getattr(error, "sqlite_errorcode", 0)) & 0xFF


def _translate(path: str, error: sqlite3.Error) -> Exception:
    code = _primary_code(error)
    if code in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED):
        return StoreUnavailable(f"{path} is held by another process")
    if code == sqlite3.SQLITE_FULL or getattr(error, "sqlite_errorcode", 0) == sqlite3.SQLITE_IOERR_SHMSIZE:
        return DiskFull(f"{path}: no space left for metadata")
    return _storage_failure(path, error)


def _storage_failure(path: str, error: sqlite3.Error) -> StorageFailure:
    return StorageFailure(f"the metadata file {path} cannot be used: {error}; it was left as it is")
