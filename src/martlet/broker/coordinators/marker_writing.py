"""Writes the markers of ended transactions to the partitions that this broker leads.

An answer says that the marker is committed and, on `__consumer_offsets`, that the group's offsets count: the producer's
next transaction may stage its own. There the marker goes through the shard, which alone writes to such a partition.

Proved by: tests/unit/broker/coordinators/test_transaction_coordinator.py, tests/broker/test_transaction_apis.py
"""

import asyncio
from typing import Final

from martlet.base.clock import Clock
from martlet.base.errors import ApiError, ErrorCode
from martlet.base.ids import TopicPartition
from martlet.broker.coordinators.groups import GroupCoordinator
from martlet.broker.partitions.partition import Partition
from martlet.broker.partitions.partition_table import PartitionTable
from martlet.broker.partitions.transaction_guards import MarkerOf, check_marker
from martlet.cluster.topic_names import CONSUMER_OFFSETS_TOPIC
from martlet.coordinator.result import OfProducer
from martlet.wire.batch import TransactionMarker, build_marker_batch, read_batch_header

_PATIENCE_SECONDS: Final = 5.0
"""How long a marker may take to be committed before its sender is asked to come again."""


class MarkerWriter:
    """Reads nothing but the partition table; holds nothing."""

    def __init__(self, table: PartitionTable, groups: GroupCoordinator, clock: Clock) -> None:
        self._table = table
        self._groups = groups
        self._clock = clock

    async def write(self, marker: MarkerOf, partitions: frozenset[TopicPartition]) -> dict[TopicPartition, ErrorCode]:
        """Write one marker to each of them, all at once; what became of each."""
        names = tuple(partitions)
        outcomes = await asyncio.gather(*(self._write(marker, name) for name in names))
        return dict(zip(names, outcomes, strict=True))

    async def _write(self, marker: MarkerOf, name: TopicPartition) -> ErrorCode:
        try:
            async with asyncio.timeout(_PATIENCE_SECONDS):
                if name.topic == CONSUMER_OFFSETS_TOPIC:
                    await self._write_to_groups(marker, name.partition)
                else:
                    await self._write_to_log(marker, name)
        except ApiError as error:
            return error.code
        except TimeoutError:
            return ErrorCode.REQUEST_TIMED_OUT
        return ErrorCode.NONE

    async def _write_to_log(self, marker: MarkerOf, name: TopicPartition) -> None:
        self._table.check_acting()
        self._table.space.check()
        partition = self._table.get(*name)
        partition.check_enough_in_sync()
        next_offset = append_marker(partition, marker, self._clock.now_ms())
        await partition.committed(next_offset, gives_up=True)

    async def _write_to_groups(self, marker: MarkerOf, index: int) -> None:
        of = OfProducer(marker.producer_id, marker.producer_epoch)
        partition = self._table.hosted(CONSUMER_OFFSETS_TOPIC, index)
        if partition is not None:
            check_marker(partition.log.producers, marker)
        await self._groups.call_shard(
            index,
            lambda machine, now_ms: machine.transaction_ended(of, marker.is_commit, marker.coordinator_epoch, now_ms),
        )
        if partition is not None:
            partition.guards.marker_written(marker.producer_id, marker.producer_epoch, marker.version)


def append_marker(partition: Partition, marker: MarkerOf, now_ms: int) -> int:
    """End a producer's transaction on a partition; the offset after the marker. Raises ApiError for one out of date."""
    check_marker(partition.log.producers, marker)
    batch = bytearray(
        build_marker_batch(
            TransactionMarker(marker.is_commit, marker.coordinator_epoch),
            producer_id=marker.producer_id,
            producer_epoch=marker.producer_epoch,
            timestamp_ms=now_ms,
        )
    )
    view = memoryview(batch)
    appended = partition.append(view, read_batch_header(view), now_ms=now_ms)
    partition.guards.marker_written(marker.producer_id, marker.producer_epoch, marker.version)
    return appended.last_offset + 1
