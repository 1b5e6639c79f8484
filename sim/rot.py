"""Bits that change on a disk while its broker is down, in one run of three; and which replicas are not mended yet.

The draws are of a stream of their own, so that runs without rot stay what they were. A bit changes where a checksum
covers it. The broker is killed for it: what a process wrote itself it does not read again for a week.
"""

from collections.abc import Iterator
from contextlib import suppress
from typing import TYPE_CHECKING, Final

from martlet.base.errors import ApiError
from martlet.base.ids import BrokerId, TopicPartition
from martlet.wire.batch import iterate_batches
from sim.disk_content import SimContent
from sim.simulated_broker import log_directory

if TYPE_CHECKING:
    from sim.cluster_run import ClusterRun

_CRC_COVERS_FROM: Final = 21
_DOWN_MS_MAX: Final = 3_000


def batches_before_a_tear(content: bytes) -> Iterator[tuple[int, int]]:
    """Position and size of each batch, up to the torn end that a power loss may have left."""
    with suppress(ApiError):
        for position, header in iterate_batches(memoryview(content)):
            yield position, header.size


class Rot:
    """One per run; tells the ghost which brokers have a replica less than they seem to."""

    def __init__(self, run: "ClusterRun") -> None:
        self.run = run
        self._draws = run.world.randomness.stream("rot")
        self._rotten: dict[tuple[BrokerId, TopicPartition], SimContent] = {}
        run.ghost.is_rotten = self._is_rotten

    @property
    def is_left(self) -> bool:
        """Whether a replica is damaged, or not in sync again since."""
        return any(self._is_rotten(broker) for broker in self.run.brokers)

    def plan(self, begin_ms: int, end_ms: int) -> None:
        """Draw when it strikes, if it does."""
        draw = self._draws.below
        if not draw(3):
            for _ in range(1 + draw(3)):
                self.run.world.at_ms(begin_ms + draw(end_ms - begin_ms), self._strike)

    def _strike(self) -> None:
        run, draw = self.run, self._draws.below
        broker = list(run.brokers)[draw(len(run.brokers))]
        found = self._choose(broker)
        if run.is_over or found is None or not run.may_lose(broker):
            return
        partition, path, bit = found
        run.stay_down(broker, run.world.now_ms + draw(_DOWN_MS_MAX))
        run.brokers[broker].crash(power_loss=False)
        content = self._rotten[broker, partition] = run.brokers[broker].disk.content(path)
        content.rot(bit)
        run.faults.struck.append(f"{run.world.now_ms} rot {broker}: bit {bit} of {path}")
        run.world.scheduler.note("fault", f"rot {broker} {bit}")

    def _choose(self, broker: BrokerId) -> tuple[TopicPartition, str, int] | None:
        """A bit of what a checksum covers, in some batch of some partition."""
        draw, disk = self._draws.below, self.run.brokers[broker].disk
        batches = [
            (partition, f"{directory}/{name}", position, size)
            for partition in sorted(self.run.ghost.store.partitions)
            for directory in [log_directory(broker, partition)]
            for name, node in sorted(disk.files(directory).items())
            if name.endswith(".log")
            for position, size in batches_before_a_tear(bytes(node.content))
        ]
        if not batches:
            return None
        partition, path, position, size = batches[draw(len(batches))]
        return partition, path, 8 * (position + _CRC_COVERS_FROM) + draw(8 * (size - _CRC_COVERS_FROM))

    def _is_rotten(self, broker: BrokerId) -> bool:
        for key in [key for key in self._rotten if key[0] == broker and self._is_mended(*key)]:
            del self._rotten[key]
        return any(key[0] == broker for key in self._rotten)

    def _is_mended(self, broker: BrokerId, partition: TopicPartition) -> bool:
        """Whether the damaged file, or that part of it, is gone, and the replica is in sync."""
        node, files = (
            self._rotten[broker, partition],
            self.run.brokers[broker].disk.files(log_directory(broker, partition)),
        )
        is_gone = not node.rotten or all(node is not other for other in files.values())
        return is_gone and self.run.ghost.process_of(broker) in self.run.ghost.store.partitions[partition].isr
