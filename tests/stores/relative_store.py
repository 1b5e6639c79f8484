"""A store whose revisions are counted from where it was opened, for tests that know no others.

A real etcd begins at revision 1 and is shared by many tests; seen through this it begins at 0.
"""

from collections.abc import AsyncGenerator, Collection, Mapping
from contextlib import aclosing

from martlet.cluster.store import (
    Change,
    CommitResult,
    Entry,
    Event,
    LeaseId,
    Listing,
    MetaStore,
    RevisionCompacted,
)


class RelativeStore:
    """A `MetaStore` that adds and subtracts `base`; keys must be younger than it."""

    def __init__(self, store: MetaStore, base: int) -> None:
        self._store = store
        self._base = base

    async def get(self, key: str) -> Entry | None:
        entry = await self._store.get(key)
        return None if entry is None else self._entry(entry)

    async def list(self, prefix: str) -> Listing:
        listing = await self._store.list(prefix)
        return Listing(listing.revision - self._base, tuple(map(self._entry, listing.entries)))

    async def commit(
        self,
        compares: Mapping[str, int],
        puts: Mapping[str, bytes],
        deletes: Collection[str] = (),
        *,
        delete_prefixes: Collection[str] = (),
        lease: LeaseId | None = None,
    ) -> CommitResult:
        shifted = {key: revision and revision + self._base for key, revision in compares.items()}
        result = await self._store.commit(shifted, puts, deletes, delete_prefixes=delete_prefixes, lease=lease)
        return CommitResult(result.succeeded, result.revision - self._base)

    async def watch(self, prefix: str, after_revision: int) -> AsyncGenerator[Change, None]:
        try:
            async with aclosing(self._store.watch(prefix, after_revision + self._base)) as changes:
                async for revision, events in changes:
                    yield Change(revision - self._base, tuple(map(self._event, events)))
        except RevisionCompacted as error:
            raise RevisionCompacted(error.oldest_revision - self._base) from error

    async def grant(self, ttl_ms: int) -> LeaseId:
        return await self._store.grant(ttl_ms)

    async def keep_alive(self, lease: LeaseId) -> None:
        await self._store.keep_alive(lease)

    async def revoke(self, lease: LeaseId) -> None:
        await self._store.revoke(lease)

    async def close(self) -> None:
        await self._store.close()

    def _entry(self, entry: Entry) -> Entry:
        return entry._replace(
            create_revision=entry.create_revision - self._base, mod_revision=entry.mod_revision - self._base
        )

    def _event(self, event: Event) -> Event:
        return event if event.entry is None else Event(event.key, self._entry(event.entry))
