"""Making a log durable in three steps, of which only the middle one blocks and runs in a worker thread.

    ticket = durability.begin_flush()        on the loop: which files hold unsynced batches
    ticket.sync()                            in a thread: waits for the device
    durability.complete_flush(ticket)        on the loop: `flushed_offset` moves up

A checkpoint goes the same way: index files and leader epochs first, then the recovery point may be written down. The
two are apart because acknowledgements wait for the first only.

Invariants: FLUSH-1 a batch counts as flushed when its file and the directory entry of its file are synced; FLUSH-2
after a failed sync nothing of this log is ever called flushed again: what a device did with the data is then unknown
and a second sync that succeeds proves nothing.
Proved by: tests/unit/log/test_flushing.py, tests/properties/test_log_model.py
"""

from dataclasses import dataclass, field

from martlet.base.disk import Disk, DiskFile
from martlet.base.errors import DiskFull, StorageFailure
from martlet.log.segment import Segment


class SyncHealth:
    """Whether every sync of a log has succeeded; shared between the log and its tickets."""

    __slots__ = ("failure",)

    def __init__(self) -> None:
        self.failure: str | None = None

    def check(self) -> None:
        """Raise StorageFailure when a sync has failed before (FLUSH-2)."""
        if self.failure is not None:
            raise StorageFailure(f"the log takes no more syncs: {self.failure}")

    def fail(self, error: StorageFailure) -> None:
        self.failure = str(error)
        if isinstance(error, DiskFull):
            # A full disk heals when found while writing; found while syncing it has lost data.
            raise StorageFailure(f"no space was left while syncing: {error}") from error


@dataclass(slots=True)
class FlushTicket:
    """The files to sync so that everything below `end_offset` is durable."""

    disk: Disk
    health: SyncHealth
    end_offset: int
    generation: int
    files: list[DiskFile]
    directories: list[str] = field(default_factory=list)
    directory_changes: int = 0

    def sync(self) -> None:
        """Wait until the device has it all; raises StorageFailure."""
        self.health.check()
        try:
            for file in self.files:
                file.sync()
            for directory in self.directories:
                self.disk.sync_directory(directory)
        except StorageFailure as error:
            self.health.fail(error)
            raise


@dataclass(slots=True)
class CheckpointTicket:
    """What must be durable before `recovery_point` may be written down for this log."""

    disk: Disk
    health: SyncHealth
    generation: int
    recovery_point: int
    sealed: list[Segment]
    index_files: list[DiskFile]
    directories: list[str]
    epoch_path: str
    epoch_content: bytes | None
    epoch_changes: int

    def write(self) -> None:
        """Wait until the device has it all; raises StorageFailure, also when the log is not used any more."""
        self.health.check()
        try:
            for file in self.index_files:
                file.sync()
            for directory in self.directories:
                self.disk.sync_directory(directory)
            if self.epoch_content is not None:
                self.disk.replace_file(self.epoch_path, self.epoch_content)
        except DiskFull:
            # Nothing acknowledged depends on these files; the recovery point just stays where it is.
            raise
        except StorageFailure as error:
            self.health.fail(error)
            raise
