"""One etcd for all tests of a worker that do it no harm, and its workshop."""

import asyncio
import itertools
from collections.abc import AsyncIterator, Iterator

import pytest

from martlet.cluster.store import LeaseId, MetaStore
from martlet.stores.etcd import EtcdStore
from martlet.stores.etcd_options import EtcdAddress, EtcdOptions
from tests.stores.etcd_process import EtcdProcess
from tests.stores.relative_store import RelativeStore
from tests.unit.stores.store_workshop import HISTORY

_LEASE_ENDS_WITHIN_SECONDS = 15.0


class EtcdWorkshop:
    """Stores on a shared etcd, each workshop under a prefix of its own; leases run by real time."""

    lease_ms = 1_000
    _numbers = itertools.count()

    def __init__(self, etcd: EtcdProcess) -> None:
        self.etcd = etcd
        self.address: EtcdAddress = etcd.address(f"test-{next(self._numbers)}")
        self.base = etcd.revision()
        self._opened: list[MetaStore] = []
        self._leases_before = set(self._leases())

    async def open(self) -> MetaStore:
        store = RelativeStore(await EtcdStore.open(EtcdOptions(self.address)), self.base)
        self._opened.append(store)
        return store

    async def let_pass(self, elapsed_ms: int) -> None:
        await asyncio.sleep(elapsed_ms / 1000)

    async def let_run_out(self, lease: LeaseId) -> None:
        async with asyncio.timeout(_LEASE_ENDS_WITHIN_SECONDS):
            while int(self.etcd.call("/v3/lease/timetolive", {"ID": str(lease)}).get("TTL", 0)) >= 0:
                await asyncio.sleep(0.05)

    async def forget_old_history(self, store: MetaStore) -> None:
        self.etcd.compact(self.etcd.revision() - HISTORY)

    async def close(self) -> None:
        for store in self._opened:
            await store.close()
        # A lease that ran out later would move the revision under the next test.
        for lease in set(self._leases()) - self._leases_before:
            self.etcd.call("/v3/lease/revoke", {"ID": lease})

    def _leases(self) -> list[str]:
        return [lease["ID"] for lease in self.etcd.call("/v3/lease/leases", {}).get("leases", [])]


@pytest.fixture(scope="session")
def etcd(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EtcdProcess]:
    with EtcdProcess(tmp_path_factory.mktemp("etcd")) as process:
        yield process


@pytest.fixture
async def workshop(etcd: EtcdProcess) -> AsyncIterator[EtcdWorkshop]:
    made = EtcdWorkshop(etcd)
    yield made
    await made.close()
