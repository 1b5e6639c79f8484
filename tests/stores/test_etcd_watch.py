"""Watches on a real etcd: forgotten history, strangers in the same etcd, streams that die without a sound."""

import asyncio
from base64 import b64encode
from collections.abc import AsyncIterator
from contextlib import aclosing, asynccontextmanager

import pytest

from martlet.cluster.store import Change, Event, MetaStore, RevisionCompacted
from martlet.stores.etcd import EtcdStore
from martlet.stores.etcd_options import EtcdAddress, EtcdLimits, EtcdOptions
from tests.stores.conftest import EtcdWorkshop
from tests.stores.freezing_proxy import FreezingProxy

_QUICK = EtcdLimits(connect_seconds=1.0, request_seconds=1.0, probe_seconds=0.3)


@asynccontextmanager
async def opened(address: EtcdAddress, *, page_entries: int = 500) -> AsyncIterator[EtcdStore]:
    store = await EtcdStore.open(EtcdOptions(address, limits=_QUICK), page_entries=page_entries)
    try:
        yield store
    finally:
        await store.close()


async def _until(store: MetaStore, after_revision: int, revision: int) -> list[Change]:
    """What a watch brings until it has reached a revision."""
    changes: list[Change] = []
    async with asyncio.timeout(20), aclosing(store.watch("", after_revision)) as watch:
        async for change in watch:
            changes.append(change)
            if change.revision >= revision:
                break
    return changes


async def test_history_forgotten_under_a_broken_watch_is_reported_once_it_resumes(workshop: EtcdWorkshop) -> None:
    async with FreezingProxy(workshop.etcd.endpoint) as proxy, opened(workshop.address) as direct:
        through = EtcdAddress((proxy.endpoint,), workshop.address.root)
        async with opened(through) as store, aclosing(store.watch("", workshop.base)) as watch:
            first = await direct.commit({}, {"a": b"1"})
            assert (await anext(watch)).revision == first.revision
            waiting = asyncio.ensure_future(anext(watch))
            await asyncio.sleep(0)
            proxy.freeze()
            for _ in range(3):
                last = await direct.commit({}, {"a": b"2"})
            workshop.etcd.compact(last.revision)
            with pytest.raises(RevisionCompacted) as caught:
                await asyncio.wait_for(waiting, 20)
            assert caught.value.oldest_revision == last.revision + 1
            listing = await store.list("")
            later = await direct.commit({}, {}, ["a"])
            assert await _until(store, listing.revision, later.revision) == [
                Change(later.revision, (Event("a", None),))
            ]


async def test_compaction_does_not_disturb_a_watch_that_keeps_up(workshop: EtcdWorkshop) -> None:
    async with opened(workshop.address) as store, aclosing(store.watch("", workshop.base)) as watch:
        for number in range(5):
            result = await store.commit({}, {"a": b"%d" % number})
            change = await asyncio.wait_for(anext(watch), 20)
            assert change.revision == result.revision
            workshop.etcd.compact(result.revision)


async def test_a_deletion_at_the_very_revision_of_the_compaction_is_not_missed(workshop: EtcdWorkshop) -> None:
    """etcd drops the deletion's trace, and without a word serves a watch that begins there."""
    async with opened(workshop.address) as store:
        before = await store.commit({}, {"a": b"", "b": b""})
        deletion = await store.commit({}, {}, ["a"])
        workshop.etcd.compact(deletion.revision)
        with pytest.raises(RevisionCompacted):
            await _until(store, before.revision, deletion.revision)


async def test_sto_5_a_watch_reaches_revisions_of_strangers_that_a_caller_was_given(workshop: EtcdWorkshop) -> None:
    async with opened(workshop.address) as store:
        for _ in range(3):
            workshop.etcd.put_as_a_stranger(5)
            refused = await store.commit({"absent": 1}, {"a": b""})
            assert not refused.succeeded
            changes = await _until(store, workshop.base, refused.revision)
            assert all(change.events == () for change in changes)
        assert (await store.list("")).entries == ()


async def test_an_etcd_of_our_own_is_not_written_to_by_watches(workshop: EtcdWorkshop) -> None:
    async with opened(workshop.address) as store:
        for _ in range(3):
            result = await store.commit({}, {"a": b""})
        async with aclosing(store.watch("", workshop.base)) as watch:
            for _ in range(3):
                await anext(watch)
            waiting = asyncio.ensure_future(anext(watch))
            await asyncio.sleep(3 * _QUICK.probe_seconds)  # time for several probes; nothing is waited for
            waiting.cancel()
            await asyncio.wait([waiting])
        assert workshop.etcd.revision() == result.revision


async def test_sto_11_a_stream_that_died_silently_is_replaced(workshop: EtcdWorkshop) -> None:
    async with FreezingProxy(workshop.etcd.endpoint) as proxy, opened(workshop.address) as direct:
        through = EtcdAddress((proxy.endpoint,), workshop.address.root)
        async with opened(through) as store, aclosing(store.watch("", workshop.base)) as watch:
            for number in range(3):
                result = await direct.commit({}, {"a": b"%d" % number})
                change = await asyncio.wait_for(anext(watch), 20)
                while not change.events:
                    change = await asyncio.wait_for(anext(watch), 20)
                assert change.revision == result.revision
                proxy.freeze()


async def test_keys_of_strangers_under_our_prefix_do_no_harm(workshop: EtcdWorkshop) -> None:
    async with opened(workshop.address) as store:
        for name in (b"\xff\x00odd", b"\x01", b"a\xff"):
            key = b64encode(workshop.address.root.encode() + name).decode()
            workshop.etcd.call("/v3/kv/put", {"key": key, "value": "eA=="})
        last = await store.commit({}, {"b": b""})
        assert "b" in [entry.key for entry in (await store.list("")).entries]
        changes = await _until(store, workshop.base, last.revision)
        assert len(changes) == 4


async def test_a_listing_in_pages_is_of_one_revision(workshop: EtcdWorkshop) -> None:
    async with opened(workshop.address, page_entries=3) as store:
        keys = [f"k{number:02d}" for number in range(10)]
        await store.commit({}, dict.fromkeys(keys, b"0"))

        async def change() -> None:
            for number in range(1, 40):
                await store.commit({}, dict.fromkeys(keys, b"%d" % number))

        changing = asyncio.create_task(change())
        while not changing.done():
            listing = await store.list("k")
            assert [entry.key for entry in listing.entries] == keys
            assert len({entry.value for entry in listing.entries}) == 1
            assert {entry.mod_revision for entry in listing.entries} == {listing.revision}
        await changing


async def test_a_listing_whose_revision_is_forgotten_half_way_is_begun_again(workshop: EtcdWorkshop) -> None:
    async with opened(workshop.address, page_entries=1) as store:
        await store.commit({}, {f"k{number}": b"" for number in range(5)})
        listing = asyncio.create_task(store.list(""))
        for _ in range(3):
            await asyncio.sleep(0.002)
            workshop.etcd.compact((await store.commit({}, {"k0": b"x"})).revision)
        assert len((await listing).entries) == 5
