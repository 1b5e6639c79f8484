"""A real etcd of three members that lose one of them: killed, paused, or cut off from the others."""

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import aclosing
from pathlib import Path

import pytest

from martlet.cluster.store import StoreUnavailable, UnknownOutcome
from martlet.stores.etcd import EtcdStore
from martlet.stores.etcd_options import EtcdAddress, EtcdLimits, EtcdOptions
from tests.stores.etcd_process import EtcdProcess, Place, free_port

_LIMITS = EtcdLimits(connect_seconds=0.5, request_seconds=1.0, lease_seconds=0.5, probe_seconds=0.5)


@pytest.fixture
def members(tmp_path: Path) -> Iterator[list[EtcdProcess]]:
    places = [(f"m{number}", free_port()) for number in range(3)]
    everyone = ",".join(f"{name}=http://127.0.0.1:{port}" for name, port in places)
    # Times that a busy machine can keep.
    flags = ("--heartbeat-interval", "50", "--election-timeout", "500")
    made = [EtcdProcess(tmp_path / name, flags=flags, place=Place(name, port, everyone)) for name, port in places]
    try:
        for member in made:
            member.port = free_port()
            member.start(wait=False)
        for member in made:
            member.wait_until_ready()
        yield made
    finally:
        for member in made:
            member.stop()


@pytest.fixture
async def store(members: list[EtcdProcess]) -> AsyncIterator[EtcdStore]:
    address = EtcdAddress(tuple(member.endpoint for member in members), "/test/")
    opened = await EtcdStore.open(EtcdOptions(address, limits=_LIMITS))
    yield opened
    await opened.close()


def _leader(members: list[EtcdProcess]) -> EtcdProcess:
    for member in members:
        status = member.call("/v3/maintenance/status", {})
        if status["leader"] == status["header"]["member_id"]:
            return member
    raise AssertionError("no member leads")


class Counter:
    """Adds one by compare-and-swap, again and again, through every fault; knows what the value may be."""

    def __init__(self, store: EtcdStore) -> None:
        self._store = store
        self.sure = 0
        self.unknown = 0

    async def add(self) -> None:
        """Until one addition is certain."""
        async with asyncio.timeout(30):
            while True:
                try:
                    found = await self._store.get("n")
                    value, revision = (int(found.value), found.mod_revision) if found is not None else (0, 0)
                    if (await self._store.commit({"n": revision}, {"n": b"%d" % (value + 1)})).succeeded:
                        self.sure += 1
                        return
                except UnknownOutcome:
                    self.unknown += 1
                except StoreUnavailable:
                    await asyncio.sleep(0.05)

    async def check(self) -> None:
        found = await self._store.get("n")
        assert found is not None
        assert self.sure <= int(found.value) <= self.sure + self.unknown


@pytest.mark.parametrize("fault", ["kill", "pause"])
async def test_commits_reads_leases_and_watches_go_on_without_the_leader(
    members: list[EtcdProcess], store: EtcdStore, fault: str
) -> None:
    counter = Counter(store)
    lease = await store.grant(20_000)
    seen: list[int] = []

    async def follow() -> None:
        position = 1
        while True:
            try:
                async with aclosing(store.watch("", position)) as changes:
                    async for change in changes:
                        position = change.revision
                        seen.extend(int(event.entry.value) for event in change.events if event.entry is not None)
            except StoreUnavailable:
                await asyncio.sleep(0.05)

    following = asyncio.create_task(follow())
    for _ in range(2):
        await counter.add()
        leader = _leader(members)
        await asyncio.to_thread(leader.kill if fault == "kill" else leader.pause)
        for _ in range(5):
            await counter.add()
        if fault == "kill":
            await asyncio.to_thread(leader.start)
        else:
            leader.resume()
        await store.keep_alive(lease)
    await counter.check()
    found = await store.get("n")
    assert found is not None
    last = int(found.value)
    async with asyncio.timeout(20):
        while len(seen) < last:
            await asyncio.sleep(0.02)
    assert seen == list(range(1, last + 1)), "every change, once and in order"
    following.cancel()
    await asyncio.wait([following])


async def test_a_store_without_a_majority_says_so_and_comes_back(members: list[EtcdProcess], store: EtcdStore) -> None:
    counter = Counter(store)
    await counter.add()
    for member in members[:2]:
        member.kill()
    with pytest.raises(StoreUnavailable):
        await store.get("n")
    with pytest.raises((StoreUnavailable, UnknownOutcome)):
        await store.commit({}, {"other": b""})
    for member in members[:2]:
        member.start(wait=False)
    await counter.add()
    await counter.check()
