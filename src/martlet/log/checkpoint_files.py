"""The four checkpoint files of a log directory, read together: what each of them says of a partition.

Rules: reads only. A file that is missing or damaged says nothing, which is not the same as zero.
Proved by: tests/unit/log/test_log_directory.py
"""

from functools import partial
from typing import NamedTuple

from martlet.base.disk import Disk
from martlet.base.ids import TopicPartition
from martlet.log.batch_order import EPOCH_MAX
from martlet.log.checkpoints import BrokenCheckpoint, decode_offsets
from martlet.log.file_names import CLEANED_OFFSETS, HIGH_WATERMARKS, LOG_START_OFFSETS, RECOVERY_POINTS
from martlet.log.rebuilt_files import read_rebuilt
from martlet.log.recovery import LogCheckpoint

Offsets = dict[TopicPartition, int]


class CheckpointFiles(NamedTuple):
    """Each file's offsets by partition; None for one that cannot be read."""

    recovery_points: Offsets | None
    starts: Offsets | None
    cleaned: Offsets | None
    high_watermarks: Offsets | None

    def of(self, partition: TopicPartition, *, is_clean: bool, epoch_max: int = EPOCH_MAX) -> LogCheckpoint:
        """What is known of one partition."""
        return LogCheckpoint(
            None if self.recovery_points is None else self.recovery_points.get(partition, 0),
            (self.starts or {}).get(partition, 0),
            (self.cleaned or {}).get(partition, 0),
            is_clean=is_clean,
            high_watermark=(self.high_watermarks or {}).get(partition, 0),
            is_start_known=self.starts is not None,
            epoch_max=epoch_max,
        )

    def of_its_successor(self, partition: TopicPartition) -> LogCheckpoint:
        """What is known of a log made in the place of one that was put aside after these files were written."""
        return LogCheckpoint(None if self.recovery_points is None else 0)

    def partitions(self) -> set[TopicPartition]:
        """All that the files which tell where logs end know of."""
        return {*(self.recovery_points or ()), *(self.high_watermarks or ())}

    def end_of(self, partition: TopicPartition) -> int:
        """Below this offset all was flushed or known to be committed."""
        return max((self.recovery_points or {}).get(partition, 0), (self.high_watermarks or {}).get(partition, 0))


def read_checkpoint_files(disk: Disk, path: str, *, all_are_readable: bool = True) -> CheckpointFiles:
    """What the files in the log directory at `path` say; raises StorageFailure, unless not all need be readable."""
    read = disk.read_file if all_are_readable else partial(read_rebuilt, disk)
    return CheckpointFiles(
        *(
            _decode(read(f"{path}/{name}"))
            for name in (RECOVERY_POINTS, LOG_START_OFFSETS, CLEANED_OFFSETS, HIGH_WATERMARKS)
        )
    )


def _decode(content: bytes | None) -> Offsets | None:
    try:
        return None if content is None else decode_offsets(content)
    except BrokenCheckpoint:
        return None
