"""One partition's log: appending, locating, rolling, truncating, deleting; the face the broker and the replicas see.

Rules: synchronous and single-threaded; the caller is the partition's owner. No clock: time comes as `now_ms`. What a
batch contains is not read here beyond its header and a transaction's marker. How far the log is on the device is
`durability`, compaction is `compaction`, finding damage and unchecked bytes is `segments`.

How it works. A log is a list of segments of which the last is appended to. `append` takes a batch as the client sent
it, checks its producer, stamps offset and leader epoch, and writes it. Everything else a log knows, indexes, epochs,
producers, aborted transactions, can be rebuilt from the batches, and is after a crash (`recovery`).

Invariants: LOG-1 offsets are handed out without gaps by `append`; where batches leave any, that is written down first
(`batch_order`). LOG-2 `log_start_offset` ≤ `high_watermark` ≤ `end_offset`; only a truncation moves an offset back.
LOG-3 a write that fails leaves everything as it was. LOG-4 epochs and producers are those of the batches in the log
(and what snapshots remember of deleted ones).
Proved by: tests/unit/log/test_partition_log.py, tests/properties/test_log_model.py
"""

from collections.abc import Callable
from typing import Final

from martlet.base.disk import Disk
from martlet.base.errors import ApiError, ErrorCode, LogDamaged
from martlet.base.ids import TopicId, TopicPartition
from martlet.log.aborted_index import AbortedTransaction
from martlet.log.batch_order import GapRecord
from martlet.log.compaction import CompactionPlan
from martlet.log.deleted_files import DeletedFiles
from martlet.log.durability import Durability
from martlet.log.file_names import DELETED, RECOVERY_FLOOR
from martlet.log.log_compaction import LogCompaction
from martlet.log.log_parts import LogParts
from martlet.log.log_slice import NOTHING, Appended, LogSlice
from martlet.log.options import LogOptions
from martlet.log.partition_metadata import read_topic_id, write_topic_id
from martlet.log.producer_replay import ProducerReplay, marker_at
from martlet.log.producer_state import KnownBatch, ProducerStates
from martlet.log.recovery import LoadedLog, LogCheckpoint, apply_floor, load_log
from martlet.log.replicated_batches import ReplicatedBatches
from martlet.log.retention import count_expired
from martlet.log.rolling import Roller
from martlet.log.segment import POSITION_MAX, RELATIVE_OFFSET_MAX, Segment
from martlet.log.segment_opening import truncate
from martlet.log.segment_walks import end_before
from martlet.log.settled_start import SettledStart
from martlet.log.timestamp_search import TimestampSearch
from martlet.wire.batch import (
    CONTROL_BIT,
    BatchHeader,
    TransactionMarker,
    read_marker,
    stamp_batch,
    stamp_log_append_time,
)

_DELETIONS_AT_ONCE: Final = 32


class PartitionLog:
    """Owned by the broker's partition; made by `open`, unusable after `close` or a StorageFailure."""

    __slots__ = (
        "_disk",
        "_gaps",
        "_opened_at_ms",
        "_options",
        "_replay",
        "_snapshots",
        "compaction",
        "cut_bytes",
        "deleted_files",
        "directory",
        "durability",
        "end_offset",
        "epochs",
        "high_watermark",
        "is_damaged",
        "lacks_committed",
        "log_start_offset",
        "partition",
        "producers",
        "roller",
        "segments",
        "settled_start",
        "topic_id",
    )

    def __init__(self, parts: LogParts, options: LogOptions, loaded: LoadedLog, *, now_ms: int) -> None:
        self._disk = parts.disk
        self._options = options
        self._gaps = parts.gaps
        self.directory = parts.directory
        self.partition = parts.partition
        self.topic_id: TopicId | None = None
        self.segments = parts.segments
        self._snapshots = parts.snapshots
        self.epochs = parts.epochs
        for segment in parts.segments:
            segment.epochs = parts.epochs
        self.producers = parts.producers
        self.log_start_offset = loaded.log_start_offset
        self.end_offset = loaded.end_offset
        self.cut_bytes = loaded.cut_bytes
        self.is_damaged = loaded.is_damaged
        """At its opening it lacked something that was there once, and not because a write was not finished."""
        self.lacks_committed = loaded.lacks_committed
        """At its opening it ended below what it once knew to be committed."""
        self.high_watermark = loaded.log_start_offset
        """Everything below is committed, as far as the owner has said; kept here to be written with the checkpoints."""
        self._opened_at_ms = now_ms
        self.deleted_files = DeletedFiles(parts.disk)
        self.deleted_files.add(loaded.leftovers, now_ms, start_offset=loaded.log_start_offset)
        self.durability = Durability(parts)
        self.roller = Roller(parts, self.durability, options, now_ms)
        self.settled_start = SettledStart(self, self.durability)
        self._replay = ProducerReplay(parts.snapshots, parts.segments)
        self.compaction = LogCompaction(parts, self.durability, self._replay)

    @classmethod
    def open(
        cls,
        disk: Disk,
        directory: str,
        options: LogOptions,
        *,
        partition: TopicPartition,
        checkpoint: LogCheckpoint,
        now_ms: int,
        on_damage: Callable[[], None] = lambda: None,
    ) -> "PartitionLog":
        """The log in `directory`, made when missing and recovered when needed; raises LogDamaged or StorageFailure.

        `on_damage` is called before damage is cut off, with which it can no longer be seen. A directory that exists is
        taken to be durable; one made here becomes so with the first flush.
        """
        is_new_directory = not disk.exists(directory)
        if is_new_directory:
            disk.make_directory(directory)
        floor = disk.read_file(f"{directory}/{RECOVERY_FLOOR}")
        if floor is not None:
            checkpoint = apply_floor(checkpoint, floor, partition)
        gaps = GapRecord(disk, directory)
        if checkpoint.cleaned_offset > 0:
            gaps.is_compacted()
        loaded = load_log(disk, directory, options, checkpoint, now_ms, gaps=gaps.known, on_damage=on_damage)
        parts = LogParts(
            disk, directory, partition, loaded.segments, loaded.epochs, loaded.producers, loaded.snapshots, gaps
        )
        log = cls(parts, options, loaded, now_ms=now_ms)
        log.compaction.cleaned_offset = min(checkpoint.cleaned_offset, log.end_offset)
        log.high_watermark = max(log.log_start_offset, min(checkpoint.high_watermark, log.end_offset))
        log.durability.opened(
            loaded.flushed_offset,
            loaded.newly_sealed,
            is_clean=checkpoint.is_clean,
            is_new_directory=is_new_directory,
            floor=None if floor is None else checkpoint.recovery_point or 0,
        )
        if loaded.is_new:
            log.durability.names_changed()
        starts_later = log.log_start_offset > checkpoint.log_start_offset and not loaded.leftovers
        if starts_later and checkpoint.is_start_known:
            # What was lost before it was flushed must not be missed once the recovery point is beyond it.
            log.durability.lower_floor(log.durability.recovery_point)
        log.topic_id = read_topic_id(disk, directory)
        return log

    @property
    def options(self) -> LogOptions:
        return self._options

    def update_options(self, options: LogOptions) -> None:
        """Use other settings from now on; the index interval from the next segment on."""
        self._options = options
        self.roller.use(options)

    @property
    def damage(self) -> list[str]:
        """What is known to be damaged: one line for each stretch."""
        lines = [f"{segment.path}: {damage}" for segment in self.segments for damage in segment.trust.damage]
        lacks_start = self.log_start_offset < self.segments.first.base_offset
        return [self._missing_start(), *lines] if lacks_start else lines

    def _missing_start(self) -> str:
        last_offset = self.segments.first.base_offset - 1
        return f"{self.directory}: the segments of offsets {self.log_start_offset} to {last_offset} are gone"

    @property
    def last_stable_offset(self) -> int:
        """Up to where readers of committed data may see.

        The high watermark, or where the oldest transaction begins that is open or whose marker is not committed yet.
        """
        return max(self.log_start_offset, self.producers.transactions.stable_below(self.high_watermark))

    def assign_topic_id(self, topic_id: TopicId) -> None:
        """Write down whose partition this is; durable with the next flush."""
        self.durability.needs_sync(write_topic_id(self._disk, self.directory, topic_id))
        self.topic_id = topic_id

    def assign_epoch(self, leader_epoch: int) -> None:
        """Note that a leader's time begins at the end of the log, before it writes anything."""
        if leader_epoch > self.epochs.latest_epoch:
            self.epochs.assign(leader_epoch, self.end_offset)

    # Appending.

    def append(self, batch: memoryview, header: BatchHeader, *, leader_epoch: int, now_ms: int) -> Appended:
        """Write one checked batch at the end; `batch` is writable and is stamped in place.

        Raises ApiError for a producer out of step, DiskFull or StorageFailure when the write fails (LOG-3), and
        LogDamaged when the log speaks of a later leader.
        """
        producer_id, marker = header.producer_id, None
        if leader_epoch < self.epochs.latest_epoch:
            raise LogDamaged(
                f"{self.directory}: the log holds leader epoch {self.epochs.latest_epoch}, but its leader has epoch "
                f"{leader_epoch}: a batch or the epoch file is damaged"
            )
        if producer_id >= 0:
            if header.attributes & CONTROL_BIT:
                marker = self._marker_to_append(batch, header)
            known = self.producers.check(header)
            if known is not None:
                return self._answer_duplicate(known)
        options = self._options
        base_offset = self.end_offset
        last_offset = base_offset + header.last_offset_delta
        append_time_ms = -1
        if options.log_append_time:
            header = stamp_log_append_time(batch, 0, header, now_ms)
            append_time_ms = now_ms
        active = self.segments.active
        if (
            active.size + len(batch) > options.segment_bytes
            or header.max_timestamp > self.roller.after_ms
            or last_offset - active.base_offset > RELATIVE_OFFSET_MAX
        ):
            active = self.roller.active_for(len(batch), last_offset, header.max_timestamp, now_ms)
        stamp_batch(batch, 0, base_offset, leader_epoch)
        position = active.write(batch)
        active.note_batch(position, last_offset, header)
        if leader_epoch != self.epochs.latest_epoch:
            self.epochs.assign(leader_epoch, base_offset)
        if producer_id >= 0:
            aborted = self.producers.record(header, last_offset, now_ms, marker)
            if aborted is not None:
                active.aborted.add(aborted)
        self.end_offset = last_offset + 1
        return Appended(base_offset, last_offset, append_time_ms, False)

    def append_as_is(self, replicated: ReplicatedBatches, *, now_ms: int) -> int:
        """Write batches that have their offsets and epochs already, as a follower does; returns the new end offset.

        Raises ApiError(CORRUPT_MESSAGE) and writes nothing when they do not follow.
        """
        view, batches = replicated.records, replicated.batches
        if replicated.gaps_after(self.end_offset, self._gaps.known):
            # The leader's log was compacted, or an operator has given up some of its messages.
            self._gaps.note_compaction()
            self.segments.gaps_are(self._gaps.known)
        number = 0
        while number < len(batches):
            start, header = batches[number]
            active = self.roller.active_for(header.size, header.last_offset, header.max_timestamp, now_ms)
            room_bytes = min(self._options.segment_bytes, POSITION_MAX) - active.size
            run = number + 1
            while run < len(batches) and batches[run][0] + batches[run][1].size - start <= room_bytes:
                if batches[run][1].last_offset - active.base_offset > RELATIVE_OFFSET_MAX:
                    break
                run += 1
            last_start, last_header = batches[run - 1]
            position = active.write(view[start : last_start + last_header.size])
            for at, header in batches[number:run]:
                self._note_replicated(active, position + at - start, header, now_ms)
            number = run
        return self.end_offset

    # Finding.

    def locate(self, offset: int, *, max_bytes: int, end_offset: int, at_least_one: bool) -> LogSlice:
        """Where the batches from `offset` on lie: whole ones, all below `end_offset`, of one segment, not read yet.

        The first is the one that holds `offset` or else the next one. Beyond `max_bytes` only the first, and only
        with `at_least_one`. Raises ApiError(OFFSET_OUT_OF_RANGE) outside the log.
        """
        if not self.log_start_offset <= offset <= self.end_offset:
            raise ApiError(
                ErrorCode.OFFSET_OUT_OF_RANGE,
                f"offset {offset} is not in {self.partition}, which holds {self.log_start_offset} to {self.end_offset}",
            )
        if end_offset > self.end_offset:
            end_offset = self.end_offset
        if offset >= end_offset:
            return NOTHING
        segments = self.segments
        segment = segments.active
        if offset >= segment.base_offset:
            start = segment.position_of(offset)
        else:
            segment, start = self._find_sealed(offset)
        stop = segment.size if end_offset >= segment.next_offset else segment.position_of(end_offset)
        is_cut = stop - start > max_bytes
        if is_cut:
            stop = min(stop, segment.cut_before(start + max_bytes, start=start, at_least_one=at_least_one))
        if segment.trust.damage:
            stop = segment.trust.sound_until(start, stop)
        if stop <= start:
            return NOTHING
        size = stop - start
        is_final = is_cut or segment.is_sealed
        unchecked = segment.trust.unchecked_in(start, size)
        if unchecked is None:
            return LogSlice(segment.file, start, size, is_final)
        return LogSlice(segment.file, start, size, is_final, unchecked, segment.gaps, self.epochs.epoch_max)

    def _find_sealed(self, offset: int) -> tuple[Segment, int]:
        segments = self.segments
        if offset < segments.first.base_offset:
            raise LogDamaged(self._missing_start())
        for number in range(segments.number_at(offset), len(segments)):
            segment = segments[number]
            start = segment.position_of(offset)
            if start < segment.size:
                break
        if segment.is_sealed:
            segments.used(segment)
        return segment, start

    # Cutting.

    def truncate_to(self, offset: int, *, now_ms: int) -> None:
        """Drop everything from `offset` on; a batch that holds it goes whole. Durable when it returns."""
        if offset >= self.end_offset:
            self.epochs.truncate_from_end(offset)
            return
        if offset < self.segments.first.base_offset:
            self.truncate_fully_and_start_at(offset, now_ms=now_ms)
            return
        number = self.segments.number_at(offset)
        segment = self.segments[number]
        position = segment.position_of(offset)
        end_offset = end_before(segment, position)
        self.durability.lower_floor(end_offset)
        while len(self.segments) > number + 1:
            self.segments.remove_last().files.discard()
        truncate(segment, position)
        self._snapshots.remove_beyond(end_offset)
        self.durability.sync_names()
        self.epochs.truncate_from_end(end_offset)
        self._set_end(end_offset, now_ms)
        self._replay.mend_aborted(segment)
        expiration_ms = self._options.producer_id_expiration_ms
        self.producers.become(self._replay.producers_at(end_offset, now_ms, expiration_ms=expiration_ms))

    def truncate_fully_and_start_at(self, offset: int, *, now_ms: int) -> None:
        """Drop everything and go on, empty, at `offset`. Durable when it returns."""
        self.durability.lower_floor(0)
        for segment in reversed(list(self.segments)):
            segment.files.discard()
        self._snapshots.remove_all()
        self.durability.sync_names()
        self.segments.start_again(self.roller.create_segment(offset))
        self.durability.sync_names()
        self.epochs.clear()
        self.producers.become(ProducerStates())
        self.log_start_offset = self.high_watermark = offset
        self._set_end(offset, now_ms)
        self.durability.restarted_at(offset)

    def advance_log_start(self, offset: int) -> None:
        """Hide everything before `offset`; whole segments of it are removed by `delete_old_segments`."""
        if offset > self.end_offset:
            raise ApiError(ErrorCode.OFFSET_OUT_OF_RANGE, f"offset {offset} is beyond the end at {self.end_offset}")
        if offset > self.log_start_offset:
            self.log_start_offset = offset
            self.epochs.truncate_from_start(offset)

    # Housekeeping.

    def delete_old_segments(self, now_ms: int, *, up_to_offset: int) -> int:
        """Remove segments that are too old, too much or before the start; returns how many. Repeat while it is many."""
        self.producers.expire(now_ms, self._options.producer_id_expiration_ms)
        count = count_expired(
            self.segments,
            self._options,
            now_ms=now_ms,
            up_to_offset=up_to_offset,
            log_start_offset=self.settled_start.offset(),
            untimed_since_ms=self._opened_at_ms,
        )
        if count == len(self.segments):
            self.roller.roll(now_ms)
        count = min(count, _DELETIONS_AT_ONCE)
        for _ in range(count):
            # What stays is durable in the directory before anything goes, and the older goes durably before the newer:
            # a crash must leave a log without a hole.
            self.durability.sync_names()
            gone = self.segments.remove_first().files.rename(DELETED)
            start_offset = max(self.log_start_offset, self.segments.first.base_offset)
            self.deleted_files.add(gone, now_ms, start_offset=start_offset)
            self.durability.names_changed()
        if count:
            first_offset = self.segments.first.base_offset
            self._snapshots.remove_before(first_offset)
            self.log_start_offset = max(self.log_start_offset, first_offset)
            self.epochs.truncate_from_start(self.log_start_offset)
            if self.durability.flushed_offset < first_offset:
                # Deleted before it was flushed: once it cannot come back, nothing of it is missing.
                self.durability.sync_names()
                self.durability.flushed_offset = first_offset
        return count

    def plan_compaction(self, now_ms: int, *, up_to_offset: int) -> CompactionPlan | None:
        """What to compact now, if the topic is compacted; `up_to_offset` is the high watermark (`log_compaction`)."""
        if not self._options.compact or self.damage:
            return None  # nothing of a damaged log is rewritten: what is left of it may be all there is
        return self.compaction.plan(self._options, now_ms, up_to_offset=up_to_offset)

    # Transactions.

    def aborted_transactions(self, from_offset: int, to_offset: int) -> list[AbortedTransaction]:
        """All with data below `to_offset` whose marker is at `from_offset` or later, in order of their beginnings.

        That is what a reader of these offsets has to know to leave out what was aborted; `to_offset` lies not beyond
        the last stable offset. Raises StorageFailure.
        """
        return self._replay.aborted_transactions(from_offset, to_offset)

    def lost_decision(self) -> LogDamaged | None:
        """Damage that may hold the marker for which readers of committed data wait, if they wait for one."""
        waits_at = self.last_stable_offset
        if waits_at < self.high_watermark:
            for segment in self.segments.from_offset(waits_at):
                for damage in segment.trust.damage:
                    if damage.first_offset < self.high_watermark and damage.next_offset > waits_at:
                        return segment.trust.error(damage)
        return None

    # Time.

    def times_below(self, end_offset: int) -> TimestampSearch:
        """To find records by their time, of those below `end_offset`."""
        start_offset = self.log_start_offset
        return TimestampSearch(self.segments, self.epochs, start_offset=start_offset, end_offset=end_offset)

    # Inside.

    def _answer_duplicate(self, known: KnownBatch) -> Appended:
        append_time_ms = known.timestamp_ms if self._options.log_append_time else -1
        return Appended(known.base_offset, known.last_offset, append_time_ms, True)

    def _marker_to_append(self, batch: memoryview, header: BatchHeader) -> TransactionMarker:
        marker = read_marker(batch)
        if marker is None:
            raise ApiError(ErrorCode.INVALID_RECORD, "a control batch without a transaction marker cannot be appended")
        self.producers.check_marker(header, marker)
        self.producers.transactions.release_below(self.high_watermark)
        return marker

    def _note_replicated(self, active: Segment, position: int, header: BatchHeader, now_ms: int) -> None:
        active.note_batch(position, header.last_offset, header)
        if header.partition_leader_epoch > self.epochs.latest_epoch:
            self.epochs.assign(header.partition_leader_epoch, header.base_offset)
        if header.producer_id >= 0:
            marker = marker_at(active, position, header)
            aborted = self.producers.record(header, header.last_offset, now_ms, marker)
            if aborted is not None:
                active.aborted.add(aborted)
            if marker is not None:
                self.producers.transactions.release_below(self.high_watermark)
        self.end_offset = header.next_offset

    def _set_end(self, end_offset: int, now_ms: int) -> None:
        self.end_offset = end_offset
        self.log_start_offset = min(self.log_start_offset, end_offset)
        self.compaction.cleaned_offset = min(self.compaction.cleaned_offset, end_offset)
        self.high_watermark = min(self.high_watermark, end_offset)
        self.durability.truncated(end_offset)
        self.roller.began_again(now_ms)
