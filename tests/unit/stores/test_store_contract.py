"""What every metadata store must do, held against each of them (STO-1 to STO-6 of `martlet.cluster.store`).

Which stores those are is up to the folder's `workshop` fixture: here SQLite and the simulated twin; tests/stores runs
the same tests on a real etcd.
"""

import asyncio
from contextlib import aclosing

import pytest

from martlet.base.errors import InvariantViolation
from martlet.cluster.store import (
    Change,
    Entry,
    Event,
    LeaseId,
    LeaseLost,
    MetaStore,
    RevisionCompacted,
    StoreClosed,
)
from tests.unit.stores.store_workshop import HISTORY, Workshop


@pytest.fixture
async def store(workshop: Workshop) -> MetaStore:
    return await workshop.open()


async def _take(store: MetaStore, prefix: str, after_revision: int, count: int) -> list[Change]:
    """The next changes that have events."""
    taken: list[Change] = []
    async with asyncio.timeout(10), aclosing(store.watch(prefix, after_revision)) as changes:
        async for change in changes:
            if change.events:
                taken.append(change)
            if len(taken) == count:
                break
    return taken


async def test_an_empty_store_is_at_revision_zero(store: MetaStore) -> None:
    assert await store.get("a") is None
    assert await store.list("") == (0, ())


async def test_a_put_is_read_back_with_its_revisions(store: MetaStore) -> None:
    assert await store.commit({}, {"a": b"1", "b": b""}) == (True, 1)
    assert await store.commit({}, {"a": b"2"}) == (True, 2)
    assert await store.get("a") == Entry("a", b"2", 1, 2)
    assert await store.get("b") == Entry("b", b"", 1, 1)


async def test_a_listing_holds_the_prefix_sorted_at_one_revision(store: MetaStore) -> None:
    await store.commit({}, {"a/2": b"", "a/1": b"", "a0": b"", "b": b""})
    listing = await store.list("a/")
    assert [entry.key for entry in listing.entries] == ["a/1", "a/2"]
    assert listing.revision == 1
    assert len((await store.list("")).entries) == 4


async def test_sto_1_a_lost_comparison_changes_nothing(store: MetaStore) -> None:
    await store.commit({}, {"a": b"1"})
    for compares in ({"a": 0}, {"a": 7}, {"a": 1, "b": 1}):
        assert await store.commit(compares, {"a": b"2", "c": b""}) == (False, 1)
    assert await store.get("a") == Entry("a", b"1", 1, 1)
    assert await store.get("c") is None


async def test_a_comparison_with_zero_means_absent(store: MetaStore) -> None:
    assert await store.commit({"a": 0}, {"a": b"1"}) == (True, 1)
    assert await store.commit({"a": 0}, {"a": b"2"}) == (False, 1)
    assert await store.commit({"a": 1, "b": 0}, {"a": b"2"}) == (True, 2)


async def test_a_key_made_again_has_a_new_creation_revision(store: MetaStore) -> None:
    await store.commit({}, {"a": b"1"})
    await store.commit({}, {}, ["a"])
    await store.commit({"a": 0}, {"a": b"2"})
    assert await store.get("a") == Entry("a", b"2", 3, 3)


async def test_deleting_nothing_keeps_the_revision(store: MetaStore) -> None:
    assert await store.commit({}, {}, ["a"], delete_prefixes=["b/"]) == (True, 0)
    assert await store.commit({}, {}) == (True, 0)


async def test_a_prefix_is_deleted_in_one_revision(store: MetaStore) -> None:
    await store.commit({}, {f"p/{number}": b"" for number in range(100)})
    await store.commit({}, {"q": b""})
    assert await store.commit({}, {"r": b""}, ["q"], delete_prefixes=["p/", "p/1"]) == (True, 3)
    assert [entry.key for entry in (await store.list("")).entries] == ["r"]
    (change,) = await _take(store, "", 2, 1)
    assert len(change.events) == 102


async def test_a_commit_beyond_the_limits_is_the_callers_mistake(store: MetaStore) -> None:
    many = {f"k{number}": b"" for number in range(129)}
    for attempt in (
        store.commit({}, many),
        store.commit(dict.fromkeys(many, 0), {}),
        store.commit({}, {"a": b"x" * 1_000_001}),
        store.commit({}, {"a": b""}, ["a"]),
        store.commit({}, {"a/b": b""}, delete_prefixes=["a/"]),
        store.commit({}, {"a\x00": b""}),
        store.commit({}, {"": b""}),
        store.commit({}, {"é": b""}),
    ):
        with pytest.raises(InvariantViolation):
            await attempt
    assert (await store.list("")).revision == 0


async def test_sto_4_a_watch_delivers_whole_revisions_in_order(store: MetaStore) -> None:
    await store.commit({}, {"a": b"1", "b": b"1"})
    await store.commit({}, {"a": b"2"}, ["b"])
    watching = asyncio.create_task(_take(store, "", 0, 4))
    await asyncio.sleep(0.01)
    await store.commit({}, {"c": b"3"})
    await store.commit({}, {"a": b"4"})
    assert await watching == [
        Change(1, (Event("a", Entry("a", b"1", 1, 1)), Event("b", Entry("b", b"1", 1, 1)))),
        Change(2, (Event("a", Entry("a", b"2", 1, 2)), Event("b", None))),
        Change(3, (Event("c", Entry("c", b"3", 3, 3)),)),
        Change(4, (Event("a", Entry("a", b"4", 1, 4)),)),
    ]


async def test_a_watch_sees_only_its_prefix(store: MetaStore) -> None:
    for number in range(6):
        await store.commit({}, {f"{'ab'[number % 2]}/{number}": b""})
    changes = await _take(store, "b/", 0, 3)
    assert [change.revision for change in changes] == [2, 4, 6]


async def test_sto_5_a_watch_reaches_revisions_outside_its_prefix(store: MetaStore) -> None:
    await store.commit({}, {"a": b""})
    async with asyncio.timeout(10), aclosing(store.watch("z", 0)) as changes:
        async for change in changes:
            assert change.events == ()
            if change.revision == 1:
                break


async def test_a_watch_from_the_future_waits_for_it(store: MetaStore) -> None:
    watching = asyncio.create_task(_take(store, "", 2, 1))
    for number in range(3):
        await store.commit({}, {f"k{number}": b""})
    assert [change.revision for change in await watching] == [3]


async def test_sto_4_a_watch_goes_on_where_it_was_after_the_store_is_opened_again(workshop: Workshop) -> None:
    first = await workshop.open()
    for number in range(100):
        await first.commit({}, {"a": b"%d" % number})
    seen = await _take(first, "", 0, 40)
    await first.close()
    second = await workshop.open()
    assert (await second.list("")).revision == 100
    await second.commit({}, {"a": b"last"})
    rest = await _take(second, "", seen[-1].revision, 61)
    assert [change.revision for change in (*seen, *rest)] == list(range(1, 102))
    assert rest[-1].events[0].entry == Entry("a", b"last", 1, 101)


async def test_a_watch_of_forgotten_history_says_where_it_begins(workshop: Workshop) -> None:
    store = await workshop.open()
    for _ in range(HISTORY + 50):
        await store.commit({}, {"a": b""})
    await workshop.forget_old_history(store)
    with pytest.raises(RevisionCompacted) as caught:
        await _take(store, "", 49, 1)
    assert caught.value.oldest_revision == 51
    assert [change.revision for change in await _take(store, "", 50, 150)] == list(range(51, 201))


async def test_a_waiting_watch_ends_when_the_store_is_closed(store: MetaStore) -> None:
    watching = asyncio.create_task(_take(store, "", 0, 1))
    await asyncio.sleep(0.01)
    await store.close()
    assert await asyncio.wait_for(watching, 5) == []


async def test_a_closed_store_refuses_every_call_and_may_be_closed_twice(store: MetaStore) -> None:
    await store.close()
    await store.close()
    for attempt in (store.get("a"), store.list(""), store.commit({}, {}), store.grant(1), store.revoke(LeaseId(1))):
        with pytest.raises(StoreClosed):
            await attempt


async def test_keys_go_with_their_lease_in_one_revision(workshop: Workshop) -> None:
    store = await workshop.open()
    lease = await store.grant(workshop.lease_ms)
    await store.commit({}, {"a": b"", "b": b""}, lease=lease)
    await store.commit({}, {"c": b""})
    assert await store.get("a") is not None
    await workshop.let_run_out(lease)
    assert [entry.key for entry in (await store.list("")).entries] == ["c"]
    assert await _take(store, "", 2, 1) == [Change(3, (Event("a", None), Event("b", None)))]


async def test_a_key_put_again_hangs_on_the_lease_it_was_last_put_under(workshop: Workshop) -> None:
    store = await workshop.open()
    first, second = await store.grant(60 * workshop.lease_ms), await store.grant(60 * workshop.lease_ms)
    await store.commit({}, {"moved": b"1", "freed": b"1", "left": b"1"}, lease=first)
    await store.commit({}, {"moved": b"2"}, lease=second)
    await store.commit({}, {"freed": b"2"})
    await store.revoke(first)
    assert await store.get("left") is None
    for key in ("moved", "freed"):
        entry = await store.get(key)
        assert entry is not None
        assert entry.value == b"2"
    await store.revoke(second)
    assert await store.get("moved") is None
    assert await store.get("freed") is not None


async def test_a_kept_lease_lives_on(workshop: Workshop) -> None:
    store = await workshop.open()
    lease = await store.grant(2 * workshop.lease_ms)
    await store.commit({}, {"a": b""}, lease=lease)
    for _ in range(3):
        await workshop.let_pass(workshop.lease_ms)
        await store.keep_alive(lease)
    assert await store.get("a") is not None


async def test_sto_6_an_expired_lease_is_lost_for_every_use(workshop: Workshop) -> None:
    store = await workshop.open()
    lease = await store.grant(workshop.lease_ms)
    await workshop.let_run_out(lease)
    with pytest.raises(LeaseLost):
        await store.keep_alive(lease)
    with pytest.raises(LeaseLost):
        await store.commit({}, {"a": b""}, lease=lease)
    assert await store.get("a") is None
    await store.revoke(lease)
    assert await store.grant(1) != lease


async def test_a_lost_comparison_comes_before_a_lost_lease(store: MetaStore) -> None:
    lease = await store.grant(1_000)
    await store.revoke(lease)
    assert await store.commit({"a": 7}, {"a": b""}, lease=lease) == (False, 0)
    assert await store.commit({}, {}, ["a"], lease=lease) == (True, 0)


async def test_a_revoked_lease_takes_its_keys_at_once(store: MetaStore) -> None:
    lease = await store.grant(1_000)
    await store.commit({}, {"a": b""}, lease=lease)
    await store.revoke(lease)
    assert await store.get("a") is None
    with pytest.raises(LeaseLost):
        await store.keep_alive(lease)


async def test_a_key_put_without_a_lease_leaves_the_one_it_had(workshop: Workshop) -> None:
    store = await workshop.open()
    lease = await store.grant(workshop.lease_ms)
    await store.commit({}, {"a": b"1"}, lease=lease)
    await store.commit({}, {"a": b"2"})
    await workshop.let_run_out(lease)
    assert await store.get("a") is not None


async def test_sto_6_leases_run_out_while_the_store_is_closed(workshop: Workshop) -> None:
    store = await workshop.open()
    lease = await store.grant(workshop.lease_ms)
    await store.commit({}, {"a": b""}, lease=lease)
    await store.close()
    await workshop.let_run_out(lease)
    again = await workshop.open()
    assert await again.get("a") is None
    assert await again.grant(1_000) != lease


async def test_a_waiting_watch_sees_a_lease_run_out_without_any_call(workshop: Workshop) -> None:
    store = await workshop.open()
    watching = asyncio.create_task(_take(store, "", 1, 1))
    lease = await store.grant(20)
    await store.commit({}, {"a": b""}, lease=lease)
    await workshop.let_run_out(lease)
    assert await watching == [Change(2, (Event("a", None),))]


async def test_commits_of_many_tasks_lose_no_update(store: MetaStore) -> None:
    async def add_one() -> None:
        while True:
            entry = await store.get("n")
            value = int(entry.value) if entry is not None else 0
            revision = entry.mod_revision if entry is not None else 0
            if (await store.commit({"n": revision}, {"n": b"%d" % (value + 1)})).succeeded:
                return

    await asyncio.gather(*(add_one() for _ in range(20)))
    entry = await store.get("n")
    assert entry is not None
    assert entry.value == b"20"
