"""One partition's log: appending, finding, flushing, rolling, cutting; the face the broker and the replicas see.

Rules: synchronous and single-threaded; the caller is the partition's owner. The blocking middle steps of flushing,
checkpointing and compacting are objects that a worker thread runs (`flushing`, `compaction`). No clock: time comes as
`now_ms`. What a batch contains is not looked at here beyond its header.

How it works. A log is a list of segments (`segment_list`) of which the last is appended to. `append` takes a batch as
the client sent it, checks its producer, stamps offset and leader epoch, and writes it. Everything else a log knows,
indexes, epochs, producers, can be rebuilt from the batches, and is after a crash (`recovery`).

Invariants:
1. Offsets are handed out without gaps by `append`; where batches leave any, that is written down first (`batch_order`).
2. `log_start_offset` ≤ `recovery_point` ≤ `flushed_offset` ≤ `end_offset`, once the log has been flushed and
   checkpointed; only a truncation moves any of them back.
3. A write that fails leaves everything as it was.
4. Epochs and producers are those of the batches in the log (and what snapshots remember of deleted ones).
Proved by: tests/unit/log/test_partition_log.py, tests/properties/test_log_model.py
"""

from collections.abc import Callable
from contextlib import suppress
from typing import Final
from zlib import crc32

from martlet.base.disk import Disk, DiskFile
from martlet.base.errors import ApiError, ErrorCode, LogDamaged, StorageFailure
from martlet.base.ids import TopicId, TopicPartition
from martlet.log.aborted_index import AbortedTransaction
from martlet.log.batch_order import KnownGaps, note_compaction, read_gaps
from martlet.log.checkpoints import encode_epochs, encode_offsets
from martlet.log.compaction import CompactionPlan, Source, choose_segments
from martlet.log.deleted_files import DeletedFiles
from martlet.log.file_names import DELETED, EPOCH_CHECKPOINT, RECOVERY_FLOOR
from martlet.log.flushing import CheckpointTicket, FlushTicket, SyncHealth
from martlet.log.log_slice import NOTHING, Appended, LogSlice
from martlet.log.options import LogOptions
from martlet.log.partition_metadata import read_topic_id, write_topic_id
from martlet.log.producer_replay import find_aborted, marker_at, rebuild_aborted, replay_producers
from martlet.log.producer_state import KnownBatch, ProducerStates
from martlet.log.recovery import LoadedLog, LogCheckpoint, apply_floor, load_log
from martlet.log.replicated_batches import ReplicatedBatches
from martlet.log.retention import count_expired
from martlet.log.segment import NO_TIMESTAMP, POSITION_MAX, RELATIVE_OFFSET_MAX, Segment
from martlet.log.segment_list import SegmentList
from martlet.log.timestamp_search import TimestampSearch
from martlet.log.transaction_cleaning import LastOfProducers
from martlet.wire.batch import (
    CONTROL_BIT,
    BatchHeader,
    TransactionMarker,
    read_marker,
    stamp_batch,
    stamp_log_append_time,
)

_SNAPSHOT_EVERY_BYTES: Final = 16 << 20
_DELETIONS_AT_ONCE: Final = 32
_UNKNOWN: Final = -(1 << 63)
_NEVER: Final = 1 << 63


class PartitionLog:
    """Owned by the broker's partition; made by `open`, unusable after `close` or a StorageFailure."""

    __slots__ = (
        "_active_since_ms",
        "_compaction",
        "_deleted_files",
        "_directory_changes",
        "_disk",
        "_floor",
        "_gaps",
        "_generation",
        "_health",
        "_newly_sealed",
        "_opened_at_ms",
        "_opened_clean",
        "_options",
        "_parent_changed",
        "_roll_after_ms",
        "_segments",
        "_snapped_bytes",
        "_snapshots",
        "_synced_directory_changes",
        "_unsynced_files",
        "cleaned_offset",
        "cut_bytes",
        "directory",
        "end_offset",
        "epochs",
        "flushed_offset",
        "high_watermark",
        "is_damaged",
        "lacks_committed",
        "log_start_offset",
        "partition",
        "producers",
        "recovery_point",
        "topic_id",
    )

    def __init__(
        self,
        disk: Disk,
        directory: str,
        options: LogOptions,
        partition: TopicPartition,
        loaded: LoadedLog,
        *,
        gaps: KnownGaps,
        now_ms: int,
    ) -> None:
        self._disk = disk
        self._options = options
        self._gaps = gaps
        self.directory = directory
        self.partition = partition
        self.topic_id: TopicId | None = None
        self._segments: SegmentList = loaded.segments
        self._snapshots = loaded.snapshots
        self.epochs = loaded.epochs
        for segment in loaded.segments:
            segment.epochs = loaded.epochs
        self.producers = loaded.producers
        self.log_start_offset = loaded.log_start_offset
        self.end_offset = loaded.end_offset
        self.flushed_offset = loaded.flushed_offset
        self.recovery_point = loaded.flushed_offset
        self.cut_bytes = loaded.cut_bytes
        self.is_damaged = loaded.is_damaged
        """At its opening it lacked something that was there once, and not because a write was not finished."""
        self.lacks_committed = loaded.lacks_committed
        """At its opening it ended below what it once knew to be committed."""
        self.cleaned_offset = 0
        self.high_watermark = loaded.log_start_offset
        """Everything below is committed, as far as the owner has said; kept here to be written with the checkpoints."""
        self._active_since_ms = self._opened_at_ms = now_ms
        self._opened_clean = False
        self._roll_after_ms = _UNKNOWN
        self._snapped_bytes = loaded.segments.active.size
        self._generation = 0
        self._health = SyncHealth()
        self._newly_sealed = list(loaded.newly_sealed)
        self._directory_changes = self._synced_directory_changes = 0
        self._parent_changed = False
        self._unsynced_files: list[DiskFile] = []
        self._floor: int | None = None
        self._deleted_files = DeletedFiles(disk)
        self._deleted_files.add(loaded.leftovers, now_ms, start_offset=loaded.log_start_offset)
        self._compaction: CompactionPlan | None = None

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
        gaps = read_gaps(disk, directory)
        if checkpoint.cleaned_offset > 0 and not gaps.is_compacted:
            with suppress(StorageFailure):  # the checkpoint says so, too
                gaps = note_compaction(disk, directory, gaps)
        loaded = load_log(disk, directory, options, checkpoint, now_ms, gaps=gaps, on_damage=on_damage)
        log = cls(disk, directory, options, partition, loaded, gaps=gaps, now_ms=now_ms)
        log._floor = None if floor is None else checkpoint.recovery_point or 0
        log.cleaned_offset = min(checkpoint.cleaned_offset, log.end_offset)
        log.high_watermark = max(log.log_start_offset, min(checkpoint.high_watermark, log.end_offset))
        log._parent_changed = is_new_directory
        log._opened_clean = checkpoint.is_clean
        if loaded.is_new or not checkpoint.is_clean:
            log._directory_changes += 1
        if log._floor is not None and not checkpoint.is_clean:
            # A cut may have been interrupted before it was durable: what it took away must not come back under batches
            # that are appended from now on.
            for segment in log._segments.from_offset(log._floor):
                segment.file.sync()
            log._sync_names()
        starts_later = log.log_start_offset > checkpoint.log_start_offset and not loaded.leftovers
        if starts_later and checkpoint.is_start_known:
            # What was lost before it was flushed must not be missed once the recovery point is beyond it.
            log._write_floor(log.recovery_point)
        log.topic_id = read_topic_id(disk, directory)
        return log

    @property
    def options(self) -> LogOptions:
        return self._options

    def update_options(self, options: LogOptions) -> None:
        """Use other settings from now on; the index interval from the next segment on."""
        self._options = options
        self._roll_after_ms = _UNKNOWN

    @property
    def damage(self) -> list[str]:
        """What is known to be damaged: one line for each stretch."""
        lines = [f"{segment.path}: {damage}" for segment in self._segments for damage in segment.damage]
        lacks_start = self.log_start_offset < self._segments.first.base_offset
        return [self._missing_start(), *lines] if lacks_start else lines

    def _missing_start(self) -> str:
        last_offset = self._segments.first.base_offset - 1
        return f"{self.directory}: the segments of offsets {self.log_start_offset} to {last_offset} are gone"

    @property
    def last_stable_offset(self) -> int:
        """Up to where readers of committed data may see.

        The high watermark, or where the oldest transaction begins that is open or whose marker is not committed yet.
        """
        return max(self.log_start_offset, self.producers.transactions.stable_below(self.high_watermark))

    @property
    def size_bytes(self) -> int:
        return self._segments.size_bytes()

    @property
    def segment_count(self) -> int:
        return len(self._segments)

    def assign_topic_id(self, topic_id: TopicId) -> None:
        """Write down whose partition this is; durable with the next flush."""
        self._unsynced_files.append(write_topic_id(self._disk, self.directory, topic_id))
        self._directory_changes += 1
        self.topic_id = topic_id

    def assign_epoch(self, leader_epoch: int) -> None:
        """Note that a leader's time begins at the end of the log, before it writes anything."""
        if leader_epoch > self.epochs.latest_epoch:
            self.epochs.assign(leader_epoch, self.end_offset)

    def leader_epoch_at(self, offset: int) -> int:
        """The epoch of the record at `offset`, -1 when that is not known."""
        return self.epochs.epoch_at(offset)

    # Appending.

    def append(self, batch: memoryview, header: BatchHeader, *, leader_epoch: int, now_ms: int) -> Appended:
        """Write one checked batch at the end; `batch` is writable and is stamped in place.

        Raises ApiError for a producer out of step, DiskFull or StorageFailure when the write fails (I3), and LogDamaged
        when the log speaks of a later leader.
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
        active = self._segments.active
        if (
            active.size + len(batch) > options.segment_bytes
            or header.max_timestamp > self._roll_after_ms
            or last_offset - active.base_offset > RELATIVE_OFFSET_MAX
        ):
            active = self._active_for(len(batch), last_offset, header.max_timestamp, now_ms)
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
        if replicated.gaps_after(self.end_offset, self._gaps):
            # The leader's log was compacted, or an operator has given up some of its messages.
            self._allow_gaps()
        number = 0
        while number < len(batches):
            start, header = batches[number]
            active = self._active_for(header.size, header.last_offset, header.max_timestamp, now_ms)
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

    def roll(self, now_ms: int) -> None:
        """Seal the last segment and begin a new one; nothing happens while the last one has held nothing yet."""
        active = self._segments.active
        if active.size == 0 and not active.damage:
            return
        end_offset = self.end_offset
        # First what may fail for want of space, then what changes this log.
        following = self._create_segment(end_offset)
        active.seal(end_offset)
        active.persist_indexes()
        self._snapshots.write(end_offset, self.producers)
        self._newly_sealed.append(active)
        self._segments.add(following)
        self._segments.used(active)
        self._snapped_bytes = 0
        self._roll_after_ms = _UNKNOWN
        self._active_since_ms = now_ms

    def maybe_roll(self, now_ms: int) -> bool:
        """Roll a segment that has grown old without new batches to notice it; whether it did."""
        active, options = self._segments.active, self._options
        if active.size == 0:
            return False
        roll_ms = self._roll_age_ms(active)
        if options.compact:
            roll_ms = min(roll_ms, options.max_compaction_lag_ms)
        since_ms = active.first_timestamp()
        if not 0 <= since_ms <= now_ms:
            since_ms = self._active_since_ms
        if now_ms - since_ms <= roll_ms:
            return False
        self.roll(now_ms)
        return True

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
        segments = self._segments
        segment = segments.active
        if offset >= segment.base_offset:
            start = segment.position_of(offset)
        else:
            segment, start = self._find_sealed(offset)
        stop = segment.size if end_offset >= segment.next_offset else segment.position_of(end_offset)
        is_cut = stop - start > max_bytes
        if is_cut:
            stop = min(stop, segment.cut_before(start + max_bytes, start=start, at_least_one=at_least_one))
        if segment.damage:
            stop = segment.sound_until(start, stop)
        if stop <= start:
            return NOTHING
        size = stop - start
        is_final = is_cut or segment.is_sealed
        unchecked = segment.unchecked_in(start, size)
        if unchecked is None:
            return LogSlice(segment.file, start, size, is_final)
        return LogSlice(segment.file, start, size, is_final, unchecked, segment.gaps, self.epochs.epoch_max)

    def next_unchecked(self, max_bytes: int) -> LogSlice | None:
        """What another process wrote and nobody has checked yet, about so many bytes of it; None when there is none."""
        piece = self._segments.next_unchecked(max_bytes)
        return None if piece is None else piece._replace(epoch_max=self.epochs.epoch_max)

    def distrust(self) -> None:
        """Have everything in sealed segments checked again: what was sound a week ago may not be any more."""
        self._segments.distrust_sealed()

    def find_damage_at(self, piece: LogSlice) -> None:
        """Reading this piece has failed: find out what of its segment is damaged, if it is not known yet."""
        if piece.file is not None:
            self._segments.find_damage_at(piece.file.path, piece.position)

    def _find_sealed(self, offset: int) -> tuple[Segment, int]:
        segments = self._segments
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

    # Flushing and checkpointing, see `flushing`.

    def begin_flush(self) -> FlushTicket | None:
        """What to sync so that all of the log is durable; None when it is."""
        self._health.check()
        directories_changed = self._directory_changes != self._synced_directory_changes
        if self.flushed_offset == self.end_offset and not directories_changed and not self._unsynced_files:
            return None
        files = [segment.file for segment in self._segments.from_offset(self.flushed_offset) if segment.size]
        directories = [self.directory] if directories_changed else []
        if self._parent_changed:
            directories.append(self.directory.rpartition("/")[0])
        return FlushTicket(
            disk=self._disk,
            health=self._health,
            end_offset=self.end_offset,
            generation=self._generation,
            files=files + self._unsynced_files,
            directories=directories,
            directory_changes=self._directory_changes,
        )

    def complete_flush(self, ticket: FlushTicket) -> None:
        """Count what a synced ticket made durable; one from before a truncation counts nothing."""
        self._health.check()
        if ticket.generation != self._generation:
            return
        self.flushed_offset = max(self.flushed_offset, ticket.end_offset)
        self._synced_directory_changes = max(self._synced_directory_changes, ticket.directory_changes)
        self._parent_changed = False
        self._unsynced_files = [file for file in self._unsynced_files if file not in ticket.files]

    def flush(self) -> None:
        """All three steps at once, for those who may wait."""
        ticket = self.begin_flush()
        if ticket is not None:
            ticket.sync()
            self.complete_flush(ticket)

    def begin_checkpoint(self) -> CheckpointTicket | None:
        """What to write before the recovery point may move; None when it cannot or need not."""
        self._health.check()
        is_due = self.flushed_offset != self.recovery_point or self._newly_sealed or self._floor is not None
        if not is_due and not self.epochs.is_dirty:
            return None
        sealed = [segment for segment in self._newly_sealed if segment in self._segments.sealed()]
        if not all(segment.persist_indexes() for segment in [*sealed, self._segments.active]):
            return None
        if self._segments.active.size - self._snapped_bytes >= _SNAPSHOT_EVERY_BYTES:
            self._write_snapshot()
        index_files = [file for segment in sealed for file in segment.index_files()]
        aborted_files = [file for segment in [*sealed, self._segments.active] for file in segment.aborted.files()]
        return CheckpointTicket(
            disk=self._disk,
            health=self._health,
            generation=self._generation,
            recovery_point=self.flushed_offset,
            sealed=sealed,
            index_files=index_files + aborted_files,
            directories=[self.directory] if aborted_files else [],
            epoch_path=f"{self.directory}/{EPOCH_CHECKPOINT}",
            epoch_content=encode_epochs(self.epochs.entries) if self.epochs.is_dirty else None,
            epoch_changes=self.epochs.changes,
        )

    def complete_checkpoint(self, ticket: CheckpointTicket) -> None:
        """The ticket's recovery point has been written down durably."""
        if ticket.generation != self._generation:
            return
        self.recovery_point = max(self.recovery_point, ticket.recovery_point)
        self._newly_sealed = [segment for segment in self._newly_sealed if segment not in ticket.sealed]
        if ticket.epoch_content is not None:
            self.epochs.saved_changes = ticket.epoch_changes
        if self._floor is not None:
            self._disk.remove(f"{self.directory}/{RECOVERY_FLOOR}")
            self._directory_changes += 1
            self._floor = None

    def close(self) -> None:
        """Make everything durable for a clean stop and let go of the files; raises StorageFailure.

        The recovery point stays where it is: it moves when the directory's last checkpoint has been written.
        """
        self.flush()
        ticket = self.begin_checkpoint()
        if ticket is not None:
            ticket.write()
            if ticket.epoch_content is not None:
                self.epochs.saved_changes = ticket.epoch_changes
        if ticket is not None or not self._opened_clean:
            # A clean start believes the indexes, so this once those of the last segment are synced too.
            for file in self._segments.active.index_files():
                file.sync()
        if self._snapshots.latest_offset != self.end_offset > 0:
            self._write_snapshot()
        for segment in self._segments:
            segment.release()

    def retire(self) -> None:
        """Its files go by another name from now on: what is under way for it must not touch those of a new log."""
        self._health.failure = "it is not used any more"
        self._generation += 1

    # Cutting.

    def truncate_to(self, offset: int, *, now_ms: int) -> None:
        """Drop everything from `offset` on; a batch that holds it goes whole. Durable when it returns."""
        if offset >= self.end_offset:
            self.epochs.truncate_from_end(offset)
            return
        if offset < self._segments.first.base_offset:
            self.truncate_fully_and_start_at(offset, now_ms=now_ms)
            return
        number = self._segments.number_at(offset)
        segment = self._segments[number]
        position = segment.position_of(offset)
        end_offset = segment.end_before(position)
        self._write_floor(end_offset)
        while len(self._segments) > number + 1:
            self._segments.remove_last().discard()
        segment.truncate(position)
        self._snapshots.remove_beyond(end_offset)
        self._sync_names()
        self.epochs.truncate_from_end(end_offset)
        self._set_end(end_offset, now_ms)
        if segment.aborted.is_damaged:
            rebuild_aborted(segment, self._producers_at(segment.base_offset, now_ms))
        self.producers = self._producers_at(end_offset, now_ms)

    def truncate_fully_and_start_at(self, offset: int, *, now_ms: int) -> None:
        """Drop everything and go on, empty, at `offset`. Durable when it returns."""
        self._write_floor(0)
        for segment in reversed(list(self._segments)):
            segment.discard()
        self._snapshots.remove_all()
        self._sync_names()
        self._segments = SegmentList([self._create_segment(offset)])
        self._sync_names()
        self.epochs.clear()
        self.producers.clear()
        self.log_start_offset = offset
        self._set_end(offset, now_ms)
        self.flushed_offset = self.recovery_point = self.high_watermark = offset

    def disown_checkpoints(self) -> None:
        """Tell a later recovery that this new log is not the one of which the checkpoints on disk speak."""
        self._write_floor(0)

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
            self._segments,
            self._options,
            now_ms=now_ms,
            up_to_offset=up_to_offset,
            log_start_offset=self.log_start_offset,
            untimed_since_ms=self._opened_at_ms,
        )
        if count == len(self._segments):
            self.roll(now_ms)
        count = min(count, _DELETIONS_AT_ONCE)
        for _ in range(count):
            # What stays is durable in the directory before anything goes, and the older goes durably before the newer:
            # a crash must leave a log without a hole.
            self._sync_names()
            gone = self._segments.remove_first().rename(DELETED)
            start_offset = max(self.log_start_offset, self._segments.first.base_offset)
            self._deleted_files.add(gone, now_ms, start_offset=start_offset)
            self._directory_changes += 1
        if count:
            first_offset = self._segments.first.base_offset
            self._snapshots.remove_before(first_offset)
            self.log_start_offset = max(self.log_start_offset, first_offset)
            self.epochs.truncate_from_start(self.log_start_offset)
            if self.flushed_offset < first_offset:
                # Deleted before it was flushed: once it cannot come back, nothing of it is missing.
                self._sync_names()
                self.flushed_offset = first_offset
        return count

    def remove_deleted_files(self, now_ms: int) -> int:
        """Give back the space of segments deleted long enough ago; returns how many files went."""
        return self._deleted_files.remove_due(now_ms, self._options.file_delete_delay_ms)

    def start_is_noted(self, offset: int) -> None:
        """A checkpoint says, durably, that the log starts there."""
        self._deleted_files.noted_start = offset

    def plan_compaction(self, now_ms: int, *, up_to_offset: int) -> CompactionPlan | None:
        """What to compact now, if the topic is compacted and enough has changed; one plan at a time.

        What is not decided stays as it is, whatever `up_to_offset`, the high watermark, says.
        """
        if not self._options.compact or (self._compaction is not None and not self._compaction.is_over):
            return None
        if self.damage:
            return None  # nothing of a damaged log is rewritten: what is left of it may be all there is
        segments = choose_segments(
            self._segments,
            self._options,
            now_ms=now_ms,
            up_to_offset=min(self.recovery_point, self.producers.transactions.stable_below(up_to_offset)),
            first_dirty_offset=self.cleaned_offset,
        )
        if not segments:
            return None
        first_offset, end_offset = segments[0].base_offset, segments[-1].next_offset
        self._compaction = CompactionPlan(
            disk=self._disk,
            directory=self.directory,
            options=self._options,
            now_ms=now_ms,
            generation=self._generation,
            sources=[Source(segment, segment.file) for segment in segments],
            first_dirty_offset=self.cleaned_offset,
            last_of_producers=LastOfProducers(self.producers.items()),
            aborted=self.aborted_transactions(first_offset, end_offset, now_ms=now_ms),
        )
        return self._compaction

    def complete_compaction(self, plan: CompactionPlan) -> bool:
        """Put what the plan has written in place; groups whose segments changed meanwhile are dropped (then False)."""
        self._compaction = None
        plan.is_over = True
        is_whole = True
        for group in plan.groups:
            is_current = plan.generation == self._generation and self._segments.hold(group.segments)
            is_whole = is_whole and is_current
            if group.replacement is None:
                continue
            if not is_current:
                group.discard(self._disk)
                continue
            self._allow_gaps()
            group.replacement.gaps, group.replacement.epochs = self._gaps, self.epochs
            group.put_in_place(self._disk, self.directory, self._segments)
            self._newly_sealed.append(group.replacement)
        if is_whole:
            self.cleaned_offset = max(self.cleaned_offset, plan.cleaned_offset)
        self._snapshots.keep_only({segment.base_offset for segment in self._segments})
        return is_whole

    # Transactions.

    def aborted_transactions(self, from_offset: int, to_offset: int, *, now_ms: int) -> list[AbortedTransaction]:
        """All with data below `to_offset` whose marker is at `from_offset` or later, in order of their beginnings.

        That is what a reader of these offsets has to know to leave out what was aborted; `to_offset` lies not beyond
        the last stable offset. Raises StorageFailure.
        """

        def rebuild(segment: Segment) -> None:
            rebuild_aborted(segment, self._producers_at(segment.base_offset, now_ms))

        return find_aborted(self._segments.from_offset(from_offset), from_offset, to_offset, rebuild)

    # Time.

    def times_below(self, end_offset: int) -> TimestampSearch:
        """To find records by their time, of those below `end_offset`."""
        start_offset = self.log_start_offset
        return TimestampSearch(self._segments, self.epochs, start_offset=start_offset, end_offset=end_offset)

    # Inside.

    def _answer_duplicate(self, known: KnownBatch) -> Appended:
        append_time_ms = known.timestamp_ms if self._options.log_append_time else -1
        return Appended(known.base_offset, known.last_offset, append_time_ms, True)

    def _active_for(self, size: int, last_offset: int, timestamp_ms: int, now_ms: int) -> Segment:
        """The segment to append a batch to: a new one when the batch is too large, too far or too late for the last."""
        active = self._segments.active
        if active.ends_damaged:
            self.roll(now_ms)  # nothing is written behind bytes that a later start could take for anything
        elif active.size:
            first_ms = active.first_timestamp()
            self._roll_after_ms = _NEVER if first_ms == NO_TIMESTAMP else first_ms + self._roll_age_ms(active)
            if (
                active.size + size > min(self._options.segment_bytes, POSITION_MAX)
                or last_offset - active.base_offset > RELATIVE_OFFSET_MAX
                or timestamp_ms > self._roll_after_ms
            ):
                self.roll(now_ms)
        return self._segments.active

    def _roll_age_ms(self, segment: Segment) -> int:
        """The age at which a segment is sealed: drawn from its name, so that it stays while it is asked again."""
        options = self._options
        jitter_ms = min(options.segment_jitter_ms, options.segment_ms)
        if not jitter_ms:
            return options.segment_ms
        return options.segment_ms - crc32(f"{self.partition}/{segment.base_offset}".encode()) % jitter_ms

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
        self.end_offset = header.next_offset

    def _producers_at(self, offset: int, now_ms: int) -> ProducerStates:
        return replay_producers(self._snapshots, self._segments, offset, self._options, now_ms)

    def _create_segment(self, base_offset: int) -> Segment:
        self._directory_changes += 1
        interval = self._options.index_interval_bytes
        segment = Segment.create(
            self._disk, self.directory, base_offset, index_interval_bytes=interval, gaps=self._gaps
        )
        segment.epochs = self.epochs
        return segment

    def _allow_gaps(self) -> None:
        """Write down that batches may be missing, before any is."""
        if not self._gaps.is_compacted:
            self._gaps = note_compaction(self._disk, self.directory, self._gaps)
            for segment in self._segments:
                segment.gaps = self._gaps

    def _write_snapshot(self) -> None:
        self._snapshots.write(self.end_offset, self.producers)
        self._snapshots.keep_only({segment.base_offset for segment in self._segments})
        self._snapped_bytes = self._segments.active.size

    def _write_floor(self, offset: int) -> None:
        """Tell a recovery after a crash not to expect anything from `offset` on, whatever the checkpoints say.

        Until the next checkpoint a floor can only sink: what grew since an earlier cut is in no checkpoint either.
        """
        self._floor = offset if self._floor is None else min(self._floor, offset)
        self._disk.replace_file(f"{self.directory}/{RECOVERY_FLOOR}", encode_offsets({self.partition: self._floor}))
        self._generation += 1

    def _sync_names(self) -> None:
        self._disk.sync_directory(self.directory)
        self._synced_directory_changes = self._directory_changes
        if self._parent_changed:
            self._disk.sync_directory(self.directory.rpartition("/")[0])
            self._parent_changed = False

    def _set_end(self, end_offset: int, now_ms: int) -> None:
        self.end_offset = end_offset
        self.log_start_offset = min(self.log_start_offset, end_offset)
        self.flushed_offset = min(self.flushed_offset, end_offset)
        self.recovery_point = min(self.recovery_point, end_offset)
        self.cleaned_offset = min(self.cleaned_offset, end_offset)
        self.high_watermark = min(self.high_watermark, end_offset)
        self._snapped_bytes = self._segments.active.size
        self._roll_after_ms = _UNKNOWN
        self._active_since_ms = now_ms
