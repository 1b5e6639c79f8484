"""Opening the metadata store that the settings name: which one, with what, and what wrong settings come to."""

from pathlib import Path
from typing import Any

import pytest
from sim.clock import SimClock
from sim.store import SimStore

from martlet.broker.ground.settings import BrokerSettings
from martlet.broker.membership.metadata_store import METADATA_FILE, WAIT_MS_MAX, open_metadata_store, until_reached
from martlet.cluster.store import MetaStore, StoreRefused, StoreUnavailable


async def test_without_an_address_the_metadata_are_in_a_file_beside_the_data(tmp_path: Path) -> None:
    store = await open_metadata_store(BrokerSettings(data=str(tmp_path)), SimClock())
    await store.close()
    assert (tmp_path / METADATA_FILE).exists()


async def test_two_processes_on_one_file_see_what_the_other_does(tmp_path: Path) -> None:
    one = await open_metadata_store(BrokerSettings(data=str(tmp_path)), SimClock())
    other = await open_metadata_store(BrokerSettings(data=str(tmp_path)), SimClock())
    changes = one.watch("", 0)
    await other.commit({}, {"a": b"1"})
    assert [event.key for event in (await anext(changes)).events] == ["a"]
    await changes.aclose()
    await one.close()
    await other.close()


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"metadata": "zookeeper://one"}, "no etcd address"),
        ({"metadata": "etcd://one:1", "metadata_password_file": "/nowhere/password"}, "cannot be read"),
        ({"metadata": "etcd://one:1", "metadata_key": "k"}, "without its certificate"),
        ({"metadata": "etcd://one:1", "metadata_ca": "/nowhere/ca"}, "cannot be read"),
        ({"metadata_user": "martlet"}, "metadata_user was given without the address"),
    ],
)
async def test_settings_that_cannot_work_are_refused_with_the_reason(
    settings: dict[str, Any], words: str, tmp_path: Path
) -> None:
    with pytest.raises(StoreRefused, match=words):
        await open_metadata_store(BrokerSettings(data=str(tmp_path), **settings), SimClock())


async def test_a_password_without_a_user_is_refused(tmp_path: Path) -> None:
    (tmp_path / "password").write_text("secret\n")
    settings = BrokerSettings(metadata="etcd://one:1", metadata_password_file=str(tmp_path / "password"))
    with pytest.raises(StoreRefused, match="without a user"):
        await open_metadata_store(settings, SimClock())


async def test_a_store_that_is_late_is_waited_for_but_not_for_ever() -> None:
    clock = SimClock()
    missing = 3

    async def open_late() -> MetaStore:
        nonlocal missing
        missing -= 1
        if missing >= 0:
            clock.advance(WAIT_MS_MAX // 3)
            raise StoreUnavailable("not there yet")
        return SimStore(clock)

    assert isinstance(await until_reached(open_late, clock), SimStore)
    missing = 100
    with pytest.raises(StoreUnavailable):
        await until_reached(open_late, clock)
