"""Opens the metadata store that the settings name: a file next to the data, or an etcd cluster.

A mistake in the settings, or a store that will not have us, is an error that says what to do; a store that cannot be
reached yet is waited for a while, because brokers and their store are started in any order.

Proved by: tests/unit/broker/membership/test_metadata_store.py
"""

import asyncio
import logging
import os
from collections.abc import Awaitable, Callable
from typing import Final, TypeVar

from martlet.base.clock import Clock
from martlet.broker.ground.settings import BrokerSettings
from martlet.cluster.store import MetaStore, StoreRefused, StoreUnavailable

logger = logging.getLogger(__name__)

METADATA_FILE: Final = "metadata.sqlite"

WAIT_MS_MAX: Final = 30_000
"""After this a start has failed, and the program that runs the broker decides."""

_RETRY_SECONDS: Final = 0.5
_Done = TypeVar("_Done")


async def open_metadata_store(settings: BrokerSettings, clock: Clock) -> MetaStore:
    """Open it once; each caller gets a connection of its own."""
    if settings.metadata:
        return await _open_etcd(settings)
    _check_no_credentials(settings)
    from martlet.stores.sqlite import SqliteStore

    # Shared, because other brokers of this host may use the same file.
    return await SqliteStore.open(os.path.join(settings.data, METADATA_FILE), clock=clock, shared=True)


async def _open_etcd(settings: BrokerSettings) -> MetaStore:
    # Half of the brokers of this world have a file and never need this.
    from martlet.stores.etcd import EtcdStore
    from martlet.stores.etcd_options import EtcdOptions, EtcdTls, parse_etcd_address

    tls = None
    if settings.metadata_ca or settings.metadata_cert or settings.metadata_key:
        tls = EtcdTls(settings.metadata_ca or None, settings.metadata_cert or None, settings.metadata_key or None)
    options = EtcdOptions(
        parse_etcd_address(settings.metadata), tls, settings.metadata_user or None, _read_password(settings)
    )
    return await EtcdStore.open(options)


def _read_password(settings: BrokerSettings) -> str:
    path = settings.metadata_password_file
    if not path:
        return ""
    try:
        with open(path, encoding="utf-8") as file:
            return file.read().strip()
    except (OSError, UnicodeDecodeError) as error:
        raise StoreRefused(f"metadata_password_file {path} cannot be read: {error}") from error


def _check_no_credentials(settings: BrokerSettings) -> None:
    for name in ("metadata_user", "metadata_password_file", "metadata_ca", "metadata_cert", "metadata_key"):
        if getattr(settings, name):
            raise StoreRefused(f"{name} was given without the address it is for: set `metadata` to etcd://HOST:PORT")


async def until_reached(attempt: Callable[[], Awaitable[_Done]], clock: Clock) -> _Done:
    """What the start asks of the store first, tried again for a while if it cannot be reached."""
    deadline_ms = clock.monotonic_ms() + WAIT_MS_MAX
    is_said = False
    while True:
        try:
            return await attempt()
        except StoreUnavailable as error:
            if clock.monotonic_ms() > deadline_ms:
                raise
            if not is_said:
                is_said = True
                logger.warning("metadata: %s; trying again for %d s", error, WAIT_MS_MAX // 1000)
            await asyncio.sleep(_RETRY_SECONDS)
