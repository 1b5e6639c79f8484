"""The file of the SQLite store and the one connection to it: its tables, transactions, errors, and space on the disk.

Rules: a file that cannot be read, or that is not ours, is left exactly as it is.

Layout of the file (WAL, synchronous=FULL, so that what was committed survives a power cut):

    kv       key, value, create_revision, mod_revision, lease     what exists now
    history  revision, key, value, create_revision                what each revision changed; value NULL: deleted
    leases   id, ttl_ms, expires_at_ms
    state    revision, floor, next_lease                          one row; history up to `floor` is gone

On a full disk: while there is space, the file is given free pages and the write-ahead log a length, and a write that
finds no space folds the log into the file, which need not grow for that, and is made once more at the log's beginning.
While no broker has the file open, a file next to it holds the log's space. So a broker starts, leases are renewed and
small changes made on a disk that other programs have filled; without that every broker of the host would stop acting.

Invariant:
STO-12 after a COMMIT failed in a way that leaves its fate open, this connection does nothing more.

Proved by: tests/unit/stores/test_sqlite_store.py
"""

import os
import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Final

from martlet.base.errors import DiskFull, StorageFailure
from martlet.cluster.store import StoreUnavailable, UnknownOutcome

_SCHEMA_VERSION: Final = 1
_APPLICATION_ID: Final = 0x4D41524C  # "MARL": tells our files from other programs'
_BUSY_TIMEOUT_SECONDS: Final = 5.0
_SPARE_BYTES: Final = 256 * 1024
"""Enough for hundreds of changes of partitions at once, and for a lease to be renewed many times."""

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


class SqliteFile:
    """One open file; made, used and closed by one thread."""

    def __init__(self, path: str) -> None:
        self._path = path
        self._failure: str | None = None
        _release_reserve(path)
        try:
            self.connection = sqlite3.connect(path, timeout=_BUSY_TIMEOUT_SECONDS, isolation_level=None)
        except sqlite3.Error as error:
            raise _storage_failure(path, error) from error
        try:
            with self.guard():
                self._prepare()
        except BaseException:
            self.connection.close()
            raise

    def close(self) -> None:
        """Close the file; the last to close it also folds the write-ahead log into it."""
        try:
            self.connection.close()
        except sqlite3.Error as error:
            raise _storage_failure(self._path, error) from error
        _reserve_space(self._path)

    def _prepare(self) -> None:
        """Set the connection up and make the tables of a new file; refuse a file that is not ours."""
        execute = self.connection.execute
        with self.transaction("BEGIN"):  # in one transaction: another process may be making the file
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
        self.keep_spare_space()

    def _create(self) -> None:
        with self.transaction("BEGIN IMMEDIATE"):
            # Another process may have been faster.
            if self.connection.execute("SELECT COUNT(*) FROM sqlite_master").fetchone()[0] == 0:
                for statement in _SCHEMA:
                    self.connection.execute(statement)
                self.connection.execute(f"PRAGMA application_id = {_APPLICATION_ID}")
                self.connection.execute(f"PRAGMA user_version = {_SCHEMA_VERSION}")

    def keep_spare_space(self) -> None:
        """Allocate space for later writes, which may find the disk full, as far as there is any now."""
        execute = self.connection.execute
        free_bytes = execute("PRAGMA freelist_count").fetchone()[0] * execute("PRAGMA page_size").fetchone()[0]
        if free_bytes >= _SPARE_BYTES // 2 and _size(f"{self._path}-wal") >= _SPARE_BYTES:
            return
        try:
            with self.transaction("BEGIN IMMEDIATE"):
                execute("CREATE TABLE IF NOT EXISTS spare (content BLOB)")
                execute("INSERT INTO spare VALUES (zeroblob(?))", (_SPARE_BYTES,))
            with self.transaction("BEGIN IMMEDIATE"):
                execute("DROP TABLE IF EXISTS spare")
            execute("PRAGMA wal_checkpoint(PASSIVE)")
        except sqlite3.Error as error:
            if _primary_code(error) not in (sqlite3.SQLITE_FULL, sqlite3.SQLITE_BUSY):
                raise

    def rewind_log(self) -> None:
        """Fold the write-ahead log into the file, so that the next write starts where the log has space already."""
        with self.guard():
            self.connection.execute("PRAGMA wal_checkpoint(RESTART)")

    @contextmanager
    def guard(self) -> Iterator[None]:
        """Turn the driver's errors into ours, and let a connection in doubt do nothing (STO-12)."""
        if self._failure is not None:
            raise StorageFailure(self._failure)
        try:
            yield
        except sqlite3.Error as error:
            raise _translate(self._path, error) from error

    @contextmanager
    def without_sync(self) -> Iterator[None]:
        """Commit without waiting for the device: for what a power cut may undo, which is only that a lease lives on.

        It happens all the time, and a device that is slow for a while must not cost a lease.
        """
        self.connection.execute("PRAGMA synchronous = NORMAL")
        try:
            yield
        finally:
            self.connection.execute("PRAGMA synchronous = FULL")

    @contextmanager
    def transaction(self, begin: str) -> Iterator[None]:
        self.connection.execute(begin)
        try:
            yield
        except BaseException:
            self._roll_back()
            raise
        try:
            self.connection.execute("COMMIT")
        except sqlite3.Error as error:
            self._roll_back()
            if _primary_code(error) in (sqlite3.SQLITE_FULL, sqlite3.SQLITE_BUSY):
                raise  # the commit's last page was not written: it did not happen
            self._failure = str(_storage_failure(self._path, error))
            raise UnknownOutcome(self._failure) from error

    def _roll_back(self) -> None:
        # Some errors end the transaction by themselves.
        if self.connection.in_transaction:
            self.connection.execute("ROLLBACK")


def _size(path: str) -> int:
    try:
        return os.stat(path).st_size
    except FileNotFoundError:
        return 0


def _reserve_space(path: str) -> None:
    """Once no broker has the file open, hold the space that its log has given back: the next start needs it."""
    if not os.path.exists(f"{path}-wal"):
        with suppress(OSError), open(f"{path}-spare", "wb") as file:
            file.write(bytes(_SPARE_BYTES * 2))


def _release_reserve(path: str) -> None:
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
