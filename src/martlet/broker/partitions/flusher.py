"""Forces appended batches to the device, grouped: while one flush of a partition runs, the next one gathers.

The waiting is done by a few threads, because `fdatasync` blocks outside the interpreter lock; all
state is touched on the event loop only. A flush that fails takes the log offline: its data's fate is unknown and
trying again would hide it.
"""

import asyncio
import time
from collections.abc import Callable
from typing import Final

from martlet.base.errors import StorageFailure
from martlet.base.threads import ThreadWorkers, Workers
from martlet.broker.partitions.flush_policy import FlushMode
from martlet.broker.partitions.partition import Partition
from martlet.log.flushing import FlushTicket
from martlet.observe.metrics import BrokerMetrics

FLUSHES_MAX: Final = 4
"""Partitions that are flushed at once."""


class Flusher:
    """Decides when to flush which partition and does it."""

    def __init__(self, metrics: BrokerMetrics, on_failure: Callable[[Partition, StorageFailure], None]) -> None:
        self._metrics = metrics
        self._on_failure = on_failure
        self.workers: Workers = ThreadWorkers("martlet-flush", FLUSHES_MAX)
        """Who waits for the device."""
        self._again: set[Partition] = set()
        self._interval_due: dict[Partition, asyncio.TimerHandle] = {}
        self._waiting: dict[Partition, list[asyncio.Future[None]]] = {}
        self._running = 0
        self._idle = asyncio.Event()
        self._idle.set()
        self._closed = False

    def appended(self, partition: Partition) -> None:
        """Bytes were appended: flush now, later, or never, by the partition's policy."""
        if partition.flush.is_due(partition.log.options.segment_bytes):
            self.flush_soon(partition)
        elif partition.flush.policy.mode is FlushMode.INTERVAL and partition not in self._interval_due:
            delay = partition.flush.policy.interval_ms / 1000
            loop = asyncio.get_running_loop()
            self._interval_due[partition] = loop.call_later(delay, self._interval_passed, partition)

    def flush_soon(self, partition: Partition) -> None:
        """Start a flush, or note that another must follow the one under way."""
        if self._closed:
            return
        if partition.flush.in_progress:
            self._again.add(partition)
            return
        try:
            ticket = partition.log.durability.begin_flush()
        except StorageFailure as failure:
            self._on_failure(partition, failure)
            return
        if ticket is None:
            partition.flushed()
            return
        partition.flush.begin()
        self._running += 1
        self._idle.clear()
        syncing = self.workers.run(lambda: _sync(ticket))
        syncing.add_done_callback(lambda done: self._synced(partition, ticket, *_outcome(done)))

    async def flush_all(self, partitions: list[Partition]) -> None:
        """Flush what these partitions hold now and wait for it, whatever else is being flushed meanwhile."""
        wanted = [(partition, partition.log.end_offset) for partition in partitions if not partition.offline]
        for partition, _ in wanted:
            self.flush_soon(partition)
        for partition, end_offset in wanted:
            while partition.log.durability.flushed_offset < end_offset and not partition.offline:
                if not partition.flush.in_progress:
                    self.flush_soon(partition)
                else:
                    await self._next_flush(partition)

    async def aclose(self) -> None:
        """Wait for running flushes, start no more."""
        self._closed = True
        for handle in self._interval_due.values():
            handle.cancel()
        self._interval_due.clear()
        await self._idle.wait()
        self.workers.close()

    async def _next_flush(self, partition: Partition) -> None:
        future = asyncio.get_running_loop().create_future()
        self._waiting.setdefault(partition, []).append(future)
        await future

    def _interval_passed(self, partition: Partition) -> None:
        self._interval_due.pop(partition, None)
        if not partition.offline:
            self.flush_soon(partition)

    def _synced(
        self, partition: Partition, ticket: FlushTicket, failure: StorageFailure | None, elapsed_seconds: float
    ) -> None:
        self._running -= 1
        partition.flush.in_progress = False
        flush_again = partition in self._again
        self._again.discard(partition)
        if failure is None:
            try:
                partition.log.durability.complete_flush(ticket)
            except StorageFailure as error:
                failure = error
        if failure is not None:
            self._metrics.flush_failures += 1
            self._on_failure(partition, failure)
        else:
            self._metrics.flush_seconds.observe(elapsed_seconds)
            partition.flushed()
            if flush_again:
                self.flush_soon(partition)
        for future in self._waiting.pop(partition, ()):
            if not future.done():
                future.set_result(None)
        if not self._running:
            self._idle.set()


def _sync(ticket: FlushTicket) -> tuple[StorageFailure | None, float]:
    """Runs in a thread: wait for the device; what went wrong, and the seconds it took."""
    started = time.perf_counter()
    failure: StorageFailure | None = None
    try:
        ticket.sync()
    except StorageFailure as error:
        failure = error
    return failure, time.perf_counter() - started


def _outcome(done: "asyncio.Future[tuple[StorageFailure | None, float]]") -> tuple[StorageFailure | None, float]:
    """A flush that ended in any other way has failed too: what it was to make durable may not be."""
    error = done.exception()
    if error is None:
        return done.result()
    return StorageFailure(f"a flush ended unexpectedly: {error!r}"), 0.0
