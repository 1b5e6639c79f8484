"""A whole simulated world from one seed: machines with disks and clocks, the network between them, a metadata store.

How it works: `add_host` gives a machine; `host.start(main)` runs a coroutine on it as a process, with the unchanged
code of broker and client; `run_until` lets virtual time pass until something holds. Faults are calls on hosts, network,
disks and store, made between runs, by alarms (`at_ms`), or by a process of the simulation itself.

Randomness comes in separate streams (scheduler, network per link, disk per host, work per process, workload), each
derived from the seed and its name, so that one more draw in one place leaves the others as they were.

Invariants: (SIM-16) the same seed and program give the same trace hash, in every process and under every hash seed;
(SIM-17) nothing inside touches the real world; (SIM-18) a crashed process runs nothing, and what it left behind is
closed only when the world ends. The garbage collector is off while a world is open: finalisers must not come at moments
that depend on what else the process has done.
"""

import gc
from collections.abc import Callable
from types import TracebackType
from typing import Any, Self

from martlet.base.invariant import invariant
from sim.host import HostDisk, Main, SimHost
from sim.host_clock import HostClock
from sim.link import LinkQuality
from sim.network import SimNetwork
from sim.randomness import SimRandomness
from sim.remote_store import STORE_NAME, StoreServer
from sim.run_trace import SimTrace
from sim.scheduler import NS_PER_MS, SimScheduler


class SimTimeout(AssertionError):
    """What was waited for did not happen in the virtual time given."""


class SimWorld:
    """Use as a context manager: leaving it ends everything inside."""

    def __init__(
        self,
        seed: int | str,
        *,
        quality: LinkQuality | None = None,
        shuffle: bool = True,
        steps_max: int = 20_000_000,
        keep_trace: bool = False,
    ) -> None:
        self.seed = seed
        self.randomness = SimRandomness(f"world {seed}")
        self.workload = self.randomness.stream("workload")
        """For tests: what to do when, which faults."""
        self.trace = SimTrace(keep_all=keep_trace)
        self.scheduler = SimScheduler(
            self.randomness.stream("scheduler"), self.trace, shuffle=shuffle, steps_max=steps_max
        )
        self.network = SimNetwork(self.scheduler, self.randomness.stream("network"), quality=quality)
        self.network.add_machine(STORE_NAME)
        self.clock = HostClock(self.scheduler)
        """True time; what the store and the judges of a test go by."""
        self.store_server = StoreServer(self.scheduler, self.clock)
        self.hosts: dict[str, SimHost] = {}
        self._collects_garbage = False

    def __enter__(self) -> Self:
        self._collects_garbage = gc.isenabled()
        gc.disable()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        for host in self.hosts.values():
            host.bury()
        if self._collects_garbage:
            gc.enable()

    # --- building

    def add_host(self, name: str, *, drift_ppm: int = 0, disk_capacity_bytes: int | None = None) -> SimHost:
        """A machine with power, a disk of its own and nothing running."""
        invariant(name not in self.hosts, f"there is a host {name} already")
        disk = HostDisk(self.randomness.stream(f"disk {name}"), capacity_bytes=disk_capacity_bytes)
        clock = HostClock(self.scheduler, drift_ppm=drift_ppm)
        host = self.hosts[name] = SimHost(self, name, self.network.add_machine(name), disk, clock)
        return host

    # --- time

    @property
    def now_ms(self) -> int:
        """Milliseconds since the world began."""
        return self.scheduler.now_ns // NS_PER_MS

    def at_ms(self, when_ms: int, callback: Callable[[], object]) -> None:
        """Have something happen at that moment, outside of any process: a fault, for example."""
        self.scheduler.alarm_at(when_ms * NS_PER_MS, callback)

    def run_for(self, duration_ms: int) -> None:
        """Let so much virtual time pass."""
        self.scheduler.run(lambda: False, deadline_ns=self.scheduler.now_ns + duration_ms * NS_PER_MS)

    def run_until(self, condition: Callable[[], bool], timeout_ms: int = 600_000) -> None:
        """Let time pass until the condition holds; SimTimeout names who still waits for what."""
        if not self.scheduler.run(condition, deadline_ns=self.scheduler.now_ns + timeout_ms * NS_PER_MS):
            failed = [f"{host.name} ended by {error!r}" for host in self.hosts.values() for error in host.failures]
            raise SimTimeout(
                f"seed {self.seed}: not within {timeout_ms} ms of virtual time; "
                f"{'; '.join(failed) or 'no process failed'}; waiting: {self.scheduler.describe_waiting()}"
            )

    def run_process(self, host: SimHost, main: Main, timeout_ms: int = 600_000) -> Any:
        """Start a process, wait for its end and return what it returned."""
        host.start(main)
        started = host.main
        invariant(started is not None, "a started host has a main task")
        self.run_until(lambda: not host.is_running, timeout_ms)
        return started.result() if started is not None else None

    # --- afterwards

    def trace_hash(self) -> str:
        """Names the run: equal for equal runs."""
        return self.trace.hexdigest()

    def unhandled(self) -> list[str]:
        """What callbacks and forgotten tasks raised, one line each, by host."""
        return [
            f"{host.name}: {context.get('message')}: {context.get('exception')!r}"
            for host in self.hosts.values()
            for context in host.unhandled()
        ]
