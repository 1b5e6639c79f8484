"""A follower's fetch from arrival to answer: it proves what the follower holds, and gets all the leader has.

Unlike a reader's fetch it is served up to the end of the log, is woken by appends, and is answered at once when the
leader knows of a higher high watermark than the follower. What the follower holds is taken note of once, on arrival,
and only where its history agrees with the leader's: a diverging fetch proves nothing.

Proved by: tests/unit/broker/test_replica_fetch.py
"""

from martlet.base.errors import ApiError, ErrorCode
from martlet.base.ids import NO_LEADER_EPOCH, Member
from martlet.broker.fetch_wait import Look, WaitingFetch, diverging_epoch
from martlet.broker.partition import Partition
from martlet.broker.request import Link, Reply
from martlet.broker.services import BrokerServices
from martlet.wire.fetch import (
    UNKNOWN_HIGH_WATERMARK,
    EpochEndOffset,
    FetchPartition,
    FetchPartitionResult,
    FetchRequest,
    FetchTopic,
)


class WaitingReplicaFetch(WaitingFetch):
    """The fetch of one follower, for all partitions that it follows from here."""

    __slots__ = ("_follower", "_has_arrived", "_telling")

    def __init__(
        self, broker: BrokerServices, request: FetchRequest, link: Link, reply: Reply, follower: Member
    ) -> None:
        super().__init__(broker, request, link, reply)
        self._follower = follower
        self._has_arrived = False
        self._telling: list[tuple[Partition, int]] = []
        """The high watermarks that the answer holds."""

    def _look(self) -> Look:
        self._telling.clear()
        look = super()._look()
        self._has_arrived = True
        return look

    def _look_at(
        self, look: Look, topic: FetchTopic, asked: FetchPartition, results: list[FetchPartitionResult], room: int
    ) -> FetchPartitionResult:
        partition = self._partition(topic, asked)
        partition.check_online()
        leader = partition.leader
        if leader is None:
            raise ApiError(ErrorCode.NOT_LEADER_OR_FOLLOWER)
        leader.check_fetch(self._follower, asked.current_leader_epoch)
        log = partition.log
        diverging = _diverging(partition, asked)
        if diverging is not None:
            look.complete = True
            return FetchPartitionResult(asked.partition, diverging_epoch=diverging)
        if asked.fetch_offset < log.log_start_offset:
            look.complete = True
            return FetchPartitionResult(
                asked.partition, ErrorCode.OFFSET_OUT_OF_RANGE, log_start_offset=log.log_start_offset
            )
        if not self._has_arrived:
            partition.replica_fetched(
                self._follower,
                leader_epoch=asked.current_leader_epoch,
                fetch_offset=asked.fetch_offset,
                now_ms=self._broker.clock.monotonic_ms(),
            )
        piece = log.locate(
            asked.fetch_offset,
            max_bytes=min(room, asked.partition_max_bytes),
            end_offset=log.end_offset,
            at_least_one=not look.size,
        )
        self._take(look, partition, piece, results)
        watermark = partition.high_watermark
        if watermark > self._known_high_watermark(partition, asked):
            look.complete = True
        self._telling.append((partition, watermark))
        return FetchPartitionResult(asked.partition, 0, watermark, watermark, log.log_start_offset)

    def _known_high_watermark(self, partition: Partition, asked: FetchPartition) -> int:
        if asked.high_watermark != UNKNOWN_HIGH_WATERMARK:
            return asked.high_watermark
        return partition.told_high_watermarks.get(self._follower.broker, -1)

    def _partition(self, topic: FetchTopic, asked: FetchPartition) -> Partition:
        if topic.name is not None:
            return self._broker.partitions.get(topic.name, asked.partition)
        return self._broker.partitions.get_by_id(topic.topic_id or b"", asked.partition)

    def _wait_on(self, partition: Partition) -> None:
        partition.add_replica_waiter(self._changed)

    def _leave(self, partition: Partition) -> None:
        partition.remove_replica_waiter(self._changed)

    def _count(self, partition: Partition, size: int) -> None:
        partition.counters.replica_bytes_out += size

    def _answered(self) -> None:
        for partition, watermark in self._telling:
            if partition.is_leading:
                partition.told_high_watermarks[self._follower.broker] = watermark


def _diverging(partition: Partition, asked: FetchPartition) -> EpochEndOffset | None:
    """Where the follower's history leaves ours, if it does."""
    end_offset = partition.log.end_offset
    if asked.last_fetched_epoch >= 0:
        return diverging_epoch(partition, asked)
    # A follower that knows no epoch has no history to compare, only an end that may lie beyond ours.
    return EpochEndOffset(NO_LEADER_EPOCH, end_offset) if asked.fetch_offset > end_offset else None
