"""A partition's log as a follower has it: what the follower's rules see of it, and what they do to it.

The last epoch is the newest one the log knows of, even if no record carries it: a follower that led for a moment and
wrote nothing must name that epoch, so that the leader tells it to forget it before anything is appended under it.
"""

import logging
from typing import TYPE_CHECKING

from martlet.base.errors import LogDamaged, StorageFailure
from martlet.broker.partitions.watermarks import Callback
from martlet.log.replicated_batches import ReplicatedBatches
from martlet.replication.follower import EpochEnd, high_watermark_after

if TYPE_CHECKING:
    from martlet.broker.partitions.partition import Partition

logger = logging.getLogger(__name__)


class FollowedLog:
    """A `FollowerLog` of the replication rules; owned by its partition."""

    __slots__ = ("_log", "_partition")

    def __init__(self, partition: "Partition") -> None:
        self._partition = partition
        self._log = partition.log

    # --- what the rules see

    @property
    def log_start_offset(self) -> int:
        return self._log.log_start_offset

    @property
    def end_offset(self) -> int:
        return self._log.end_offset

    @property
    def high_watermark(self) -> int:
        return self._log.high_watermark

    @property
    def last_epoch(self) -> int:
        return self._log.epochs.latest_epoch

    def end_of_epoch(self, epoch: int) -> EpochEnd:
        log = self._log
        return EpochEnd(*log.epochs.end_offset_for(epoch, log_end_offset=log.end_offset))

    @property
    def needs_flush(self) -> bool:
        """Whether a fetch now would name bytes to the leader that are to be on the device first, and are not."""
        return self._partition.watermarks.own_offset < self._log.end_offset

    def when_flushed(self, callback: Callback) -> bool:
        """Call back once what is here now counts, or the role ends; False when it already does."""
        return self._partition.watermarks.when_own(self._log.end_offset, callback)

    # --- what they do

    def append(self, batches: ReplicatedBatches, *, now_ms: int) -> None:
        """Append batches as the leader has them; `now_ms` is the wall clock's.

        Raises ApiError and writes nothing when they do not follow or would take the disk's reserve; when the disk does
        not take them all, those that it took stay.
        """
        partition, log = self._partition, self._log
        partition.check_online()
        size = len(batches.records)
        partition.owner.space.claim(size)
        before = log.end_offset
        try:
            end_offset = log.append_as_is(batches, now_ms=now_ms)
        except StorageFailure as failure:
            if log.end_offset > before:
                if partition.features is not None:
                    partition.features.replicated(batches)
                partition.written(size, log.end_offset - before)
            raise partition.write_failed(failure) from failure
        partition.counters.replica_bytes_in += size
        if partition.features is not None:
            partition.features.replicated(batches)
        partition.written(size, end_offset - before)

    def commit(self, leader_high_watermark: int) -> None:
        """After an append: what the leader calls committed is, as far as it is here."""
        if self._partition.follower is not None:
            self._partition.watermarks.commit(high_watermark_after(leader_high_watermark, self))

    def truncate_to(self, offset: int, now_ms: int) -> None:
        """Drop everything from `offset` on, which the leader does not have; durable when it returns."""
        log, partition = self._log, self._partition
        if offset < log.high_watermark:
            logger.critical(
                "%s is truncated to offset %d in epoch %d although all up to %d was committed: messages are lost",
                partition.name, offset, partition.leader_epoch, log.high_watermark,
            )  # fmt: skip
        self._truncate(lambda: log.truncate_to(offset, now_ms=now_ms), now_ms)

    def start_at(self, offset: int, now_ms: int) -> None:
        """Forget the whole log and begin at `offset`, because the leader no longer has what would come next."""
        log = self._log
        logger.warning(
            "%s ended at offset %d, which its leader does not have any more; it begins again at %d",
            self._partition.name, log.end_offset, offset,
        )  # fmt: skip
        self._truncate(lambda: log.truncate_fully_and_start_at(offset, now_ms=now_ms), now_ms)

    def advance_log_start(self, offset: int) -> None:
        """The leader's log starts here: hide what is before."""
        log = self._log
        log.advance_log_start(min(offset, log.end_offset))
        # The leader starts nowhere above what is committed.
        self._partition.watermarks.commit(log.log_start_offset)

    def _truncate(self, truncate: Callback, now_ms: int) -> None:
        partition = self._partition
        partition.check_online()
        producers = dict(self._log.producers.items())
        try:
            truncate()
        except StorageFailure as failure:
            error = partition.write_failed(failure)
            if isinstance(failure, LogDamaged):
                # It may be truncated in part: what it knows of producers is older than the rest.
                partition.close(error)
            raise error from failure
        if partition.features is not None:
            partition.features.truncated()
        partition.refused.note_cut(producers, self._log.producers, now_ms)
        partition.watermarks.truncated()
