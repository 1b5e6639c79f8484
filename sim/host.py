"""One simulated machine: its disk, its clock, its place in the network and the one process that runs on it.

A machine outlives its processes. `start` begins a process with an event loop of its own; `crash` ends it on the spot,
with nothing of it running any more, and does to the disk what the kind of crash does; `start` after that is a
restart. `pause` is SIGSTOP: nothing of the process runs while time goes on, while its kernel still takes what
the network brings.
"""

import asyncio
from asyncio import events
from collections.abc import Callable, Coroutine
from typing import TYPE_CHECKING, Any, Final

from martlet.base.invariant import invariant
from sim.disk import SimDisk
from sim.failing_device import SimCrash
from sim.host_clock import HostClock
from sim.loop import SimLoop
from sim.network import MachineNetwork
from sim.randomness import SimRandomness
from sim.remote_store import STORE_NAME, RemoteStore
from sim.scheduler import NS_PER_MS

if TYPE_CHECKING:
    from sim.world import SimWorld

_BOOT_ID_FILE: Final = "/proc/sys/kernel/random/boot_id"

Main = Callable[[], Coroutine[Any, Any, object]]


class HostDisk(SimDisk):
    """A machine's disk: it knows the boot id, and running into `stop_after` takes the machine's process with it."""

    def __init__(self, randomness: SimRandomness, *, capacity_bytes: int | None = None) -> None:
        super().__init__(randomness, capacity_bytes=capacity_bytes)
        self.boot_id = b""
        self.on_stopped: Callable[[], None] = lambda: None

    def read_file(self, path: str) -> bytes | None:
        return self.boot_id if path == _BOOT_ID_FILE else super().read_file(path)

    def check_running(self) -> None:
        try:
            super().check_running()
        except SimCrash:
            self.on_stopped()
            raise


class SimHost:
    """Made by `SimWorld.add_host`."""

    def __init__(self, world: "SimWorld", name: str, network: MachineNetwork, disk: HostDisk, clock: HostClock) -> None:
        self.name = name
        self.clock = clock
        self.disk = disk
        self.network = network
        self.loop: SimLoop | None = None
        self.main: asyncio.Task[object] | None = None
        """The process' first task; done when the process has ended by itself."""
        self.failures: list[BaseException] = []
        """What main functions of its processes raised."""
        self.starts = 0
        self.boots = 0
        self.randomness = SimRandomness()
        self.dies_by_power = True
        """What `disk.stop_after` does to the machine: power loss, or only the process' end."""
        self.on_crashed: Callable[[bool], None] = lambda power_loss: None
        """Called after a crash has done to the disk what it does, and whether it was a power loss; for judges."""
        self._world = world
        self._has_power = False
        self._loops: list[SimLoop] = []
        self._resumes_at_ns = 0
        disk.on_stopped = self._stopped_by_disk
        self._power_on()

    @property
    def is_running(self) -> bool:
        """Whether a process runs here, be it stopped by `pause`."""
        return self.loop is not None and not self.loop.is_dead

    def start(self, main: Main) -> None:
        """Begin a process; on a machine without power that switches it on."""
        invariant(not self.is_running, f"{self.name} runs a process already")
        if not self._has_power:
            self._power_on()
        self.starts += 1
        self.randomness = self._world.randomness.stream(f"process {self.name} {self.starts}")
        self._note(f"start {self.starts}")
        self.loop = loop = SimLoop(
            self._world.scheduler,
            self.name,
            randomness=self._world.randomness.stream(f"work {self.name} {self.starts}"),
            network=self.network,
            local_time=self.clock,
        )
        self._loops.append(loop)
        self.main = loop.create_task(self._run(main), name="main")
        self.main.add_done_callback(lambda _: self._main_done(loop))

    async def _run(self, main: Main) -> object:
        # The factory is called inside, because constructors may want the running loop.
        return await main()

    def store(self) -> RemoteStore:
        """A new connection to the world's metadata store; to be called by the process itself."""
        network = self._world.network
        there, back = network.link(self.name, STORE_NAME), network.link(STORE_NAME, self.name)
        return RemoteStore(self._world.store_server, there, back, client=self.name)

    # --- faults

    def crash(self, *, power_loss: bool) -> None:
        """End the process without any of its `finally`; with a power loss, all that was not synced is at risk."""
        calls_itself = self.loop is not None and events._get_running_loop() is self.loop  # noqa: SLF001
        self._crash(power_loss=power_loss, still_unwinds=calls_itself)

    def _crash(self, *, power_loss: bool, still_unwinds: bool) -> None:
        if self.loop is None or not self._has_power:
            return
        self._note("power loss" if power_loss else "kill")
        self.loop.kill()
        if power_loss:
            self._has_power = False
            self._world.network.power_lost(self.name)
        else:
            self._world.network.process_died(self.name)
        if still_unwinds:
            # What still unwinds must find a disk that refuses everything, not one that is back already.
            self.disk.stop_after(-1)
            self._world.scheduler.alarm_in(0, lambda: self._finish_crash(power_loss=power_loss))
        else:
            self._finish_crash(power_loss=power_loss)

    def pause(self, for_ms: int) -> None:
        """Stop the process and let it go on after that time."""
        loop = self.loop
        if loop is None or loop.is_dead:
            return
        self._note(f"pause {for_ms}")
        loop.pause()
        scheduler = self._world.scheduler
        self._resumes_at_ns = max(self._resumes_at_ns, scheduler.now_ns + for_ms * NS_PER_MS)
        scheduler.alarm_at(self._resumes_at_ns, lambda: self._resume(loop))

    def _resume(self, loop: SimLoop) -> None:
        if self._world.scheduler.now_ns >= self._resumes_at_ns and not loop.is_dead:
            self._note("resume")
            loop.resume()

    def stall_disk(self, for_ms: int) -> None:
        """The device does not answer for that time; what needs no device goes on."""
        if self.loop is not None and not self.loop.is_dead:
            self._note(f"disk stall {for_ms}")
            self.loop.workers.hold(self._world.scheduler.now_ns + for_ms * NS_PER_MS)

    def wipe_disk(self) -> None:
        """Take the machine's power, and give it back with an empty disk."""
        self.crash(power_loss=True)
        self._note("wipe")
        self.disk.wipe()

    # --- endings

    def _stopped_by_disk(self) -> None:
        if self.is_running:
            self._crash(power_loss=self.dies_by_power, still_unwinds=True)

    def _finish_crash(self, *, power_loss: bool) -> None:
        self.disk.crash("power" if power_loss else "process")
        self.on_crashed(power_loss)

    def _main_done(self, loop: SimLoop) -> None:
        """The process' main function has returned: end as `asyncio.run` does, by cancelling what is left."""
        error = self.main.exception() if self.main is not None and not self.main.cancelled() else None
        self._note("exit" if error is None else f"exit {type(error).__name__}")
        if error is not None:
            self.failures.append(error)
        others = [task for task in loop.unfinished_tasks() if task is not self.main]
        for task in others:
            task.cancel()
        loop.create_task(self._exit(loop, others), name="exit")

    async def _exit(self, loop: SimLoop, others: list[Any]) -> None:
        await asyncio.gather(*others, return_exceptions=True)
        loop.kill()
        self._world.network.process_died(self.name)
        self._world.scheduler.alarm_in(0, lambda: self._finish_crash(power_loss=False))

    def bury(self) -> None:
        """When the world ends: close what all processes of this machine left behind."""
        for loop in self._loops:
            loop.bury()

    def unhandled(self) -> list[dict[str, Any]]:
        """What callbacks and forgotten tasks of all its processes raised."""
        return [context for loop in self._loops for context in loop.unhandled]

    def _power_on(self) -> None:
        self._has_power = True
        self.boots += 1
        self.disk.boot_id = f"{self.name} boot {self.boots}\n".encode()
        self._world.network.power_back(self.name)

    def _note(self, what: str) -> None:
        self._world.scheduler.note(self.name, what)
