"""What of a log is on the device: flushing, checkpoints, the floor that a truncation leaves, and the stop.

Rules: synchronous; the blocking middle steps are tickets that a worker thread runs (`flushing`). Batches, segments,
epochs and producers belong to the log; this class only makes them durable and says how far they are.

How it works: a flush syncs the segments from `flushed_offset` on and the directory, if names in it have changed. A
checkpoint brings index files and leader epochs to the device, after which the recovery point may be written down. A
truncation raises the generation: tickets from before it count nothing.

Invariants: DUR-1 `recovery_point` ≤ `flushed_offset` ≤ the log's end, once the log has been flushed and checkpointed;
only a truncation moves them back. DUR-2 a floor that is on the device never rises before a checkpoint has removed it.
Proved by: tests/unit/log/test_flushing.py, tests/properties/test_log_model.py
"""

from typing import Final

from martlet.base.disk import DiskFile
from martlet.log.checkpoints import encode_epochs, encode_offsets
from martlet.log.file_names import EPOCH_CHECKPOINT, RECOVERY_FLOOR
from martlet.log.flushing import CheckpointTicket, FlushTicket, SyncHealth
from martlet.log.log_parts import LogParts
from martlet.log.segment import Segment

_SNAPSHOT_EVERY_BYTES: Final = 16 << 20


class Durability:
    """Owned by one log."""

    __slots__ = (
        "_directory_changes",
        "_floor",
        "_health",
        "_newly_sealed",
        "_opened_clean",
        "_parent_changed",
        "_parts",
        "_snapped_bytes",
        "_synced_directory_changes",
        "_unsynced_files",
        "flushed_offset",
        "generation",
        "recovery_point",
    )

    def __init__(self, parts: LogParts) -> None:
        self._parts = parts
        self._health = SyncHealth()
        self.generation = 0
        self.flushed_offset = self.recovery_point = 0
        self._newly_sealed: list[Segment] = []
        self._directory_changes = self._synced_directory_changes = 0
        self._parent_changed = False
        self._opened_clean = False
        self._unsynced_files: list[DiskFile] = []
        self._floor: int | None = None
        self._snapped_bytes = parts.segments.active.size

    def opened(
        self,
        flushed_offset: int,
        newly_sealed: list[Segment],
        *,
        is_clean: bool,
        is_new_directory: bool,
        floor: int | None,
    ) -> None:
        """What the opening of the log has found out; `floor` is the one that is on the device."""
        self.flushed_offset = self.recovery_point = flushed_offset
        self._newly_sealed = list(newly_sealed)
        self._opened_clean = is_clean
        self._parent_changed = is_new_directory
        self._floor = floor
        if not is_clean:
            self._directory_changes += 1
        if floor is not None and not is_clean:
            # A truncation may have been interrupted before it was durable: what it took away must not come back under
            # batches that are appended from now on.
            for segment in self._parts.segments.from_offset(floor):
                segment.file.sync()
            self.sync_names()

    # What the log has changed.

    def names_changed(self) -> None:
        """Files were made, renamed or removed: the directory has to be synced."""
        self._directory_changes += 1

    def needs_sync(self, file: DiskFile) -> None:
        """This new file has to be synced with the next flush."""
        self._unsynced_files.append(file)
        self._directory_changes += 1

    def sealed(self, segment: Segment) -> None:
        """No more batches go to this segment: its indexes have to be synced with the next checkpoint."""
        self._newly_sealed.append(segment)

    def rolled(self) -> None:
        """A new segment has begun and the producers were saved."""
        self._snapped_bytes = 0

    def truncated(self, end_offset: int) -> None:
        """The log ends there now, durably."""
        self.flushed_offset = min(self.flushed_offset, end_offset)
        self.recovery_point = min(self.recovery_point, end_offset)
        self._snapped_bytes = self._parts.segments.active.size

    def restarted_at(self, offset: int) -> None:
        """The log holds nothing and begins there now, durably."""
        self.flushed_offset = self.recovery_point = offset

    def lower_floor(self, offset: int) -> None:
        """Let a recovery after a crash not expect anything from `offset` on, whatever the checkpoints say.

        Until the next checkpoint a floor can only sink: what grew since an earlier truncation is in no checkpoint.
        """
        self._floor = offset if self._floor is None else min(self._floor, offset)
        content = encode_offsets({self._parts.partition: self._floor})
        self._parts.disk.replace_file(f"{self._parts.directory}/{RECOVERY_FLOOR}", content)
        self.generation += 1

    def sync_names(self) -> None:
        """Make the names in the directory durable now."""
        self._parts.disk.sync_directory(self._parts.directory)
        self._synced_directory_changes = self._directory_changes
        if self._parent_changed:
            self._parts.disk.sync_directory(self._parts.directory.rpartition("/")[0])
            self._parent_changed = False

    # Flushing.

    def begin_flush(self) -> FlushTicket | None:
        """What to sync so that all of the log is durable; None when it is."""
        self._health.check()
        end_offset = self._parts.segments.active.next_offset
        directories_changed = self._directory_changes != self._synced_directory_changes
        if self.flushed_offset >= end_offset and not directories_changed and not self._unsynced_files:
            return None
        files = [segment.file for segment in self._parts.segments.from_offset(self.flushed_offset) if segment.size]
        directories = [self._parts.directory] if directories_changed else []
        if self._parent_changed:
            directories.append(self._parts.directory.rpartition("/")[0])
        return FlushTicket(
            disk=self._parts.disk,
            health=self._health,
            end_offset=end_offset,
            generation=self.generation,
            files=files + self._unsynced_files,
            directories=directories,
            directory_changes=self._directory_changes,
        )

    def complete_flush(self, ticket: FlushTicket) -> None:
        """Count what a synced ticket made durable; one from before a truncation counts nothing."""
        self._health.check()
        if ticket.generation != self.generation:
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

    # Checkpoints.

    def begin_checkpoint(self) -> CheckpointTicket | None:
        """What to write before the recovery point may move; None when it cannot or need not."""
        self._health.check()
        is_due = self.flushed_offset != self.recovery_point or self._newly_sealed or self._floor is not None
        if not is_due and not self._parts.epochs.is_dirty:
            return None
        active = self._parts.segments.active
        sealed = [segment for segment in self._newly_sealed if segment in self._parts.segments.sealed()]
        if not all(segment.files.save_indexes() for segment in [*sealed, active]):
            return None
        if active.size - self._snapped_bytes >= _SNAPSHOT_EVERY_BYTES:
            self._write_snapshot()
        index_files = [file for segment in sealed for file in segment.files.index_files()]
        aborted_files = [file for segment in [*sealed, active] for file in segment.aborted.files()]
        return CheckpointTicket(
            disk=self._parts.disk,
            health=self._health,
            generation=self.generation,
            recovery_point=self.flushed_offset,
            sealed=sealed,
            index_files=index_files + aborted_files,
            directories=[self._parts.directory] if aborted_files else [],
            epoch_path=f"{self._parts.directory}/{EPOCH_CHECKPOINT}",
            epoch_content=encode_epochs(self._parts.epochs.entries) if self._parts.epochs.is_dirty else None,
            epoch_changes=self._parts.epochs.changes,
        )

    def complete_checkpoint(self, ticket: CheckpointTicket) -> None:
        """The ticket's recovery point has been written down durably."""
        if ticket.generation != self.generation:
            return
        self.recovery_point = max(self.recovery_point, ticket.recovery_point)
        self._newly_sealed = [segment for segment in self._newly_sealed if segment not in ticket.sealed]
        if ticket.epoch_content is not None:
            self._parts.epochs.saved_changes = ticket.epoch_changes
        if self._floor is not None:
            self._parts.disk.remove(f"{self._parts.directory}/{RECOVERY_FLOOR}")
            self._directory_changes += 1
            self._floor = None

    # The end.

    def close(self) -> None:
        """Make everything durable for a clean stop and let go of the files; raises StorageFailure.

        The recovery point stays where it is: it moves when the directory's last checkpoint has been written.
        """
        self.flush()
        ticket = self.begin_checkpoint()
        if ticket is not None:
            ticket.write()
            if ticket.epoch_content is not None:
                self._parts.epochs.saved_changes = ticket.epoch_changes
        active = self._parts.segments.active
        if ticket is not None or not self._opened_clean:
            # A clean start believes the indexes, so this once those of the last segment are synced too.
            for file in active.files.index_files():
                file.sync()
        if self._parts.snapshots.latest_offset != active.next_offset > 0:
            self._write_snapshot()
        for segment in self._parts.segments:
            segment.release()

    def retire(self) -> None:
        """The log's files go by another name from now on: what is under way must not touch those of a new log."""
        self._health.failure = "it is not used any more"
        self.generation += 1

    def _write_snapshot(self) -> None:
        self._parts.snapshots.write(self._parts.segments.active.next_offset, self._parts.producers)
        self._parts.snapshots.keep_only({segment.base_offset for segment in self._parts.segments})
        self._snapped_bytes = self._parts.segments.active.size
