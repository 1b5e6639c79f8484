"""What the comparison knows about a system: how it is obtained, started, measured and stopped.

`System` describes one, `Running` is one that was started in a directory: one or more processes with one address to
reach them at. A system offers only the durabilities it has. What each does to reach it stands in `configuration`, which
goes into the report word by word.
"""

import contextlib
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Any, ClassVar, Final

import psutil  # type: ignore[import-untyped]

from bench.processes import ServerProcess, run_helper

MEBIBYTE: Final = 1 << 20


class Durability(StrEnum):
    """What an acknowledgement of one node means."""

    FLUSHED = "flushed"
    """The message is on the device: it survives a power cut."""
    CACHED = "cached"
    """The kernel has it: it survives the end of the process; the device gets it later."""


class Protocol(StrEnum):
    """Who can talk to it: the load module of each is named here."""

    KAFKA = "bench.peers.load.confluent"
    NATS = "bench.peers.load.nats"
    RABBITMQ = "bench.peers.load.rabbitmq"
    REDIS = "bench.peers.load.redis"


@dataclass
class Running:
    """A started system. Its processes are ended by the code that started it."""

    system: "System"
    durability: Durability
    processes: Sequence[ServerProcess]
    servers: str
    """host:port[,host:port…]"""
    data: Path
    replication: int = 1
    companions: Sequence[int] = ()
    """Process ids of what the system needs beside its nodes, such as a metadata store: counted with them."""

    @property
    def port(self) -> int:
        return self.processes[0].port

    def _all(self) -> Iterator[psutil.Process]:
        for pid in (*(process.pid for process in self.processes), *self.companions):
            parent = psutil.Process(pid)
            yield parent
            yield from parent.children(recursive=True)

    def cpu_seconds(self) -> float:
        """Processor time of all its processes, in user and kernel."""
        times = [process.cpu_times() for process in self._all()]
        return float(sum(one.user + one.system for one in times))

    def resident_mebibytes(self) -> float:
        return float(sum(process.memory_info().rss for process in self._all()) / MEBIBYTE)

    def load(self, specification: Mapping[str, object]) -> dict[str, Any]:
        """Have the load generator of this system do something, in a process of its own."""
        return run_helper(
            self.system.protocol,
            {"servers": self.servers, "durability": self.durability, **specification},
            python=self.system.client_python(),
        )

    def create(self, queue: str, *, partitions: int = 1) -> None:
        """Make a queue, stream or topic that keeps what it is given."""
        config = self.system.topic_config(self.durability)
        more = {"partitions": partitions, "replication": self.replication, "config": config}
        self.load({"role": "create", "queue": queue, **more})


class System(ABC):
    """One product in one configuration."""

    name: ClassVar[str]
    protocol: ClassVar[Protocol]
    durabilities: ClassVar[tuple[Durability, ...]] = (Durability.FLUSHED, Durability.CACHED)
    nodes: ClassVar[tuple[int, ...]] = (1,)

    @abstractmethod
    def obtain(self) -> str:
        """Fetch what is not here yet and return the version; raises Missing."""

    @abstractmethod
    def configuration(self, durability: Durability) -> str:
        """How it is made durable to that degree, for the report."""

    @abstractmethod
    def start(
        self, directory: Path, durability: Durability, *, nodes: int = 1
    ) -> contextlib.AbstractContextManager[Running]:
        """Start it on an empty or a used directory; serves when the block is entered, is gone when it is left."""

    def client_python(self) -> str:
        """The interpreter its load generator runs in."""
        from bench.peers.systems.cache import clients_python

        return clients_python()

    def topic_config(self, durability: Durability) -> dict[str, str]:
        """The settings of a new topic, where topics decide about durability."""
        return {}


@contextlib.contextmanager
def running(
    processes: Sequence[ServerProcess], make: Callable[[], Running], *, ready: Callable[[Running], None] | None = None
) -> Iterator[Running]:
    """Start all, wait until all listen and `ready` says so; kill them in the end, because a stop is not timed here."""
    try:
        for process in processes:
            process.start()
        for process in processes:
            process.wait_listening()
        system = make()
        if ready is not None:
            ready(system)
        yield system
    finally:
        for process in processes:
            _end_tree(process)


def _end_tree(process: ServerProcess) -> None:
    try:
        children = psutil.Process(process.pid).children(recursive=True)
    except Exception:  # noqa: BLE001 - it was stopped by the workload, or never started
        children = []
    process.kill()
    for child in children:
        with contextlib.suppress(psutil.NoSuchProcess):
            child.kill()


def wait_answer(ask: Callable[[], object], seconds_max: float = 60.0) -> float:
    """Ask until it does not fail; the seconds that took."""
    started = time.perf_counter()
    while True:
        try:
            ask()
        except Exception:  # any failure means "not yet"
            if time.perf_counter() - started > seconds_max:
                raise
            time.sleep(0.05)
        else:
            return time.perf_counter() - started
