"""What is particular to the SQLite store: its file, its thread, and other processes on the same file."""

import asyncio
import os
import sqlite3
import subprocess
import sys
import threading
from contextlib import aclosing
from pathlib import Path

import pytest
from sim.clock import SimClock

from martlet.base.errors import DiskFull, StorageFailure
from martlet.cluster.store import Change, StoreUnavailable, UnknownOutcome
from martlet.stores.sqlite import SqliteStore
from martlet.stores.sqlite_database import SqliteDatabase

_OTHER_PROCESS = """
import asyncio, sys
from martlet.stores.sqlite import SqliteStore

async def main():
    store = await SqliteStore.open(sys.argv[1])
    for number in range(int(sys.argv[2])):
        while True:
            entry = await store.get("n")
            value, revision = (int(entry.value), entry.mod_revision) if entry else (0, 0)
            if (await store.commit({"n": revision}, {"n": str(value + 1).encode()})).succeeded:
                break
    await store.close()

asyncio.run(main())
"""


def _start_other_process(path: str, commits: int) -> "subprocess.Popen[bytes]":
    return subprocess.Popen([sys.executable, "-c", _OTHER_PROCESS, path, str(commits)])


@pytest.fixture
def path(tmp_path: Path) -> str:
    return str(tmp_path / "metadata.db")


def _metadata_threads() -> set[threading.Thread]:
    return {thread for thread in threading.enumerate() if thread.name.startswith("martlet-metadata")}


@pytest.fixture
def threads_before() -> set[threading.Thread]:
    """Threads of stores that other tests of the session keep open."""
    return _metadata_threads()


async def test_the_thread_ends_with_the_store(path: str, threads_before: set[threading.Thread]) -> None:
    store = await SqliteStore.open(path)
    assert len(_metadata_threads() - threads_before) == 1
    await store.close()
    assert _metadata_threads() <= threads_before


async def test_the_file_is_durable_at_every_commit(path: str) -> None:
    database = SqliteDatabase(path, SimClock(), 100)
    connection = database._file.connection
    assert connection.execute("PRAGMA journal_mode").fetchone() == ("wal",)
    assert connection.execute("PRAGMA synchronous").fetchone() == (2,)
    database.close()


@pytest.mark.parametrize("content", [b"not a database at all, just some text" * 100, os.urandom(8192)])
async def test_a_file_that_is_no_database_is_named_and_left_as_it_is(
    path: str, content: bytes, threads_before: set[threading.Thread]
) -> None:
    Path(path).write_bytes(content)
    with pytest.raises(StorageFailure, match=r"metadata\.db cannot be used: file is not a database; it was left"):
        await SqliteStore.open(path)
    assert Path(path).read_bytes() == content
    assert _metadata_threads() <= threads_before


async def test_a_damaged_page_is_a_storage_failure_and_not_an_empty_store(path: str) -> None:
    store = await SqliteStore.open(path)
    for number in range(20):
        await store.commit({}, {f"k{number}/{index}": b"v" * 200 for index in range(100)})
    await store.close()
    content = bytearray(Path(path).read_bytes())
    content[4096 : len(content) - 4096] = os.urandom(len(content) - 8192)
    Path(path).write_bytes(content)

    async def read_everything() -> None:
        opened = await SqliteStore.open(path)
        try:
            await opened.list("")
        finally:
            await opened.close()

    with pytest.raises(StorageFailure, match=r"metadata\.db"):
        await read_everything()
    assert Path(path).stat().st_size == len(content)


async def test_another_programs_database_is_refused(path: str) -> None:
    connection = sqlite3.connect(path)
    connection.execute("CREATE TABLE theirs (x)")
    connection.close()
    with pytest.raises(StorageFailure, match="another program"):
        await SqliteStore.open(path)


async def test_a_newer_format_is_refused_with_the_way_out(path: str) -> None:
    await (await SqliteStore.open(path)).close()
    connection = sqlite3.connect(path)
    connection.execute("PRAGMA user_version = 9")
    connection.close()
    with pytest.raises(StorageFailure, match="has format 9, this version of Martlet reads 1"):
        await SqliteStore.open(path)


async def test_a_missing_directory_is_a_storage_failure(tmp_path: Path, threads_before: set[threading.Thread]) -> None:
    with pytest.raises(StorageFailure, match="nowhere"):
        await SqliteStore.open(str(tmp_path / "nowhere" / "metadata.db"))
    assert _metadata_threads() <= threads_before


async def test_a_full_disk_refuses_the_commit_and_the_next_one_may_succeed(path: str) -> None:
    database = SqliteDatabase(path, SimClock(), 100)
    database.commit({}, {"a": b"1"}, (), (), None)
    pages = database._file.connection.execute("PRAGMA page_count").fetchone()[0]
    database._file.connection.execute(f"PRAGMA max_page_count = {pages}")
    with pytest.raises(DiskFull):
        database.commit({}, {"big": b"x" * 900_000}, (), (), None)
    assert database.get("big") is None
    database._file.connection.execute("PRAGMA max_page_count = 1000000")
    assert database.commit({}, {"big": b"x" * 900_000}, (), (), None) == (True, 2)
    database.close()


class _FailingCommit:
    """A connection whose next COMMIT fails after the fact, as when the answer of an fsync is an error."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._connection = connection

    def execute(self, statement: str, *arguments: object) -> sqlite3.Cursor:
        cursor = self._connection.execute(statement, *arguments)  # type: ignore[arg-type]
        if statement == "COMMIT":
            raise sqlite3.OperationalError("disk I/O error")
        return cursor

    def __getattr__(self, name: str) -> object:
        return getattr(self._connection, name)


async def test_sto_12_after_a_commit_in_doubt_the_store_does_nothing_more(path: str) -> None:
    database = SqliteDatabase(path, SimClock(), 100)
    database._file.connection = _FailingCommit(database._file.connection)  # type: ignore[assignment]
    with pytest.raises(UnknownOutcome, match=r"metadata\.db"):
        database.commit({}, {"a": b"1"}, (), (), None)
    with pytest.raises(StorageFailure, match="disk I/O error"):
        database.get("a")
    database.close()


async def test_a_file_locked_for_too_long_is_unavailable_and_nothing_happened(
    path: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("martlet.stores.sqlite_file._BUSY_TIMEOUT_SECONDS", 0.05)
    store = await SqliteStore.open(path)
    other = sqlite3.connect(path, isolation_level=None)
    other.execute("BEGIN IMMEDIATE")
    with pytest.raises(StoreUnavailable, match="held by another process"):
        await store.commit({}, {"a": b"1"})
    assert (await store.list("")).revision == 0, "reading goes on"
    other.execute("ROLLBACK")
    other.close()
    assert await store.commit({}, {"a": b"1"}) == (True, 1)
    await store.close()


async def test_a_cancelled_call_does_not_disturb_the_store(path: str) -> None:
    store = await SqliteStore.open(path)
    calls = [asyncio.create_task(store.commit({}, {"a": b"%d" % number})) for number in range(10)]
    await asyncio.sleep(0)
    for call in calls[::2]:
        call.cancel()
    outcomes = await asyncio.gather(*calls, return_exceptions=True)
    assert sum(isinstance(outcome, asyncio.CancelledError) for outcome in outcomes) == 5
    assert (await store.list("")).revision == 10
    await store.close()


async def _take_until(store: SqliteStore, value: bytes) -> list[Change]:
    taken: list[Change] = []
    async with asyncio.timeout(30), aclosing(store.watch("", 0)) as changes:
        async for change in changes:
            taken.extend([change] if change.events else [])
            entry = change.events[0].entry if change.events else None
            if entry is not None and entry.value == value:
                break
    return taken


async def test_two_processes_count_together_and_both_see_every_revision(path: str) -> None:
    store = await SqliteStore.open(path, shared=True)
    watching = asyncio.create_task(_take_until(store, b"60"))
    others = [_start_other_process(path, 20) for _ in range(2)]
    for _ in range(20):
        while True:
            entry = await store.get("n")
            value, revision = (int(entry.value), entry.mod_revision) if entry is not None else (0, 0)
            if (await store.commit({"n": revision}, {"n": b"%d" % (value + 1)})).succeeded:
                break
    changes = await watching
    assert [await asyncio.to_thread(other.wait) for other in others] == [0, 0]
    await store.close()
    assert [change.revision for change in changes] == list(range(1, 61))
    values = [change.events[0].entry.value for change in changes if change.events[0].entry is not None]
    assert values == [b"%d" % number for number in range(1, 61)]


async def test_processes_that_make_the_same_new_file_at_once_all_succeed(path: str) -> None:
    others = [_start_other_process(path, 1) for _ in range(3)]
    assert [await asyncio.to_thread(other.wait) for other in others] == [0, 0, 0]
    store = await SqliteStore.open(path)
    entry = await store.get("n")
    await store.close()
    assert entry is not None
    assert entry.value == b"3"


async def test_another_connections_change_is_seen_within_the_poll_interval_only_when_shared(path: str) -> None:
    alone = await SqliteStore.open(path)
    shared = await SqliteStore.open(path, shared=True, poll_interval_ms=5)
    writer = await SqliteStore.open(path)
    watches = [asyncio.create_task(_take_until(store, b"1")) for store in (alone, shared)]
    await asyncio.sleep(0.02)
    await writer.commit({}, {"a": b"1"})
    assert len(await asyncio.wait_for(watches[1], 5)) == 1
    assert not watches[0].done()
    await alone.get("a")  # any call of its own makes it look
    assert len(await asyncio.wait_for(watches[0], 5)) == 1
    for store in (alone, shared, writer):
        await store.close()
