"""Reads again what is on disk and compares it with its checksums, to find damage while another replica is sound.

How it works: what earlier processes wrote is unchecked when a broker starts, and every partition is passed once. From
then on, all sealed segments count as unchecked again each `scrub_interval_ms` after a pass has begun, and another pass
follows. Readers check what they meet unchecked, so a pass never lets anything through that it has not reached yet.
At most `scrub_bytes_per_second` are read; the reading is done by a worker, the decisions on the event loop.
Proved by: tests/unit/broker/partitions/test_scrubbing.py
"""

import logging
from collections.abc import Awaitable, Callable
from typing import Final

from martlet.base.clock import Clock
from martlet.base.errors import LogDamaged, StorageFailure
from martlet.broker.ground.settings import BrokerSettings
from martlet.broker.partitions.partition import Partition
from martlet.broker.partitions.partition_table import PartitionTable
from martlet.log.log_slice import LogSlice
from martlet.log.partition_log import PartitionLog
from martlet.observe.metrics import BrokerMetrics

logger = logging.getLogger(__name__)

_BYTES_AT_ONCE: Final = 1024 * 1024


class Scrubber:
    """Driven by the housekeeping, once a second."""

    def __init__(
        self,
        settings: BrokerSettings,
        clock: Clock,
        partitions: PartitionTable,
        metrics: BrokerMetrics,
        in_worker: Callable[[Callable[[], object]], Awaitable[None]],
    ) -> None:
        self._bytes_per_second = settings.scrub_bytes_per_second
        self._interval_ms = settings.scrub_interval_ms
        self._clock = clock
        self._partitions = partitions
        self._metrics = metrics
        self._in_worker = in_worker
        self._left: list[Partition] | None = None
        self._began_ms = 0
        self._pass_bytes = 0

    async def scrub(self) -> None:
        """Check a second's worth."""
        if self._left is None:
            self._begin()
        elif not self._left and self._is_due():
            for partition in self._partitions.open_partitions():
                partition.log.segments.distrust_sealed()
            self._begin()
        budget = self._bytes_per_second
        while self._left and budget > 0:
            partition = self._left[-1]
            checked_bytes = 0 if partition.offline else await self._check(partition, min(budget, _BYTES_AT_ONCE))
            budget -= checked_bytes
            self._pass_bytes += checked_bytes
            self._metrics.scrubbed_bytes += checked_bytes
            if not checked_bytes:
                self._left.pop()
                self._end_if_done()

    def _begin(self) -> None:
        self._left = self._partitions.open_partitions()
        self._began_ms = self._clock.monotonic_ms()
        self._pass_bytes = 0

    def _is_due(self) -> bool:
        return 0 < self._interval_ms <= self._clock.monotonic_ms() - self._began_ms

    def _end_if_done(self) -> None:
        if self._left:
            return
        damaged = [partition for partition in self._partitions.open_partitions() if partition.log.damage]
        self._metrics.scrub_passes += 1
        if damaged:
            names = ", ".join(str(partition.name) for partition in damaged[:10])
            logger.error("data at rest: %d bytes checked; damaged: %s", self._pass_bytes, names)
        elif self._pass_bytes:
            logger.info("data at rest: %d bytes checked, no damage", self._pass_bytes)

    async def _check(self, partition: Partition, max_bytes: int) -> int:
        """Check the next part of a log; returns its size, 0 when there is nothing left or no use in going on."""
        log = partition.log
        piece: LogSlice | None = None
        try:
            piece = log.segments.next_unchecked(max_bytes)
            if piece is None:
                self._partitions.damage.report(partition)
                return 0
            try:
                await self._in_worker(piece.read)
            except StorageFailure:
                # The log may have been truncated while the worker read; between two turns of the loop it is not.
                piece = None if partition.offline else log.segments.next_unchecked(max_bytes)
                if piece is not None:
                    piece.read()
        except StorageFailure as failure:
            self._partitions.damage.read_failed(partition, failure)
            if partition.offline:
                return 0
            if piece is None:
                return max_bytes if isinstance(failure, LogDamaged) else 0
            return piece.size if _is_understood(log, piece) else 0
        return 0 if piece is None else piece.size


def _is_understood(log: PartitionLog, piece: LogSlice) -> bool:
    """Whether the damage could be separated from what is sound, so that the pass can go on behind it."""
    try:
        log.segments.find_damage_at(piece)
    except StorageFailure:
        return False
    return True
