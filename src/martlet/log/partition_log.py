"""One partition's log: appending, finding, flushing, rolling, cutting; the face the broker and the replicas see.

Rules: synchronous and single-threaded; the caller is the partition's owner. The blocking middle steps of flushing,
checkpointing and compacting are objects that a worker thread runs (`flushing`, `compaction`). No clock: time comes as
`now_ms`. What a batch contains is not looked at here beyond its header.

How it works. A log is a list of segments (`segment_list`) of which the last is appended to. `append` takes a batch as
the client sent it, checks its producer, stamps offset and leader epoch, and writes it. Everything else a log knows,
indexes, epochs, producers, can be rebuilt from the batches, and is after a crash (`recovery`).

Invariants:
1. Offsets are handed out without gaps by `append`; batches in the file stand in offset order.
2. `log_start_offset` ≤ `recovery_point` ≤ `flushed_offset` ≤ `end_offset`, once the log has been flushed and
   checkpointed; only a truncation moves any of them back.
3. A write that fails leaves everything as it was.
4. Epochs and producers are those of the batches in the log (and what snapshots remember of deleted ones).
Proved by: tests/unit/log/test_partition_log.py, tests/properties/test_log_model.py
"""

from typing import Final

from martlet.base.disk import Disk
from martlet.base.errors import ApiError, ErrorCode
from martlet.base.ids import TopicId, TopicPartition
from martlet.base.invariant import invariant
from martlet.log.checkpoints import (
    BrokenCheckpoint,
    decode_offsets,
    decode_topic_id,
    encode_epochs,
    encode_offsets,
    encode_topic_id,
)
from martlet.log.file_names import DELETED, EPOCH_CHECKPOINT, PARTITION_METADATA, RECOVERY_FLOOR
from martlet.log.flushing import CheckpointTicket, FlushTicket, SyncHealth
from martlet.log.log_slice import NOTHING, Appended, LogSlice, TimestampOffset
from martlet.log.options import LogOptions
from martlet.log.producer_state import KnownBatch
from martlet.log.recovery import LoadedLog, LogCheckpoint, load_log, replay_producers
from martlet.log.segment import POSITION_MAX, RELATIVE_OFFSET_MAX, Segment
from martlet.wire.batch import BatchHeader, stamp_batch, stamp_log_append_time

_SNAPSHOT_EVERY_BYTES: Final = 16 << 20
_UNKNOWN: Final = -(1 << 63)


class PartitionLog:
    """Owned by the broker's partition; made by `open`, unusable after `close` or a StorageFailure."""

    __slots__ = (
        "_changed_directories",
        "_cleaned_offset",
        "_compacting",
        "_deleted_files",
        "_directory_changes",
        "_disk",
        "_generation",
        "_has_floor",
        "_health",
        "_options",
        "_roll_after_ms",
        "_segments",
        "_snapshots",
        "_unsnapped_bytes",
        "_unsynced_files",
        "cut_bytes",
        "directory",
        "end_offset",
        "epochs",
        "flushed_offset",
        "log_start_offset",
        "opened_at_ms",
        "partition",
        "producers",
        "recovery_point",
        "topic_id",
    )

    def __init__(
        self, disk: Disk, directory: str, options: LogOptions, partition: TopicPartition, loaded: LoadedLog, now_ms: int
    ) -> None:
        self._disk = disk
        self._options = options
        self.directory = directory
        self.partition = partition
        self.opened_at_ms = now_ms
        self._segments = loaded.segments
        self._snapshots = loaded.snapshots
        self.epochs = loaded.epochs
        self.producers = loaded.producers
        self.log_start_offset = loaded.log_start_offset
        self.end_offset = loaded.end_offset
        self.flushed_offset = loaded.flushed_offset
        self.recovery_point = loaded.flushed_offset
        self.cut_bytes = loaded.cut_bytes
        self.topic_id: TopicId | None = None
        self._cleaned_offset = 0
        self._roll_after_ms = _UNKNOWN
        self._unsnapped_bytes = 0
        self._generation = 0
        self._health = SyncHealth()
        # The segment found or made at opening may be new to its directory.
        self._changed_directories = [directory]
        self._directory_changes = 0
        self._unsynced_files: list[DiskFile] = []
        self._deleted_files: list[tuple[int, str]] = []
        self._has_floor = False
        self._compacting = False
