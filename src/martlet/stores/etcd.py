"""The metadata store in an etcd cluster, 3.4 or newer, for brokers on several hosts.

Rules: only the port's calls live here; `etcd_gateway.py` makes the calls, `etcd_json.py` spells them, `etcd_watch.py`
follows changes and `etcd_lease.py` holds leases. Every read is linearizable: etcd answers it only after having made
sure that its leader still leads.

How it works: a commit is one etcd transaction, whose comparisons and changes are the port's own. A listing is read in
pages, all as of the revision of the first; if etcd forgets that revision meanwhile, the listing is begun again.

Invariants: STO-1 to STO-6 of `martlet.cluster.store`.

Proved by: tests/stores/, tests/unit/stores/
"""

from collections.abc import AsyncGenerator, Collection, Mapping, Sequence
from contextlib import aclosing
from typing import Final

from martlet.cluster.store import (
    Change,
    CommitResult,
    Entry,
    LeaseId,
    Listing,
    StoreUnavailable,
    check_commit,
    check_key,
)
from martlet.stores import etcd_lease
from martlet.stores.etcd_faults import Meaning
from martlet.stores.etcd_gateway import RANGE, TXN, CallFailed, EtcdGateway
from martlet.stores.etcd_json import TICK_KEY, BadAnswer, JsonObject, KeySpace, as_number
from martlet.stores.etcd_options import EtcdOptions
from martlet.stores.etcd_watch import EtcdWatch

PAGE_ENTRIES: Final = 500

_LISTING_ATTEMPTS_MAX: Final = 5


class EtcdStore:
    """Made by `open`, ended by `close`; used from one event loop, like everything of a broker."""

    def __init__(self, gateway: EtcdGateway, keys: KeySpace, page_entries: int) -> None:
        self._gateway = gateway
        self._keys = keys
        self._page_entries = page_entries
        self._watches: set[EtcdWatch] = set()
        self._promised = 0

    @classmethod
    async def open(cls, options: EtcdOptions, *, page_entries: int = PAGE_ENTRIES) -> "EtcdStore":
        """Reach the cluster and make sure that it can be used; an error says what is wrong and what to do."""
        gateway = EtcdGateway(options)
        keys = KeySpace(options.address.root)
        try:
            await gateway.open(keys.read_key(TICK_KEY))
        except BaseException:
            await gateway.close()
            raise
        return cls(gateway, keys, page_entries)

    async def get(self, key: str) -> Entry | None:
        check_key(key)
        answer = await self._gateway.read(RANGE, self._keys.read_key(key))
        entries = self._read_entries(answer)
        return entries[0] if entries else None

    async def list(self, prefix: str) -> Listing:
        for _ in range(_LISTING_ATTEMPTS_MAX):
            try:
                listing = await self._list_once(prefix)
            except CallFailed as failed:
                if failed.fault.meaning is not Meaning.COMPACTED:
                    raise
            else:
                self._promise(listing.revision)
                return listing
        raise StoreUnavailable("etcd forgets its history faster than it can be listed")

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
        answer = await self._gateway.write(TXN, self._keys.commit(compares, puts, deletes, delete_prefixes, lease))
        result = CommitResult(answer.get("succeeded", False) is True, _revision_of(answer))
        self._promise(result.revision)
        return result

    async def watch(self, prefix: str, after_revision: int) -> AsyncGenerator[Change, None]:
        watch = EtcdWatch(self._gateway, self._keys, prefix, after_revision)
        watch.promise(self._promised)
        self._watches.add(watch)
        try:
            async with aclosing(watch.changes()) as changes:
                async for change in changes:
                    yield change
        finally:
            self._watches.discard(watch)

    async def grant(self, ttl_ms: int) -> LeaseId:
        return await etcd_lease.grant(self._gateway, ttl_ms)

    async def keep_alive(self, lease: LeaseId) -> None:
        await etcd_lease.keep_alive(self._gateway, lease)

    async def revoke(self, lease: LeaseId) -> None:
        await etcd_lease.revoke(self._gateway, lease)

    async def close(self) -> None:
        await self._gateway.close()
        for watch in self._watches:
            watch.stop()

    async def _list_once(self, prefix: str) -> Listing:
        entries: list[Entry] = []
        revision = 0
        while True:
            after = entries[-1].key if entries else None
            page = self._keys.read_page(prefix, after, self._page_entries, revision)
            answer = await self._gateway.read(RANGE, page)
            revision = revision or _revision_of(answer)
            entries += self._read_entries(answer)
            if answer.get("more", False) is not True:
                return Listing(revision, tuple(entries))

    def _read_entries(self, answer: JsonObject) -> Sequence[Entry]:
        try:
            return self._keys.entries(answer)
        except BadAnswer as error:
            raise StoreUnavailable(f"etcd's answer makes no sense: {error}") from error

    def _promise(self, revision: int) -> None:
        """A caller learns this revision: every watch must reach it (STO-5)."""
        if revision > self._promised:
            self._promised = revision
            for watch in self._watches:
                watch.promise(revision)


def _revision_of(answer: JsonObject) -> int:
    return as_number(answer["header"].get("revision"), "revision")
