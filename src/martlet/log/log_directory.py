"""All logs of one directory: finding them at start, creating and deleting them, checkpoints, the clean stop.

Rules: knows partitions by name and nothing about topics, leaders or replicas. One process uses a directory at a time;
the process that opens it makes sure of that. A partition that does not open is set aside in `failures` with its files
as they are: nothing is ever deleted because something about it cannot be read.

How it works: four checkpoint files hold one offset per partition each, in Kafka's text format: up to where the log was
flushed (recovery starts there), where it starts, up to where it was compacted, and its high watermark. They are written
together, in three steps like a flush (`begin_checkpoint`, `write` in a thread, `complete_checkpoint`). A marker file
tells the next start that the last stop was clean; it goes before the first append. Opening a damaged log mends it, and
with that the damage can no longer be seen; so another marker keeps it in mind until the owner says that all concerned
know. A log whose directory is gone, though a checkpoint says that it held something, is a failure like a damaged one:
offsets that were handed out must not be handed out again.

Invariants: LDIR-1 a recovery point on disk is never above what was flushed; LDIR-2 a start offset on disk is never
above the recovery point on disk; LDIR-3 the marker exists only while all logs are closed and durable.
Proved by: tests/unit/log/test_log_directory.py
"""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from functools import partial

from martlet.base.disk import Disk
from martlet.base.errors import DiskFull, LogDamaged, StorageFailure
from martlet.base.ids import TopicId, TopicPartition
from martlet.base.invariant import invariant
from martlet.log.batch_order import EPOCH_MAX
from martlet.log.checkpoint_files import CheckpointFiles, Offsets, read_checkpoint_files
from martlet.log.checkpoints import encode_offsets
from martlet.log.file_names import (
    ASIDE_NOTED,
    CLEAN_SHUTDOWN,
    CLEANED_OFFSETS,
    DELETED_DIRECTORY,
    HIGH_WATERMARKS,
    LOG_START_OFFSETS,
    LOSS_FOUND,
    RECOVERY_FLOOR,
    RECOVERY_POINTS,
    STRAY_DIRECTORY,
    aside_directory,
    is_aside,
    is_aside_of,
    parse_partition_directory,
    partition_directory,
)
from martlet.log.flushing import CheckpointTicket
from martlet.log.options import LogOptions
from martlet.log.partition_log import PartitionLog
from martlet.log.partition_metadata import read_topic_id
from martlet.log.recovery import LogCheckpoint


@dataclass(slots=True)
class DirectoryCheckpoint:
    """A checkpoint on its way; `write` blocks and may run in a thread."""

    disk: Disk
    path: str
    tickets: list[tuple[PartitionLog, CheckpointTicket]]
    recovery_points: Offsets
    log_start_offsets: Offsets
    cleaned_offsets: Offsets
    high_watermarks: Offsets
    asides: list[str]
    """Directories that stood aside when it began: what it writes knows of them."""
    failures: dict[TopicPartition, StorageFailure] = field(default_factory=dict)

    def write(self) -> None:
        """Write what each log needs, then the offsets; raises StorageFailure when the offsets cannot be written."""
        for log, ticket in self.tickets:
            try:
                ticket.write()
            except StorageFailure as error:
                self.failures[log.partition] = error
            else:
                self.recovery_points[log.partition] = ticket.recovery_point
        # First, so that a log which is lost just now is missed rather than taken for the one that stands aside.
        noted = "".join(f"{name}\n" for name in self.asides).encode()
        if (self.disk.read_file(f"{self.path}/{ASIDE_NOTED}") or b"") != noted:
            self.disk.replace_file(f"{self.path}/{ASIDE_NOTED}", noted)
        # In this order and cut like this, a start offset never stands above its recovery point (LDIR-2).
        starts = {name: min(start, self.recovery_points[name]) for name, start in self.log_start_offsets.items()}
        for name, offsets in (
            (RECOVERY_POINTS, self.recovery_points),
            (LOG_START_OFFSETS, {partition: start for partition, start in starts.items() if start > 0}),
            (CLEANED_OFFSETS, self.cleaned_offsets),
            (HIGH_WATERMARKS, self.high_watermarks),
        ):
            path, content = f"{self.path}/{name}", encode_offsets(offsets)
            if self.disk.read_file(path) != content:
                self.disk.replace_file(path, content)


class LogDirectory:
    """Owns the logs of one directory from `open` to `close`."""

    def __init__(self, disk: Disk, path: str, options: LogOptions) -> None:
        self.disk = disk
        self.path = path
        self._options = options
        self._logs: dict[TopicPartition, PartitionLog] = {}
        self._set_aside: dict[TopicPartition, LogCheckpoint] = {}
        self._checkpointed: set[TopicPartition] = set()
        self._deleted: list[str] = []
        self._asides: set[str] = set()
        self._noted: set[str] = set()
        self._removed: list[str] = []
        self._has_mended = False
        self.failures: dict[TopicPartition, StorageFailure] = {}
        self.started_clean = False
        self.started_whole = False
        """Whether every log that the checkpoints name was there, undamaged, and holds all that was flushed. A log that
        was deleted or set aside after they were written is not missed: they note what stands aside already."""
        self.started_kept = False
        """Whether nothing that was flushed or known to be committed is missing; a power loss may have taken more."""
        self.started_empty = False
        """Whether there was nothing: no log, and no checkpoint that speaks of one."""
        self.started_unread = False
        """Whether the device failed or was full when some logs were to be opened; of these the others say nothing."""

    def open(
        self,
        now_ms: int,
        options_for: Callable[[TopicPartition], LogOptions] | None = None,
        epoch_max_for: Callable[[TopicPartition, TopicId | None], int] = lambda partition, topic_id: EPOCH_MAX,
    ) -> None:
        """Open every log found; those that fail are in `failures`. Raises StorageFailure when the directory fails.

        `epoch_max_for` tells the greatest leader epoch that a partition has had, when the topic id is that of its log.
        """
        disk, path = self.disk, self.path
        _make_durable_directory(disk, path)
        marker = f"{path}/{CLEAN_SHUTDOWN}"
        self.started_clean = disk.exists(marker)
        if not self.started_clean:
            # A directory made just before a kill is here but perhaps not yet durably so; logs rely on theirs.
            disk.sync_directory(path)
        files = read_checkpoint_files(disk, path)
        recovery_points = files.recovery_points
        self._checkpointed = set(recovery_points or ()) | set(files.starts or ()) | set(files.cleaned or ())
        names = [name for name, is_directory, _ in disk.list_directory(path) if is_directory]
        self._asides = set(filter(is_aside, names))
        self._noted = set((disk.read_file(f"{path}/{ASIDE_NOTED}") or b"").decode(errors="replace").splitlines())
        lately = self._asides - self._noted
        has_unknown_loss = disk.exists(f"{path}/{LOSS_FOUND}")
        for name in names:
            if name.endswith(DELETED_DIRECTORY):
                self._deleted.append(f"{path}/{name}")
                continue
            partition = parse_partition_directory(name)
            if partition is not None:
                epoch_max = epoch_max_for(partition, read_topic_id(disk, f"{path}/{name}"))
                checkpoint = files.of(partition, is_clean=self.started_clean, epoch_max=epoch_max)
                if _was_put_aside(partition, lately) and not self.started_clean:
                    checkpoint = files.of_its_successor(partition)._replace(epoch_max=epoch_max)
                self._open_log(partition, options_for(partition) if options_for else self._options, checkpoint, now_ms)
        self._miss_directories(files, lately)
        try:
            if any(log.is_damaged for log in self._logs.values()) or (recovery_points is None and len(self) > 0):
                self._note_loss()
            if recovery_points is None:
                self.checkpoint()
        except DiskFull:
            # No checkpoint without the note: so the next start sees the same, unless the owner has made it known.
            self._has_mended = True
        unread = {name for name, failure in self.failures.items() if not isinstance(failure, LogDamaged)}
        self.started_unread = bool(unread)
        there = self._logs.keys() | unread
        self.started_empty = recovery_points is None and not there and not self.failures
        self.started_kept = (
            recovery_points is not None
            and self.failures.keys() == unread
            and not has_unknown_loss
            and all(partition in there or _was_put_aside(partition, lately) for partition in recovery_points)
            and not any(log.lacks_committed for log in self._logs.values())
        )
        self.started_whole = self.started_kept and not self._has_mended
        if self.started_clean:
            disk.remove(marker)
            disk.sync_directory(path)

    def loss_is_known(self) -> None:
        """The cluster knows that something of these logs is missing, if it is."""
        self.disk.remove(f"{self.path}/{LOSS_FOUND}")

    def get(self, partition: TopicPartition) -> PartitionLog | None:
        return self._logs.get(partition)

    def __iter__(self) -> Iterator[PartitionLog]:
        return iter(self._logs.values())

    def __len__(self) -> int:
        return len(self._logs)

    def create(
        self, partition: TopicPartition, options: LogOptions | None = None, *, topic_id: TopicId, now_ms: int
    ) -> PartitionLog:
        """A new, empty log; raises ApiError(INVALID_TOPIC_EXCEPTION) for a name no directory can have."""
        invariant(partition not in self._logs and partition not in self.failures, f"{partition} has no log yet")
        log = PartitionLog.open(
            self.disk,
            f"{self.path}/{partition_directory(partition)}",
            options or self._options,
            partition=partition,
            checkpoint=LogCheckpoint(),
            now_ms=now_ms,
        )
        log.assign_topic_id(topic_id)
        if partition in self._checkpointed:
            # The offsets on disk are those of a deleted log of the same name.
            log.durability.lower_floor(0)
        self._logs[partition] = log
        return log

    def delete(self, partition: TopicPartition) -> None:
        """Forget a log and move its files aside; `remove_deleted` removes them later, which may take its time."""
        self._forget(partition)
        target = self._move_aside(partition, DELETED_DIRECTORY)
        if target is not None:
            self._deleted.append(target)

    def set_aside(self, partition: TopicPartition) -> str | None:
        """Stop serving a log without an owner but keep its files, under the name returned, for an operator."""
        self._forget(partition)
        return self._move_aside(partition, STRAY_DIRECTORY)

    def remove_deleted(self) -> int:
        """Remove the files of deleted logs; blocks, and may run in a thread. Returns how many logs that were."""
        count = 0
        while self._deleted:
            self.disk.remove_tree(self._deleted[-1])
            self._removed.append(self._deleted.pop().rpartition("/")[2])
            count += 1
        return count

    def begin_checkpoint(self) -> DirectoryCheckpoint:
        """Gather what a checkpoint has to write."""
        tickets: list[tuple[PartitionLog, CheckpointTicket]] = []
        while self._removed:
            self._asides.discard(self._removed.pop())
        checkpoint = DirectoryCheckpoint(self.disk, self.path, tickets, {}, {}, {}, {}, sorted(self._asides))
        for partition, known in self._set_aside.items():
            if known.recovery_point is not None:
                _note_offsets(checkpoint, partition, known)
        for partition, log in self._logs.items():
            start_offset = log.settled_start.offset()
            offsets = (log.durability.recovery_point, start_offset, log.compaction.cleaned_offset)
            _note_offsets(checkpoint, partition, LogCheckpoint(*offsets, high_watermark=log.high_watermark))
            try:
                ticket = log.durability.begin_checkpoint()
            except StorageFailure as error:
                checkpoint.failures[partition] = error
                continue
            if ticket is not None:
                tickets.append((log, ticket))
        self._checkpointed |= set(checkpoint.recovery_points)
        return checkpoint

    def complete_checkpoint(self, checkpoint: DirectoryCheckpoint) -> None:
        """The checkpoint has been written."""
        self._noted = set(checkpoint.asides)
        for partition, log in self._logs.items():
            start, recovery_point = (
                offsets.get(partition, 0) for offsets in (checkpoint.log_start_offsets, checkpoint.recovery_points)
            )
            log.deleted_files.noted_start = min(start, recovery_point)
        for log, ticket in checkpoint.tickets:
            if log.partition not in checkpoint.failures and self._logs.get(log.partition) is log:
                log.durability.complete_checkpoint(ticket)

    def checkpoint(self) -> None:
        """All three steps at once, for those who may wait."""
        checkpoint = self.begin_checkpoint()
        checkpoint.write()
        self.complete_checkpoint(checkpoint)

    def close(self, *, clean: bool = True) -> None:
        """Stop using the directory; with `clean` everything is made durable and marked so, if that succeeds.

        Raises DiskFull when there is no space for the checkpoint: the next start checks the logs, as after a crash.
        """
        if not clean:
            self._logs.clear()
            return
        failed = dict(self.failures)
        for partition, log in self._logs.items():
            try:
                log.durability.close()
            except StorageFailure as error:
                failed[partition] = error
        self.checkpoint()
        if not failed:
            self.disk.replace_file(f"{self.path}/{CLEAN_SHUTDOWN}", b"")
        self._logs.clear()
        self.failures = failed

    def _miss_directories(self, files: CheckpointFiles, lately: set[str]) -> None:
        """Note the logs that held something by what the checkpoints say, and whose directories are gone."""
        for partition in files.partitions():
            end_offset = files.end_of(partition)
            is_there = partition in self._logs or partition in self.failures
            if end_offset and not is_there and not _was_put_aside(partition, lately):
                directory = f"{self.path}/{partition_directory(partition)}"
                self.failures[partition] = LogDamaged(
                    f"{directory} is gone, and all offsets below {end_offset} with it"
                )
                self._set_aside[partition] = files.of(partition, is_clean=False)

    def _forget(self, partition: TopicPartition) -> None:
        log = self._logs.pop(partition, None)
        if log is not None:
            log.durability.retire()
        self.failures.pop(partition, None)
        self._set_aside.pop(partition, None)

    def _move_aside(self, partition: TopicPartition, suffix: str) -> str | None:
        directory = f"{self.path}/{partition_directory(partition)}"
        # Whatever it is now: what cannot be opened is in the way of another directory of that name, too.
        if partition_directory(partition) not in (name for name, _, _ in self.disk.list_directory(self.path)):
            return None
        number = 0
        # A name that the checkpoints know, be it of a directory that is gone, would tell the next start nothing new.
        while (name := aside_directory(partition, f"{number:08x}", suffix)) in self._noted or self.disk.exists(
            f"{self.path}/{name}"
        ):
            number += 1
        target = f"{self.path}/{name}"
        self._asides.add(name)
        self.disk.rename(directory, target)
        self.disk.sync_directory(self.path)
        return target

    def _open_log(self, partition: TopicPartition, options: LogOptions, checkpoint: LogCheckpoint, now_ms: int) -> None:
        directory = f"{self.path}/{partition_directory(partition)}"
        open_it = partial(
            PartitionLog.open,
            self.disk,
            directory,
            options,
            partition=partition,
            checkpoint=checkpoint,
            now_ms=now_ms,
            on_damage=self._note_loss,
        )
        try:
            try:
                self._logs[partition] = open_it()
            except LogDamaged:
                raise
            except StorageFailure:
                # A device that fails once is not worth a partition that waits for the next start.
                self._logs[partition] = open_it()
        except StorageFailure as error:
            self.failures[partition] = error
            self._set_aside[partition] = checkpoint
            if checkpoint.recovery_point is None and not isinstance(error, DiskFull):
                # The next start will find a checkpoint without this partition, which must not mean "nothing flushed".
                self.disk.replace_file(f"{directory}/{RECOVERY_FLOOR}", b"unknown\n")

    def _note_loss(self) -> None:
        if not self._has_mended:
            self.disk.replace_file(f"{self.path}/{LOSS_FOUND}", b"")
            self._has_mended = True


def _make_durable_directory(disk: Disk, path: str) -> None:
    missing = []
    while path and not disk.exists(path):
        missing.append(path)
        path = path.rpartition("/")[0]
    for directory in reversed(missing):
        disk.make_directory(directory)
        disk.sync_directory(directory.rpartition("/")[0] or ("/" if directory.startswith("/") else ""))


def _note_offsets(checkpoint: DirectoryCheckpoint, partition: TopicPartition, known: LogCheckpoint) -> None:
    checkpoint.recovery_points[partition] = known.recovery_point or 0
    if known.log_start_offset > 0:
        checkpoint.log_start_offsets[partition] = known.log_start_offset
    if known.cleaned_offset > 0:
        checkpoint.cleaned_offsets[partition] = known.cleaned_offset
    if known.high_watermark > 0:
        checkpoint.high_watermarks[partition] = known.high_watermark


def _was_put_aside(partition: TopicPartition, lately: Iterable[str]) -> bool:
    """Whether a log that is not there was deleted or set aside on purpose, after the checkpoints were written."""
    return any(is_aside_of(name, partition) for name in lately)
