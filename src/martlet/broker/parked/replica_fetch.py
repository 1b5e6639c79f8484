"""What a follower's fetch proves and gets: it shows what the follower holds, and gets all the leader has.

Unlike a consumer's it is served up to the end of the log, is woken by appends, and is answered at once when the leader
knows of a higher high watermark than the follower. What the follower holds is noted once, on arrival, and only where
its history agrees with the leader's: a diverging fetch proves nothing. A partition without anything new is left out of
the answer, because a follower may fetch thousands and hear of few.

Proved by: tests/unit/broker/parked/test_replica_fetch.py
"""

from martlet.base.errors import ErrorCode
from martlet.base.ids import Member
from martlet.broker.parked.fetch import FetchAttempt, diverging_epoch
from martlet.broker.partitions.partition import Partition
from martlet.broker.partitions.watermarks import ChangeWaiters
from martlet.broker.services import BrokerServices
from martlet.replication.leader import FollowerProgress
from martlet.wire.fetch import UNKNOWN_HIGH_WATERMARK, FetchPartition, FetchPartitionResult


class ReplicaReads:
    """The `Reads` of one follower's fetch, for all partitions that it follows from here."""

    __slots__ = ("_attempts", "_broker", "_follower", "_now_ms", "_sending")

    def __init__(self, broker: BrokerServices, follower: Member) -> None:
        self._broker = broker
        self._follower = follower
        self._attempts = 0
        self._now_ms = broker.clock.monotonic_ms()
        self._sending: list[tuple[FollowerProgress, int]] = []
        """The high watermarks that the answer holds."""

    def begin(self) -> None:
        self._attempts += 1
        self._sending.clear()

    def examine(self, attempt: FetchAttempt, topic: str, asked: FetchPartition) -> FetchPartitionResult | None:
        partition = self._broker.partitions.get(topic, asked.partition)
        attempt.partitions.append(partition)
        leader = partition.check_leading()
        leader.check_fetch(self._follower, asked.current_leader_epoch)
        partition.check_history()
        log = partition.log
        start_offset, end_offset, fetch_offset = log.log_start_offset, log.end_offset, asked.fetch_offset
        if asked.last_fetched_epoch != log.epochs.latest_epoch or fetch_offset > end_offset:
            diverging = diverging_epoch(partition, asked)
            if diverging is not None:
                attempt.complete = True
                return FetchPartitionResult(asked.partition, diverging_epoch=diverging)
        if not start_offset <= fetch_offset <= end_offset:
            # Beyond the end with no history to compare: an empty replica, which can begin again where our log does.
            attempt.complete = attempt.has_errors = True
            return FetchPartitionResult(asked.partition, ErrorCode.OFFSET_OUT_OF_RANGE, log_start_offset=start_offset)
        if self._attempts == 1:
            partition.replica_fetched(
                self._follower,
                leader_epoch=asked.current_leader_epoch,
                fetch_offset=fetch_offset,
                now_ms=self._now_ms,
                log_start_offset=asked.log_start_offset,
            )
        if fetch_offset < end_offset:
            attempt.include(partition, asked, end_offset)
        watermark = partition.high_watermark
        progress = leader.follower(self._follower.broker)
        known = asked.high_watermark
        if known == UNKNOWN_HIGH_WATERMARK and progress is not None:
            known = progress.sent_high_watermark
        if watermark <= known:
            if fetch_offset == end_offset and asked.log_start_offset >= start_offset:
                return None  # nothing new
        else:
            attempt.complete = True
        if progress is not None:
            self._sending.append((progress, watermark))
        return FetchPartitionResult(asked.partition, 0, watermark, log.last_stable_offset, start_offset)

    def changes(self, partition: Partition) -> ChangeWaiters:
        return partition.watermarks.followers

    def filled(self, partition: Partition, result: FetchPartitionResult, content: bytes) -> FetchPartitionResult:
        partition.counters.replica_bytes_out += len(content)
        return result._replace(records=content)

    def answered(self) -> None:
        for progress, watermark in self._sending:
            progress.sent_high_watermark = watermark
