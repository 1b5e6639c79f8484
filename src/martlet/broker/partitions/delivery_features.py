"""What a replica knows of the delivery of its messages, where its topic looks at their headers: what is refused at
publish, and when which delayed message is due.

How it works: every batch is looked into once, on the leader before it is appended and on followers behind it. The
delayed ones go into an index beside the log (`delay/`), which each replica derives for itself. What was not looked at,
because the broker was down or the feature is new, is *missing* and is read from the log bit by bit (`mend`), by the
leader when its queues need it.

Rules: the index is derived: when its files cannot be written or read, messages are published and kept all the same,
and the part is read again. Nothing here is on the way of a topic without features.

Invariant: PDF-1 every message of the log is in the index, in a part that is missing, or not delayed.

Proved by: tests/unit/broker/partitions/test_delivery_features.py
"""

import logging
from typing import Final

from martlet.base.disk import Disk
from martlet.base.errors import ApiError, ErrorCode, StorageFailure
from martlet.log.partition_log import PartitionLog
from martlet.log.replicated_batches import ReplicatedBatches
from martlet.log.validation import InvalidRecords
from martlet.queues.delay_index import DelayIndex
from martlet.queues.delay_run import Coverage, Entry
from martlet.queues.publish_look import Delayed, RefusedTerms, TopicDelivery, look_at_publish, look_at_stored
from martlet.wire.batch import BatchHeader, iterate_batches

logger = logging.getLogger(__name__)

DIRECTORY: Final = "delay"
_MEND_BYTES: Final = 256 << 10
"""That one step of `mend` reads."""
_STORED_EVERY: Final = 1 << 18
"""Messages after which the index is written, though few of them were delayed: a restart reads no more than these."""


def has_delays(disk: Disk, log: PartitionLog) -> bool:
    """Whether messages of this log were delayed once."""
    return disk.exists(f"{log.directory}/{DIRECTORY}")


class DeliveryFeatures:
    """Of one replica; owned by its partition."""

    def __init__(self, log: PartitionLog, disk: Disk, topic: TopicDelivery) -> None:
        self.topic = topic
        self._log = log
        self._disk = disk
        self._log_start = -1
        self._is_failing = False
        self.schedule: DelayIndex | None = None
        """When which message is due; None where the topic never had delays. It stays when the topic has none any more:
        what is scheduled would be lost."""
        self._take_schedule()

    def take(self, topic: TopicDelivery) -> None:
        """The topic asks for this now."""
        self.topic = topic
        self._take_schedule()

    def _take_schedule(self) -> None:
        if self.schedule is None and (self.topic.has_delay or has_delays(self._disk, self._log)):
            schedule = DelayIndex(self._disk, f"{self._log.directory}/{DIRECTORY}")
            try:
                schedule.open(self._log.log_start_offset)
                if schedule.covered_end > self._log.end_offset:
                    schedule.truncate(self._log.end_offset)
                schedule.missed(self._log.end_offset)
            except StorageFailure as failure:
                self._failed(failure)
                schedule.misses_everything(self._log.log_start_offset, self._log.end_offset)
            self.schedule = schedule

    def close(self, *, is_kept: bool = True) -> None:
        """Use no file any more; of a log that is kept, write down how far it was looked at."""
        if self.schedule is not None:
            try:
                if is_kept:
                    self.schedule.flush()
            except StorageFailure as failure:
                self._failed(failure)
            self.schedule.close()

    # --- looking

    def check(self, records: memoryview, header: BatchHeader, now_ms: int) -> list[Delayed]:
        """The delayed messages of a client's batch; ApiError(INVALID_RECORD) for what cannot be delivered so."""
        try:
            return look_at_publish(records, header, self.topic, now_ms)
        except RefusedTerms as refused:
            raise InvalidRecords(str(refused), refused.record_errors) from None
        except ApiError as error:
            # CORRUPT_MESSAGE would tell the client to send the same bytes again.
            raise ApiError(ErrorCode.INVALID_RECORD, f"the records cannot be read: {error.detail}") from error

    def appended(self, delayed: list[Delayed], base_offset: int, last_offset: int) -> None:
        """A batch is in the log now."""
        schedule = self.schedule
        if schedule is None:
            return
        failure: StorageFailure | None = None
        for row, due_ms in delayed:
            try:
                schedule.add(due_ms, base_offset + row)
            except StorageFailure as caught:
                failure = caught  # it is known all the same, and written with a later one
        schedule.saw(last_offset + 1)
        try:
            self._keep_up(schedule)
        except StorageFailure as caught:
            failure = caught
        if failure is not None:
            self._failed(failure)
        elif self._is_failing:
            self._is_failing = False
            logger.info("the delayed messages of %s are written down again", self._log.partition)

    def appended_own(self, records: memoryview, header: BatchHeader, base_offset: int, last_offset: int) -> None:
        """A batch that the broker made itself is in the log: nothing in it is refused."""
        if self.schedule is not None:
            self.appended(self._look_at_stored(records, header), base_offset, last_offset)

    def replicated(self, batches: ReplicatedBatches) -> None:
        """Batches of the leader are in the log, as far as it goes now."""
        if self.schedule is None:
            return
        for position, header in batches.batches:
            if header.last_offset < self._log.end_offset:
                batch = batches.records[position : position + header.size]
                self.appended(self._look_at_stored(batch, header), header.base_offset, header.last_offset)

    def _look_at_stored(self, batch: memoryview, header: BatchHeader) -> list[Delayed]:
        try:
            return look_at_stored(batch, header, self.topic)
        except ApiError as error:
            logger.warning("%s: the batch at offset %d cannot be looked into, so that nothing in it is delayed: %s",
                           self._log.partition, header.base_offset, error.detail)  # fmt: skip
            return []

    def _keep_up(self, schedule: DelayIndex) -> None:
        if schedule.covered_end - schedule.stored_end >= _STORED_EVERY:
            schedule.flush()
        if self._log.log_start_offset != self._log_start:
            self._log_start = self._log.log_start_offset
            schedule.log_begins_at(self._log_start)

    def _failed(self, failure: StorageFailure) -> None:
        if not self._is_failing:  # one line, however often it is tried
            self._is_failing = True
            logger.error("the index of delayed messages of %s cannot be written or read: %s",
                         self._log.partition, failure)  # fmt: skip

    # --- the log was cut

    def truncated(self) -> None:
        """The log ends earlier now, or somewhere else."""
        schedule = self.schedule
        if schedule is None:
            return
        try:
            is_elsewhere = self._log.end_offset == self._log.log_start_offset
            schedule.truncate(0 if is_elsewhere else self._log.end_offset)
            schedule.saw(self._log.end_offset)
        except StorageFailure as failure:
            self._failed(failure)

    # --- what is missing

    def mend(self) -> bool:
        """Read some of the log that was not looked at; whether more is missing."""
        schedule = self.schedule
        if schedule is None or schedule.is_complete:
            return False
        try:
            schedule.log_begins_at(self._log.log_start_offset)
            if schedule.missing:
                part = min(schedule.missing)
                schedule.restore(*self._read(part))
        except StorageFailure as failure:
            self._failed(failure)
            return False
        return not schedule.is_complete

    def _read(self, part: Coverage) -> tuple[Coverage, list[Entry]]:
        """The delayed messages of the beginning of a missing part."""
        log = self._log
        end = min(part.end, log.end_offset)
        entries: list[Entry] = []
        at = part.first
        piece = log.locate(at, max_bytes=_MEND_BYTES, end_offset=end, at_least_one=True) if at < end else None
        data = memoryview(piece.read()) if piece is not None else memoryview(b"")
        for position, header in iterate_batches(data):
            batch = data[position : position + header.size]
            for row, due_ms in self._look_at_stored(batch, header):
                if part.first <= header.base_offset + row < part.end:
                    entries.append((due_ms, header.base_offset + row))
            at = header.next_offset
        upto = part.end if at in (part.first, end) or at > part.end else at
        return Coverage(part.first, upto), entries
