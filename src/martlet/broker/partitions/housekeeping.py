"""What a broker does by itself, now and then: recovery points, retention, compaction, checking of old data, and
watching the disk's space.

Each duty is a loop of its own with its own interval. Work that blocks (compaction's reading and writing, checkpoint
files) runs in one worker thread; decisions about logs are made on the event loop. A duty that fails is logged and
tried again at its next turn; this is one of the named supervisors that may catch everything.
"""

import asyncio
import contextlib
import logging
from collections.abc import Awaitable, Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Final

from martlet.base.clock import Clock
from martlet.base.errors import LogDamaged, StorageFailure
from martlet.broker.ground.settings import BrokerSettings
from martlet.broker.partitions.held_readers import LOOK_EVERY_MS, HeldReaders
from martlet.broker.partitions.partition import Partition
from martlet.broker.partitions.partition_table import PartitionTable
from martlet.broker.partitions.scrubbing import Scrubber
from martlet.broker.partitions.topic_settings import TopicSettings
from martlet.log.log_directory import LogDirectory
from martlet.observe.metrics import BrokerMetrics

logger = logging.getLogger(__name__)

_DISK_CHECK_MS: Final = 1_000
_SCRUB_MS: Final = 1_000
_COMPACTION_PAUSE_MIN_MS: Final = 50
"""Kafka allows no pause at all, which here would be a loop that does nothing else."""
_NOTICE_MS: Final = 1_000
"""So soon a changed interval counts, also in a pause that has begun."""


class Housekeeping:
    """Owner of the background tasks; `start` begins them, `aclose` ends them."""

    def __init__(
        self,
        settings: BrokerSettings,
        clock: Clock,
        logs: LogDirectory,
        partitions: PartitionTable,
        metrics: BrokerMetrics,
        topic_settings: TopicSettings,
    ) -> None:
        self._topic_settings = topic_settings
        self._settings = settings
        self._clock = clock
        self._logs = logs
        self._partitions = partitions
        self._worker = ThreadPoolExecutor(1, thread_name_prefix="martlet-housekeeping")
        self._tasks: list[asyncio.Task[None]] = []
        self._scrubber = Scrubber(settings, clock, partitions, metrics, self._in_worker)
        self._held_readers = HeldReaders(partitions, clock, metrics, settings.transaction_max_timeout_ms)

    def start(self) -> None:
        """Begin every duty."""
        settings = self._settings
        # At once: a broker that dies again and again must not check the same batches each time.
        self._every(settings.checkpoint_interval_ms, self.checkpoint, delay_ms=0)
        self._every(settings.retention_check_interval_ms, self.apply_retention)
        self._every(self._compaction_pause_ms, self.compact)
        self._every(_DISK_CHECK_MS, self.watch_disk)
        self._every(LOOK_EVERY_MS, self.watch_readers)
        if settings.scrub_bytes_per_second:
            self._every(_SCRUB_MS, self._scrubber.scrub)

    async def aclose(self) -> None:
        """End the duties; one that is under way is finished first where it must not be interrupted."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        self._worker.shutdown()

    # --- the duties

    async def checkpoint(self) -> None:
        """Write down from where a crashed broker would have to check its logs again."""
        checkpoint = self._logs.begin_checkpoint()
        await self._in_worker(checkpoint.write)
        self._logs.complete_checkpoint(checkpoint)
        failed_logs = [log for log, _ in checkpoint.tickets if log.partition in checkpoint.failures]
        for log in failed_logs:
            if self._logs.get(log.partition) is log:  # else its topic was deleted meanwhile
                failure = checkpoint.failures[log.partition]
                logger.error("the recovery point of %s could not be written: %s", log.partition, failure)

    async def apply_retention(self) -> None:
        """Delete segments that are too old or too many, and files whose deletion is due."""
        now_ms = self._clock.now_ms()
        for partition in self._partitions.open_partitions():
            for step in (self._roll, self._delete_old_segments):
                with self._contained(partition, "retention"):
                    if not partition.offline:
                        step(partition, now_ms)
            await asyncio.sleep(0)
        # First the checkpoints forget what was deleted, or after a kill it would seem lost.
        with contextlib.suppress(StorageFailure):
            await self.checkpoint()
        for partition in self._partitions.open_partitions():
            with self._contained(partition, "retention"):
                if not partition.offline:
                    partition.log.deleted_files.remove_due(now_ms, partition.log.options.file_delete_delay_ms)
        await self._in_worker(self._logs.remove_deleted)

    async def compact(self) -> None:
        """Compact the partitions that are dirty enough, one after another."""
        for partition in self._partitions.open_partitions():
            if not partition.offline and partition.log.options.compact:
                with self._contained(partition, "compaction"):
                    await self._compact(partition)

    async def watch_readers(self) -> None:
        """See for whom readers of committed data wait."""
        self._held_readers.look()

    async def watch_disk(self) -> None:
        """See how much space there is; when there is some again, make what there was none for."""
        space = self._partitions.space
        was_full = space.is_full
        space.measure()
        if was_full and not space.is_full:
            self._partitions.host_missing()

    # --- how

    @contextlib.contextmanager
    def _contained(self, partition: Partition, duty: str) -> Iterator[None]:
        """What fails in one partition is no reason to leave the others undone, or what else is to be done in this."""
        try:
            yield
        except LogDamaged as damage:
            self._partitions.damage.read_failed(partition, damage)
        except StorageFailure as failure:
            if not partition.offline:  # else its topic was deleted meanwhile
                logger.error("%s of %s failed: %s", duty, partition.name, failure)

    def _roll(self, partition: Partition, now_ms: int) -> None:
        partition.log.roller.maybe_roll(now_ms)

    def _delete_old_segments(self, partition: Partition, now_ms: int) -> None:
        removed = partition.log.delete_old_segments(now_ms, up_to_offset=partition.high_watermark)
        if removed:
            logger.info("retention removed %d segment(s) of %s", removed, partition.name)
            partition.watermarks.wake()

    async def _compact(self, partition: Partition) -> None:
        now_ms = self._clock.now_ms()
        plan = partition.log.plan_compaction(now_ms, up_to_offset=partition.high_watermark)
        if plan is None:
            return
        await self._in_worker(plan.run)
        if not partition.offline and partition.log.compaction.complete(plan):
            logger.info("compacted %s", partition.name)

    async def _in_worker(self, work: Callable[[], object]) -> None:
        await asyncio.get_running_loop().run_in_executor(self._worker, work)

    def _compaction_pause_ms(self) -> int:
        configured_ms = self._topic_settings.broker_config().number("log.cleaner.backoff.ms")
        return max(configured_ms, _COMPACTION_PAUSE_MIN_MS)

    def _every(
        self, interval_ms: int | Callable[[], int], duty: Callable[[], Awaitable[None]], delay_ms: int | None = None
    ) -> None:
        """Do it again and again, first after `delay_ms` if that is given."""
        name = f"martlet-{duty.__name__}"
        self._tasks.append(asyncio.create_task(self._repeat(interval_ms, duty, delay_ms), name=name))

    async def _repeat(
        self, interval_ms: int | Callable[[], int], duty: Callable[[], Awaitable[None]], delay_ms: int | None
    ) -> None:
        pause_ms = interval_ms if delay_ms is None else delay_ms
        while True:
            await _pause(pause_ms)
            pause_ms = interval_ms
            try:
                await duty()
            except StorageFailure as failure:
                logger.error("%s failed: %s", duty.__name__, failure)
            except Exception:
                logger.exception("%s failed", duty.__name__)


async def _pause(interval_ms: int | Callable[[], int]) -> None:
    """Sleep for so long, or until an interval that may change is no longer than what was slept already."""
    if not callable(interval_ms):
        await asyncio.sleep(interval_ms / 1000)
        return
    slept_ms = 0
    while (left_ms := interval_ms() - slept_ms) > 0:
        step_ms = min(left_ms, _NOTICE_MS)
        await asyncio.sleep(step_ms / 1000)
        slept_ms += step_ms
