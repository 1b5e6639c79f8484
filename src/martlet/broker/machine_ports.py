"""The real machine behind a broker: its clock, disk, threads, sockets and metadata store."""

import contextlib
import resource
import socket

from martlet.base.clock import SystemClock
from martlet.base.disk import SystemDisk
from martlet.base.randomness import SystemRandomness
from martlet.base.threads import ThreadWorkers, run_in_thread
from martlet.broker.ground.ports import BrokerPorts
from martlet.broker.membership.directory_lock import hold_directory
from martlet.broker.membership.metadata_store import open_metadata_store
from martlet.broker.serving.server import bind


def machine_ports() -> BrokerPorts:
    """What a broker takes from this machine."""
    return BrokerPorts(
        clock=SystemClock(),
        disk=SystemDisk(),
        randomness=SystemRandomness(),
        open_store=open_metadata_store,
        run_in_background=run_in_thread,
        make_workers=ThreadWorkers,
        host_name=socket.gethostname,
        bind=bind,
        hold_directory=hold_directory,
        allow_files=raise_file_limit,
    )


def raise_file_limit() -> int:
    """Allow as many open files as the system lets us; every segment in use and every connection is one."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft < hard:
        with contextlib.suppress(ValueError, OSError):
            resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
            return hard
    return soft
