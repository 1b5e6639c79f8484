"""The port to the metadata store: a small key-value store with revisions, compare-and-swap, watches and leases.

Rules: only the contract lives here; `martlet.stores` holds the implementations and `sim.store`
the deterministic twin. It is shaped after etcd, so that an etcd cluster and a SQLite file are interchangeable.

How it works: the store has one revision, a number that grows by one with every commit that changes something. All
changes of a commit carry the same revision. A key's `mod_revision` is the revision that last changed it and 0
when it does not exist, so "must not exist" and "must be as I read it" are the same comparison. A watch hands
out whole revisions in order. Puts can hang on a lease: when it expires, its keys go.

Invariants:
STO-1 a commit applies wholly or not at all, and what succeeded is durable when the call returns;
STO-2 revisions never go back, over restarts included; a key's `mod_revision` is never reused;
STO-3 reads see every commit that returned before them, by whichever process;
STO-4 a watch delivers each revision after its start once, whole and in order, or raises `RevisionCompacted`;
STO-5 a watch reaches every revision that any call of this store has returned, if need be by an empty `Change`;
STO-6 a lease id is never reused, and an expired lease never comes back to life.

The errors:

    StoreError
     ├ UnknownOutcome      a commit may or may not have happened, or happen later: read back, then decide
     ├ StoreUnavailable    nothing happened; the same call may succeed later
     ├ RevisionCompacted   the history a watch asked for is gone: list again and watch from there
     ├ LeaseLost           the lease has expired or was revoked
     ├ StoreRefused        the store will not serve us as things are set up: an operator must act
     ├ StoreReplaced       what answers is not the store it was, or not as it was: nothing it says counts
     └ StoreClosed         this store was closed by its owner

A disk that fails is the `StorageFailure` of `martlet.base.errors`.

Proved by: tests/unit/stores/, tests/properties/test_meta_store.py
"""

from collections.abc import AsyncGenerator, Collection, Mapping
from dataclasses import dataclass, field
from typing import Final, NamedTuple, NewType, Protocol

from martlet.base.errors import MartletError
from martlet.base.invariant import invariant

LeaseId = NewType("LeaseId", int)

COMMIT_OPERATIONS_MAX: Final = 128
"""Comparisons, and likewise changes, that one commit may carry (etcd's default limit)."""

COMMIT_BYTES_MAX: Final = 1_000_000
"""Keys and values that one commit may carry; etcd refuses requests beyond 1.5 MiB."""


class StoreError(MartletError):
    """Root of what a metadata store raises on purpose."""


class UnknownOutcome(StoreError):
    """The commit was sent and its answer was lost: it may have happened, or may still happen."""


class StoreUnavailable(StoreError):
    """The store could not be reached; nothing happened."""


class RevisionCompacted(StoreError):
    """The watch starts before the oldest revision that the store still remembers."""

    def __init__(self, oldest_revision: int) -> None:
        super().__init__(f"the store's history begins at revision {oldest_revision}")
        self.oldest_revision = oldest_revision


class LeaseLost(StoreError):
    """The lease is gone; whatever was put under it is gone too."""


class StoreRefused(StoreError):
    """Wrong address, version, credentials or rights: nothing happened, and trying again will not help."""


class StoreReplaced(StoreError):
    """The store has another identity than before, or its revision went back: a backup or another store is there."""


class StoreClosed(StoreError):
    """The store was used after it had been closed."""


class Entry(NamedTuple):
    """A key that exists."""

    key: str
    value: bytes
    create_revision: int
    mod_revision: int


class Listing(NamedTuple):
    """All entries under a prefix, sorted by key, as they were at one revision."""

    revision: int
    entries: tuple[Entry, ...]


class CommitResult(NamedTuple):
    """Whether every comparison held, and the store's revision after the commit."""

    succeeded: bool
    revision: int


class Event(NamedTuple):
    """One key's change; `entry` is None when the key was deleted."""

    key: str
    entry: Entry | None


class Change(NamedTuple):
    """All matching events of one revision; without events it only says that the revision has been reached."""

    revision: int
    events: tuple[Event, ...]


@dataclass(frozen=True, slots=True)
class CommitPlan:
    """What a decision wants committed; `compares` maps a key to the `mod_revision` it must have."""

    compares: Mapping[str, int] = field(default_factory=dict)
    puts: Mapping[str, bytes] = field(default_factory=dict)
    deletes: Collection[str] = ()
    delete_prefixes: Collection[str] = ()


class MetaStore(Protocol):
    """A metadata store as one process holds it. Every call may raise the errors listed in the module's head."""

    async def get(self, key: str) -> Entry | None: ...

    async def list(self, prefix: str) -> Listing: ...

    async def commit(
        self,
        compares: Mapping[str, int],
        puts: Mapping[str, bytes],
        deletes: Collection[str] = (),
        *,
        delete_prefixes: Collection[str] = (),
        lease: LeaseId | None = None,
    ) -> CommitResult:
        """If every comparison holds, apply all changes at once; the puts hang on `lease` if one is given.

        Only `UnknownOutcome` leaves open whether it happened. Deleting what does not exist is no change, and a
        commit without a change keeps the revision.
        """
        ...

    def watch(self, prefix: str, after_revision: int) -> AsyncGenerator[Change, None]:
        """Every change under `prefix` after that revision, until the store is closed; the caller closes it."""
        ...

    async def grant(self, ttl_ms: int) -> LeaseId: ...

    async def keep_alive(self, lease: LeaseId) -> None:
        """Let the lease live for its full time from now; raises LeaseLost when it is gone."""
        ...

    async def revoke(self, lease: LeaseId) -> None:
        """End the lease and delete its keys, in one revision; no error when it is gone already."""
        ...

    async def close(self) -> None:
        """Stop serving: waiting watches end, later calls raise StoreClosed."""
        ...


async def commit_plan(store: MetaStore, plan: CommitPlan, *, lease: LeaseId | None = None) -> CommitResult:
    """Hand a decision to a store."""
    return await store.commit(plan.compares, plan.puts, plan.deletes, delete_prefixes=plan.delete_prefixes, lease=lease)


def check_key(key: str) -> None:
    """Keys are visible ASCII, so that every implementation sorts and stores them alike."""
    invariant(key and key.isascii() and key.isprintable(), f"a metadata key is visible ASCII: {key!r}")


def check_commit(
    compares: Mapping[str, int], puts: Mapping[str, bytes], deletes: Collection[str], delete_prefixes: Collection[str]
) -> None:
    """Every implementation refuses alike what one of them could not do; such a commit is a bug of its maker."""
    operations = len(puts) + len(deletes) + len(delete_prefixes)
    invariant(max(len(compares), operations) <= COMMIT_OPERATIONS_MAX, "a commit holds at most 128 operations")
    for key in (*compares, *puts, *deletes, *delete_prefixes):
        check_key(key)
    size = sum(len(key) + len(value) for key, value in puts.items())
    invariant(size <= COMMIT_BYTES_MAX, "a commit holds at most a million bytes")
    removed = set(deletes)
    invariant(len(removed) == len(deletes), "a commit deletes a key once")
    invariant(removed.isdisjoint(puts), "a commit either puts or deletes a key")
    for prefix in delete_prefixes:
        invariant(
            not any(key.startswith(prefix) for key in (*puts, *removed)),
            "a commit does not touch single keys of a prefix that it deletes",
        )


def prefix_end(prefix: str) -> str | None:
    """The first key after all keys of that prefix; None when nothing comes after them."""
    return prefix[:-1] + chr(ord(prefix[-1]) + 1) if prefix else None
