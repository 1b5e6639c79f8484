"""What a broker process takes from the machine it runs on, gathered so that a simulated one can take its place.

Everything else a broker does goes through the running event loop. The defaults are the real thing.
"""

import contextlib
import resource
import socket
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass, field

from martlet.base.addresses import Address
from martlet.base.clock import Clock, SystemClock
from martlet.base.disk import Disk, SystemDisk
from martlet.base.randomness import Randomness, SystemRandomness
from martlet.broker.ground.background import RunInBackground, run_in_thread
from martlet.broker.ground.workers import MakeWorkers, ThreadWorkers
from martlet.broker.membership.directory_lock import hold_directory
from martlet.broker.membership.metadata_store import OpenStore, open_metadata_store
from martlet.broker.serving.listener import bind


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
    open_store: OpenStore = open_metadata_store
    """Opens a connection of the caller's own to the metadata store that the settings name."""
    run_in_background: RunInBackground = run_in_thread
    """Runs what must go on while the event loop is busy; in a simulation a task does (`run_as_task`)."""
    make_workers: MakeWorkers = ThreadWorkers
    """Makes those who wait for the device; in a simulation the loop does (`LoopWorkers`)."""
    host_name: Callable[[], str] = socket.gethostname
    """How other machines may find this one when nothing else is known."""
    bind: Callable[[Address], socket.socket] = bind
    hold_directory: Callable[[str], AbstractContextManager[None]] = hold_directory
    allow_files: Callable[[], int] = raise_file_limit
    """Allow this process as many open files as can be had; returns how many."""
