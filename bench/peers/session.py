"""One system under one workload: what a workload needs of it, and how figures become samples.

A workload is a function from a `Session` to samples without system and round, which `bench.peers` adds. A session
begins with a warm-up, because a virtual machine that compiles while it runs (Java's) is not judged then.
"""

import contextlib
import dataclasses
import itertools
import os
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from bench.batches import build_values_batch, write_bulk_requests, write_requests
from bench.peers.load.main import value_of
from bench.peers.report import CPU, RATE, Sample
from bench.peers.systems.system import Durability, Protocol, Running
from bench.processes import run_helper
from bench.rounds import MEGABYTE, Context, settle, touch_pages
from bench.throughput import publish_load

READY_MADE: Final = "ready-made requests"
CLIENT: Final = "client"
_WARMUP_BYTES: Final = 200 * MEGABYTE


@dataclass
class Session:
    """A running system and the run's sizes."""

    context: Context
    running: Running
    directory: Path
    workload: str
    _numbers: Iterator[int] = field(default_factory=itertools.count, repr=False)

    @property
    def speaks_kafka(self) -> bool:
        return self.running.system.protocol is Protocol.KAFKA

    @property
    def is_sink(self) -> bool:
        return self.running.system.name == "sink"

    @property
    def durability(self) -> Durability:
        return self.running.durability

    def queue(self, *, partitions: int = 1) -> str:
        """A fresh queue's name."""
        name = f"bench-{next(self._numbers)}"
        self.running.create(name, partitions=partitions)
        return name

    def sample(self, case: str, figure: str, unit: str, value: float, **point: float) -> Sample:
        return Sample(self.workload, case, figure, unit, value, point=point)

    def timed(
        self, case: str, run: Callable[[], Mapping[str, Any]], *, writes_bytes: int = 0, **point: float
    ) -> Iterator[Sample]:
        """Rate and processor time of something whose result says `messages` and `seconds`."""
        settle()
        if writes_bytes:
            touch_pages(self.context.work, writes_bytes)
        before = self.running.cpu_seconds()
        result = run()
        cpu = self.running.cpu_seconds() - before
        yield self.sample(case, RATE, "msg/s", result["messages"] / result["seconds"], **point)
        yield self.sample(case, CPU, "s", cpu * 1e6 / result.get("messages_in_all", result["messages"]), **point)

    def publish_ready_made(self, value_bytes: int, batch_messages: int, total_bytes: int) -> dict[str, Any]:
        """Publish ready-made requests: full batches, or of N messages each; only where Kafka is spoken."""
        queue = self.queue()
        path = self.directory / f"requests-{queue}"
        if batch_messages:
            batch = build_values_batch([value_of(value_bytes)] * batch_messages)
            requests = write_requests(path, queue, [(0, batch, batch_messages)])
        else:
            requests = write_bulk_requests(path, queue, value_bytes)
        load = publish_load(requests, self.running.port, total_bytes, error_at=requests.error_at, seconds_max=10.0)
        result = run_helper("bench.load_client", load)
        path.unlink()
        warmup = load["warmup_requests"]
        return {
            "queue": queue,
            "messages": requests.messages_of(result["requests"], warmup),
            "messages_in_all": requests.messages_of(result["requests"] + warmup),
            "seconds": result["seconds"],
        }

    def publish_by_client(self, queue: str, value_bytes: int, count: int, **more: object) -> dict[str, Any]:
        """Publish with the system's client."""
        load = {"role": "publish", "queue": queue, "value_bytes": value_bytes, "count": count, "seconds_max": 10.0}
        return self.running.load(load | more)

    def warm_up(self) -> None:
        """Have it work for some seconds."""
        is_single = len(self.running.processes) == 1
        if self.speaks_kafka and is_single:
            self.publish_ready_made(1024, 0, self.context.sized(_WARMUP_BYTES, 2 * MEGABYTE))
            self.publish_ready_made(100, 10, self.context.sized(5 * MEGABYTE, 100_000))
        count = self.context.sized(50_000 if is_single else 300_000, 500)
        queue = self.queue()
        sent = self.publish_by_client(queue, 1024, count, seconds_max=3.0)["messages"]
        self.running.load({"role": "consume", "queue": queue, "count": sent})

    def forget_pages(self) -> None:
        """Have the kernel drop what it holds of this system's files, so that the next reads come from the device.

        All is then read once and dropped again: on a virtual machine the first look at a page that has no memory
        behind it yet costs far more than the copy, and who sends from file to socket without a look would never pay.
        """
        os.sync()
        files = [path for path in self.running.data.rglob("*") if path.is_file() and not path.is_symlink()]
        block = bytearray(MEGABYTE)
        with contextlib.ExitStack() as stack:
            opened = [stack.enter_context(path.open("rb", buffering=0)) for path in files]
            for file in opened:
                os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
            for file in opened:
                while file.readinto(block):
                    pass
            for file in opened:
                os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


@dataclass(frozen=True)
class Workload:
    """What is measured of whom: with which durability, on how many nodes, on which systems."""

    name: str
    run: Callable[[Session], Iterator[Sample]]
    durabilities: tuple[Durability, ...] = (Durability.FLUSHED, Durability.CACHED)
    nodes: int = 1
    is_judged: bool = False
    """Something is asked of Martlet here: it is run in every round, and beside a tuned Kafka too."""
    kafka_only: bool = False
    with_sink: bool = False
    warms_up: bool = True


def of_system(sample: Sample, system: str, number: int) -> Sample:
    return dataclasses.replace(sample, system=system, round=number)
