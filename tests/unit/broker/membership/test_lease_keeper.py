"""The lease keeper with a real thread, a real clock and a real file: what the simulator cannot show.

What a keeper does about silence, lost leases and pauses is shown on virtual time in test_membership.py.
"""

import asyncio
import time
from collections.abc import AsyncIterator
from dataclasses import dataclass, field, replace
from pathlib import Path

import pytest

from martlet.base.clock import SystemClock
from martlet.base.disk import SystemDisk
from martlet.broker.ground.settings import BrokerSettings
from martlet.broker.ground.vital_signs import VitalSigns
from martlet.broker.machine_ports import machine_ports
from martlet.broker.membership.lease_keeper import LeaseKeeper
from martlet.broker.membership.metadata_store import open_metadata_store
from martlet.cluster.store import LeaseId, MetaStore, StoreRefused

LEASE_MS = 1_500


@dataclass
class Keeping:
    """A keeper at work, with what goes in and comes out."""

    keeper: LeaseKeeper
    vital_signs: VitalSigns
    store: MetaStore
    failures: list[BaseException] = field(default_factory=list)


@pytest.fixture
async def keeping(tmp_path: Path) -> AsyncIterator[Keeping]:
    settings = BrokerSettings(data=str(tmp_path), lease_ms=LEASE_MS)
    ports = machine_ports()
    store = await open_metadata_store(settings, SystemClock())
    failures: list[BaseException] = []
    vital_signs = VitalSigns(SystemClock(), SystemDisk(), str(tmp_path), LEASE_MS, failures.append)

    async def show(lease: LeaseId) -> bool:
        return (await store.commit({}, {"live/1": b"{}"}, lease=lease)).succeeded

    keeper = LeaseKeeper(ports, settings, store, vital_signs, show, failures.append)
    await keeper.obtain()
    keeper.start()
    vital_signs.start()
    yield Keeping(keeper, vital_signs, store, failures)
    await vital_signs.aclose()
    await keeper.aclose()
    assert await store.get("live/1") is None, "who leaves takes its key along"
    await store.close()


async def test_a_busy_event_loop_does_not_cost_the_lease(keeping: Keeping) -> None:
    end = time.monotonic() + 3 * LEASE_MS / 1000
    while time.monotonic() < end:
        await asyncio.sleep(0.01)
        time.sleep(0.3)
        assert keeping.keeper.may_act()
    assert await keeping.store.get("live/1") is not None
    assert keeping.failures == []


async def test_an_event_loop_that_does_not_turn_at_all_loses_the_lease_and_gets_another(keeping: Keeping) -> None:
    lease = keeping.keeper.lease
    keeping.vital_signs.is_alone = False
    time.sleep(3.5 * LEASE_MS / 1000)
    assert not keeping.keeper.may_act(), "asked before anything else has run"
    async with asyncio.timeout(5):
        while not keeping.keeper.may_act():
            await asyncio.sleep(0.01)
    assert keeping.keeper.lease not in (None, lease)
    assert await keeping.store.get("live/1") is not None


async def test_a_broker_that_is_alone_keeps_its_lease_however_stuck_it_is(keeping: Keeping) -> None:
    lease = keeping.keeper.lease
    time.sleep(2.5 * LEASE_MS / 1000)
    assert keeping.keeper.may_act(), "no broker could do better"
    assert keeping.keeper.lease == lease


async def test_a_store_that_refuses_the_renewals_is_a_failure_of_the_broker(tmp_path: Path) -> None:
    settings = BrokerSettings(data=str(tmp_path), lease_ms=LEASE_MS)
    store = await open_metadata_store(settings, SystemClock())
    failures: list[BaseException] = []

    async def refuse(settings: BrokerSettings, clock: object) -> MetaStore:
        raise StoreRefused("the password was changed")

    async def show(lease: LeaseId) -> bool:
        return True

    vital_signs = VitalSigns(SystemClock(), SystemDisk(), str(tmp_path), LEASE_MS, failures.append)
    keeper = LeaseKeeper(
        replace(machine_ports(), open_store=refuse), settings, store, vital_signs, show, failures.append
    )
    await keeper.obtain()
    keeper.start()
    async with asyncio.timeout(5):
        while not failures:
            await asyncio.sleep(0.01)
    assert isinstance(failures[0], StoreRefused)
    await keeper.aclose()
    await vital_signs.aclose()
    await store.close()


async def test_a_broker_that_cannot_get_another_lease_for_an_unexpected_reason_ends(keeping: Keeping) -> None:
    async def show(lease: LeaseId) -> bool:
        raise KeyError("a mistake")

    keeping.keeper._show = show
    keeping.keeper._lease_lost()
    async with asyncio.timeout(5):
        while not keeping.failures:
            await asyncio.sleep(0.01)
    assert isinstance(keeping.failures[0], KeyError)
