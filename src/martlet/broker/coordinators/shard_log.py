"""A partition of an internal topic as the log under a shard, opened with the first record that is written.

So a coordinator with fifty shards and one group has one log on disk. A partition that has a log when the broker starts,
or that is replicated, is open already. Other requests that name the partition open its log too, such as those of a
client that lists the offsets of all topics. A log opened so is empty, like the shard's state, and is taken as its own.

Invariants:
SHLOG-1 A shard log serves one leadership: when this process has led under another epoch since, another broker may have
written in between, and the shard has to be loaded again.
SHLOG-2 A log that holds, or ever held, what the shard has not written is not taken as its own.

Proved by: tests/unit/broker/coordinators/test_group_coordinator.py, tests/broker/test_offset_apis.py
"""

from collections.abc import Callable, Sequence
from typing import Final

from martlet.base.errors import ApiError, ErrorCode, StorageFailure
from martlet.base.ids import NO_LEADER_EPOCH
from martlet.base.invariant import invariant
from martlet.broker.partitions.partition import Partition
from martlet.broker.partitions.partition_table import PartitionTable
from martlet.coordinator.ports import LogEntry
from martlet.coordinator.result import OfProducer
from martlet.coordinator.snapshots import DEFAULT_SNAPSHOTS, LogGrowth, SnapshotRule
from martlet.wire.batch import CONTROL_BIT, TRANSACTIONAL_BIT, build_batch, read_batch_header

_NO_HEADERS: Final = ()


class PartitionShardLog:
    """Implements `coordinator.ports.ShardLog` on the partition table."""

    def __init__(
        self,
        table: PartitionTable,
        topic: str,
        index: int,
        *,
        batch_bytes_max: int,
        snapshots: SnapshotRule = DEFAULT_SNAPSHOTS,
    ) -> None:
        self._table = table
        self._topic = topic
        self._index = index
        self._batch_bytes_max = batch_bytes_max
        self.name = f"{topic}-{index}"
        self.partition: Partition | None = table.hosted(topic, index)
        """None until its log is opened."""
        self.growth = LogGrowth(snapshots)
        self._leader_epoch = NO_LEADER_EPOCH if self.partition is None else self.partition.leader_epoch

    @property
    def closed(self) -> bool:
        """Whether the leadership it serves is over (SHLOG-1)."""
        partition = self.partition or self._table.hosted(self._topic, self._index)
        if partition is None:
            return False
        if self.partition is None:
            if partition.log.end_offset:
                return True  # there is something in it that the shard has not seen (SHLOG-2)
            self.partition, self._leader_epoch = partition, partition.leader_epoch
        return partition.offline or partition.leader is None or partition.leader_epoch != self._leader_epoch

    def append(self, entries: Sequence[LogEntry], now_ms: int, of_producer: OfProducer | None = None) -> int:
        self._table.check_acting()
        self._table.space.check()
        batch = bytearray(_batch(entries, now_ms, of_producer))
        if len(batch) > self._batch_bytes_max:
            raise ApiError(
                ErrorCode.MESSAGE_TOO_LARGE, f"{len(batch)} bytes of records; {self._batch_bytes_max} are allowed"
            )
        if self.partition is None:
            self._table.get(self._topic, self._index)  # makes the log, and `closed` takes it
        if self.closed or self.partition is None:
            raise ApiError(ErrorCode.NOT_LEADER_OR_FOLLOWER, f"{self.name} has been led by another process since")
        partition = self.partition
        # No answer leaves before its records are committed, so they are not even written when they cannot be.
        partition.check_enough_in_sync()
        view = memoryview(batch)
        appended = partition.append(view, read_batch_header(view), now_ms=now_ms)
        self.growth.added(len(batch))
        return appended.last_offset + 1

    def when_committed(self, next_offset: int, callback: Callable[[], None]) -> bool:
        invariant(self.partition is not None, "what was appended has a log")
        return self.partition is not None and self.partition.when_committed(next_offset, callback)

    def read_failed(self, failure: StorageFailure) -> None:
        """A part of the log cannot be read: a copy of several is given up, like one that a reader found damaged."""
        if self.partition is not None and not self.closed:
            self._table.damage.read_failed(self.partition, failure)


def _batch(entries: Sequence[LogEntry], now_ms: int, of: OfProducer | None) -> bytes:
    records = [(now_ms, key, value, _NO_HEADERS) for key, value in entries]
    if of is None:
        return build_batch(records)
    attributes = TRANSACTIONAL_BIT | CONTROL_BIT if of.is_control else TRANSACTIONAL_BIT
    return build_batch(records, producer_id=of.producer_id, producer_epoch=of.producer_epoch, attributes=attributes)
