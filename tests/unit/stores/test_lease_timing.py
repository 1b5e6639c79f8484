"""Stores that keep their leases by our clock keep them to the millisecond."""

from martlet.cluster.store import LeaseLost
from tests.unit.stores.store_workshop import LocalWorkshop


async def test_a_lease_lives_to_its_last_millisecond(workshop: LocalWorkshop) -> None:
    store = await workshop.open()
    lease = await store.grant(1_000)
    await store.commit({}, {"a": b""}, lease=lease)
    workshop.clock.advance(999)
    assert await store.get("a") is not None
    workshop.clock.advance(1)
    assert await store.get("a") is None


async def test_keeping_a_lease_alive_gives_it_its_full_time_from_then(workshop: LocalWorkshop) -> None:
    store = await workshop.open()
    lease = await store.grant(1_000)
    for _ in range(5):
        workshop.clock.advance(999)
        await store.keep_alive(lease)
    workshop.clock.advance(1_000)
    try:
        await store.keep_alive(lease)
    except LeaseLost:
        return
    raise AssertionError("the lease outlived its time")
