"""A real etcd that is killed, paused, full or elsewhere: what the store says, and that a watch goes on where it was."""

import asyncio
import itertools
from collections.abc import AsyncIterator, Iterator
from contextlib import aclosing, asynccontextmanager
from pathlib import Path

import pytest

from martlet.cluster.store import (
    Change,
    StoreError,
    StoreRefused,
    StoreReplaced,
    StoreUnavailable,
    UnknownOutcome,
)
from martlet.stores.etcd import EtcdStore
from martlet.stores.etcd_options import EtcdAddress, EtcdEndpoint, EtcdLimits, EtcdOptions
from tests.stores.etcd_process import EtcdProcess

_QUICK = EtcdLimits(connect_seconds=0.5, request_seconds=0.5, probe_seconds=0.5)


@pytest.fixture
def own_etcd(tmp_path: Path) -> Iterator[EtcdProcess]:
    """An etcd that the test may harm."""
    with EtcdProcess(tmp_path / "etcd") as process:
        yield process


@asynccontextmanager
async def opened(*endpoints: EtcdEndpoint, limits: EtcdLimits = _QUICK) -> AsyncIterator[EtcdStore]:
    store = await EtcdStore.open(EtcdOptions(EtcdAddress(endpoints, "/test/"), limits=limits))
    try:
        yield store
    finally:
        await store.close()


class Following:
    """A reader of a watch that starts it again when the store cannot be reached, as a broker does."""

    def __init__(self, store: EtcdStore) -> None:
        self._store = store
        self.seen: list[Change] = []
        self._moved = asyncio.Event()
        self._task = asyncio.create_task(self._run())

    async def _run(self) -> None:
        position = 0
        while True:
            try:
                async with aclosing(self._store.watch("", position)) as changes:
                    async for change in changes:
                        position = change.revision
                        self.seen.append(change)
                        self._moved.set()
            except StoreUnavailable:
                await asyncio.sleep(0.05)

    async def until(self, revision: int) -> None:
        async with asyncio.timeout(20):
            while not self.seen or self.seen[-1].revision < revision:
                self._moved.clear()
                await self._moved.wait()

    @property
    def values(self) -> list[bytes | None]:
        return [event.entry and event.entry.value for change in self.seen for event in change.events]

    async def failure(self) -> BaseException | None:
        """What ended it."""
        await asyncio.wait([self._task], timeout=20)
        return self._task.exception()

    async def stop(self) -> None:
        self._task.cancel()
        await asyncio.wait([self._task])


async def test_a_watch_goes_on_where_it_was_after_kill_and_restart(own_etcd: EtcdProcess) -> None:
    async with opened(own_etcd.endpoint) as store:
        following = Following(store)
        for number in range(6):
            result = await store.commit({}, {"a": b"%d" % number})
            if number % 2:
                await following.until(result.revision)
            await own_etcd.restart()
        await following.until(result.revision)
        assert following.values == [b"%d" % number for number in range(6)]
        await following.stop()


async def test_a_call_to_a_dead_etcd_says_that_nothing_happened(own_etcd: EtcdProcess) -> None:
    async with opened(own_etcd.endpoint) as store:
        own_etcd.kill()
        for attempt in (store.get("a"), store.list(""), store.commit({}, {"a": b""}), store.grant(1_000)):
            with pytest.raises(StoreUnavailable, match=rf"etcd at {own_etcd.endpoint}: .*listen-client-urls"):
                await attempt
        own_etcd.start()
        assert await store.get("a") is None
        assert (await store.commit({}, {"a": b""})).succeeded


async def test_a_commit_to_a_paused_etcd_has_an_unknown_outcome_and_is_sent_once(own_etcd: EtcdProcess) -> None:
    async with opened(own_etcd.endpoint) as store:
        before = (await store.commit({}, {"a": b"0"})).revision
        own_etcd.pause()
        with pytest.raises(UnknownOutcome, match=r"no answer within 0\.5 s"):
            await store.commit({}, {"a": b"1"})
        with pytest.raises(StoreUnavailable):
            await store.get("a")
        own_etcd.resume()
        found = await store.get("a")
        assert found is not None
        # It happens when etcd goes on, or not at all; but never twice.
        assert found.mod_revision in (before, before + 1)
        assert (await store.commit({}, {"b": b""})).revision <= before + 2


async def test_a_watch_on_a_paused_etcd_is_given_up_and_resumed(own_etcd: EtcdProcess) -> None:
    async with opened(own_etcd.endpoint) as store:
        following = Following(store)
        first = await store.commit({}, {"a": b"0"})
        await following.until(first.revision)
        own_etcd.pause()
        with pytest.raises(StoreUnavailable):
            await store.get("a")
        own_etcd.resume()
        last = await store.commit({}, {"a": b"1"})
        await following.until(last.revision)
        assert following.values == [b"0", b"1"]
        await following.stop()


async def test_the_next_endpoint_is_used_when_one_fails(own_etcd: EtcdProcess, tmp_path: Path) -> None:
    dead = EtcdProcess(tmp_path / "dead")
    dead.start()
    dead.kill()
    async with opened(dead.endpoint, own_etcd.endpoint) as store:
        assert (await store.commit({}, {"a": b"1"})).succeeded
        assert await store.get("a") is not None
        following = Following(store)
        await following.until((await store.commit({}, {"a": b"2"})).revision)
        assert following.values == [b"1", b"2"]
        await following.stop()


async def _refusal(*endpoints: EtcdEndpoint) -> StoreError:
    with pytest.raises(StoreError) as caught:
        await EtcdStore.open(EtcdOptions(EtcdAddress(endpoints, "/test/"), limits=_QUICK))
    return caught.value


async def _commit_for_ever(store: EtcdStore) -> None:
    for number in itertools.count():
        await store.commit({}, {f"k{number}": bytes(50_000)})


async def test_endpoints_of_two_clusters_are_refused(own_etcd: EtcdProcess, tmp_path: Path) -> None:
    with EtcdProcess(tmp_path / "other", flags=["--initial-cluster-token", "other"]) as other:
        error = await _refusal(own_etcd.endpoint, other.endpoint)
    assert isinstance(error, StoreReplaced)
    assert "belongs to cluster" in str(error)


async def test_an_etcd_that_was_recreated_is_not_the_store_it_was(own_etcd: EtcdProcess, tmp_path: Path) -> None:
    async with opened(own_etcd.endpoint) as store:
        for _ in range(3):
            await store.commit({}, {"a": b""})
        following = Following(store)
        own_etcd.kill()
        (tmp_path / "etcd" / "data").rename(tmp_path / "lost")
        own_etcd.start()
        # The same name, token and addresses make the same cluster id; only the revision tells.
        for _ in range(2):
            with pytest.raises(StoreReplaced, match="is at revision 1 but was at 4"):
                await store.get("a")
        with pytest.raises(StoreReplaced):
            await store.commit({}, {"a": b""})
        assert isinstance(await following.failure(), StoreReplaced)


async def test_a_full_etcd_says_what_to_do(tmp_path: Path) -> None:
    flags = ["--quota-backend-bytes", "200000"]
    with EtcdProcess(tmp_path / "etcd", flags=flags) as full:
        async with opened(full.endpoint) as store:
            with pytest.raises(UnknownOutcome, match="no space left and takes no writes: compact"):
                await _commit_for_ever(store)
            assert await store.get("k0") is not None
            assert (await store.commit({}, {}, ["k0"])).succeeded


async def test_an_etcd_without_its_gateway_is_refused(tmp_path: Path) -> None:
    with EtcdProcess(tmp_path / "etcd", flags=["--enable-grpc-gateway=false"]) as bare:
        error = await _refusal(bare.endpoint)
    assert isinstance(error, StoreRefused)
    assert f"{bare.endpoint}: it has no JSON gateway; start etcd without" in str(error)


async def test_limits_below_etcds_defaults_are_named(tmp_path: Path) -> None:
    with EtcdProcess(tmp_path / "etcd", flags=["--max-txn-ops", "10"]) as narrow:
        async with opened(narrow.endpoint) as store:
            with pytest.raises(StoreRefused, match="too many operations in txn request; Martlet needs"):
                await store.commit({}, {f"k{number}": b"" for number in range(11)})
            assert (await store.list("")).entries == ()
