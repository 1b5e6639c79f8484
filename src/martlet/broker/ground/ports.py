"""What a broker process takes from the machine it runs on, gathered so that a simulated machine can take its place.

Everything else a broker does goes through the running event loop. The real thing is in `broker/machine_ports.py`.
"""

import socket
from collections.abc import Awaitable, Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import TypeAlias

from martlet.base.addresses import Address
from martlet.base.clock import Clock
from martlet.base.disk import Disk
from martlet.base.randomness import Randomness
from martlet.base.threads import MakeWorkers, RunInBackground
from martlet.broker.ground.settings import BrokerSettings
from martlet.cluster.store import MetaStore

OpenStore: TypeAlias = Callable[[BrokerSettings, Clock], Awaitable[MetaStore]]


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerPorts:
    """The outside of one broker process."""

    clock: Clock
    disk: Disk
    randomness: Randomness
    open_store: OpenStore
    """Opens a connection of the caller's own to the metadata store that the settings name."""
    run_in_background: RunInBackground
    """Runs what must go on while the event loop is busy; in a simulation a task does (`run_as_task`)."""
    make_workers: MakeWorkers
    """Makes the workers that wait for the device; in a simulation the loop does (`LoopWorkers`)."""
    host_name: Callable[[], str]
    """How other machines may find this one when nothing else is known."""
    bind: Callable[[Address], socket.socket]
    """Takes an address without serving it yet, so that the port is known before the broker is ready."""
    hold_directory: Callable[[str], AbstractContextManager[None]]
    """Keeps other processes out of a data directory."""
    allow_files: Callable[[], int]
    """Allows this process as many open files as can be had; returns how many."""
