"""What a broker process takes from the machine it runs on, gathered so that a simulated one can take its place.

Everything else a broker does goes through the running event loop. The defaults are the real thing.
"""

import contextlib
import os
import resource
import socket
from collections.abc import Awaitable, Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from typing import Final

from martlet.base.clock import Clock, SystemClock
from martlet.base.disk import Disk, SystemDisk
from martlet.base.randomness import Randomness, SystemRandomness
from martlet.broker.directory_lock import hold_directory
from martlet.broker.listener import bind
from martlet.broker.request import Address
from martlet.cluster.store import MetaStore
from martlet.stores.sqlite import SqliteStore

_METADATA_FILE: Final = "metadata.sqlite"


async def open_embedded_store(data: str, clock: Clock) -> MetaStore:
    """The metadata store of a broker that has none of its own to go to: one file beside its data."""
    return await SqliteStore.open(os.path.join(data, _METADATA_FILE), clock=clock)


def raise_file_limit() -> int:
    """Allow as many open files as the system lets us; every segment in use and every connection is one."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft < hard:
        with contextlib.suppress(ValueError, OSError):
            resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
            return hard
    return soft


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerPorts:
    """The outside of one broker process."""

    clock: Clock = field(default_factory=SystemClock)
    disk: Disk = field(default_factory=SystemDisk)
    randomness: Randomness = field(default_factory=SystemRandomness)
    open_store: Callable[[str, Clock], Awaitable[MetaStore]] = open_embedded_store
    """Given the data directory."""
    bind: Callable[[Address], socket.socket] = bind
    hold_directory: Callable[[str], AbstractContextManager[None]] = hold_directory
    allow_files: Callable[[], int] = raise_file_limit
    """Allow this process as many open files as can be had; returns how many."""
