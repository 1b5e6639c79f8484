"""A partition's log as the follower's rules want to see it.

The last epoch is the newest one the log knows of, even if no record carries it: a follower that led for a moment and
wrote nothing must name that epoch, so that the leader tells it to forget it before anything is appended under it.
"""

from martlet.log.partition_log import PartitionLog
from martlet.replication.follower import EpochEnd


class ReplicaLog:
    """A `FollowerLog`; as cheap as a reference."""

    __slots__ = ("_log",)

    def __init__(self, log: PartitionLog) -> None:
        self._log = log

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
