"""One replica of a partition on this broker: its log and its role.

A replica leads, follows, or has no role while no broker leads; the partition table says which. While it leads,
publishes append here and `leader` decides what is committed; while it follows, the fetcher appends what the leader has
through `followed_log`, and `follower` decides how far readers may see. How far the log counts, and what waits for that,
is in `watermarks`.

Invariants: PAR-2 under the flush mode `commit` no reader and no acknowledgement gets ahead of the device; PAR-4 what
waits for a commit when a role ends finds out that the leader has changed, never that it succeeded.
Proved by: tests/unit/broker/parked/test_publish_acks.py, tests/unit/broker/partitions/test_partition_table.py
"""

import asyncio
import logging
from collections.abc import Callable
from typing import Protocol

from martlet.base.disk import Disk
from martlet.base.errors import ApiError, DiskFull, ErrorCode, LogDamaged, StorageFailure
from martlet.base.ids import NO_LEADER_EPOCH, BrokerId, Member, TopicId, TopicPartition
from martlet.broker.ground.disk_space import DiskSpace
from martlet.broker.partitions.damage_reports import DamageReports
from martlet.broker.partitions.delivery_features import DeliveryFeatures, has_delays
from martlet.broker.partitions.flush_policy import FlushPolicy, FlushState
from martlet.broker.partitions.follower_log import FollowedLog
from martlet.broker.partitions.partition_role import partition_state
from martlet.broker.partitions.refused_batches import RefusedBatches
from martlet.broker.partitions.transaction_guards import TransactionGuards
from martlet.broker.partitions.watermarks import Callback, Watermarks
from martlet.cluster.records import PartitionRecord
from martlet.cluster.topic_names import is_internal_topic
from martlet.log.log_slice import Appended
from martlet.log.partition_log import PartitionLog
from martlet.observe.metrics import TopicCounters
from martlet.queues.publish_look import Delayed, TopicDelivery
from martlet.replication.follower import FollowerReplica
from martlet.replication.leader import LeaderReplica, ReplicationOptions
from martlet.wire.batch import BatchHeader

logger = logging.getLogger(__name__)


class FlushSchedule(Protocol):
    """The flusher."""

    def appended(self, partition: "Partition") -> None:
        """Bytes wait for a flush."""
        ...


class PartitionOwner(Protocol):
    """The partition table, as its partitions use it."""

    space: DiskSpace

    @property
    def flusher(self) -> FlushSchedule: ...

    @property
    def damage(self) -> DamageReports: ...

    on_may_join: Callable[["Partition"], None]
    """Called for a follower that has caught up and is not in sync yet."""

    def storage_failed(self, partition: "Partition", error: StorageFailure) -> None: ...


class Partition:
    """Owned by the partition table, which alone gives it its roles; lives on the event loop."""

    __slots__ = (
        "closed_with",
        "counters",
        "features",
        "flush",
        "followed_log",
        "follower",
        "guards",
        "has_enough_in_sync",
        "history_fault",
        "internal",
        "leader",
        "leader_broker",
        "leader_epoch",
        "log",
        "me",
        "name",
        "owner",
        "refused",
        "replication",
        "topic_id",
        "watermarks",
    )

    def __init__(
        self,
        name: TopicPartition,
        topic_id: TopicId,
        log: PartitionLog,
        me: Member,
        policy: FlushPolicy,
        counters: TopicCounters,
        owner: PartitionOwner,
    ) -> None:
        self.name = name
        self.internal = is_internal_topic(name.topic)
        """Whether only Martlet itself writes to it."""
        self.topic_id = topic_id
        self.log = log
        self.owner = owner
        self.me = me
        self.flush = FlushState(policy)
        self.watermarks = Watermarks(log, self.flush)
        self.followed_log = FollowedLog(self)
        self.replication = ReplicationOptions()
        self.counters = counters
        self.leader_epoch: int = NO_LEADER_EPOCH
        self.leader: LeaderReplica | None = None
        """The leader's rules, while this replica leads."""
        self.follower: FollowerReplica | None = None
        """The follower's rules, while this replica follows."""
        self.leader_broker: BrokerId | None = None
        """Whom it follows."""
        self.history_fault: ApiError | None = None
        """Why, in the present role, nothing may be appended and no follower's history compared with this log's."""
        self.has_enough_in_sync = False
        """Whether it leads and as many replicas are in sync as the topic demands."""
        self.refused = RefusedBatches()
        """What producers will send again, and nothing behind it may overtake."""
        self.guards = TransactionGuards()
        """Who may open a transaction here, while this replica leads."""
        self.features: DeliveryFeatures | None = None
        """Where the topic looks at the headers of its messages."""
        self.closed_with: ApiError | None = None
        """Why the replica can no longer be used: its storage failed, its topic was deleted, it was moved away."""

    # --- the role, as the partition table gives it

    @property
    def high_watermark(self) -> int:
        """Everything below is committed."""
        return self.log.high_watermark

    def lead(self, record: PartitionRecord, now_ms: int) -> None:
        """Lead in the record's epoch; `now_ms` here and wherever followers are judged is the monotonic clock's."""
        self._end_role()
        if self.closed_with is not None:
            return
        log, own_offset = self.log, self.watermarks.own_offset
        log.assign_epoch(record.leader_epoch)
        self.leader_epoch = record.leader_epoch
        leader = self.leader = LeaderReplica(
            self.me,
            partition_state(record),
            self.replication,
            log,
            own_offset=own_offset,
            now_ms=now_ms,
        )
        self._leader_changed(leader)
        self._check_history()

    def _check_history(self) -> None:
        """An epoch that never was, from a damaged batch, would make followers truncate what they hold rightly.

        A follower that names one is understood by no leader.
        """
        latest = self.log.epochs.latest_epoch
        if latest > self.leader_epoch:
            fault = f"its log names leader epoch {latest}, and the newest is {self.leader_epoch}"
            self.history_fault = ApiError(ErrorCode.KAFKA_STORAGE_ERROR, f"{self.name} takes no messages: {fault}")
            self.owner.damage.read_failed(self, LogDamaged(fault))

    def check_history(self) -> None:
        """Raise when the leader epochs in the log are not to be believed."""
        if self.history_fault is not None:
            raise self.history_fault

    def follow(self, record: PartitionRecord) -> None:
        """Copy from the record's leader in its epoch."""
        self._end_role()
        if self.closed_with is None:
            self.leader_epoch = record.leader_epoch
            self.leader_broker = record.leader
            self.follower = FollowerReplica(record.leader_epoch)
            self._check_history()

    def become_idle(self, record: PartitionRecord) -> None:
        """No broker leads: serve no request and keep everything."""
        self._end_role()
        self.leader_epoch = record.leader_epoch

    def state_stored(self, record: PartitionRecord) -> None:
        """The store says this of the epoch in which this replica leads; older news and other epochs are ignored."""
        leader = self.leader
        if leader is not None and record.leader_epoch == self.leader_epoch:
            leader.state_stored(partition_state(record))
            self._leader_changed(leader)

    def take_replication(self, options: ReplicationOptions) -> None:
        """The topic's demands are these now."""
        self.replication = options
        leader = self.leader
        if leader is not None and leader.options != options:
            leader.options = options
            self._leader_changed(leader)

    def take_policy(self, policy: FlushPolicy) -> None:
        """Flush like this from now on."""
        if policy != self.flush.policy:
            self.flush.policy = policy
            self._own_offset_moved()
            if self.log.durability.flushed_offset < self.log.end_offset:
                self.owner.flusher.appended(self)  # it may have to be flushed sooner than was planned

    def take_features(self, topic: TopicDelivery | None, disk: Disk) -> None:
        """The topic wants this of its messages' headers; None for one that does not look at them."""
        if topic is None and has_delays(disk, self.log):
            topic = TopicDelivery()
        if topic is None:
            self.features = None
        elif self.features is None:
            self.features = DeliveryFeatures(self.log, disk, topic)
        elif self.features.topic != topic:
            self.features.take(topic)

    def close(self, reason: ApiError) -> None:
        """Serve no request any more; everything that waits is woken to find out why."""
        self.closed_with = reason
        self.watermarks.is_closed = True
        if self.features is not None:
            self.features.close(is_kept=False)
        self._end_role()

    def _end_role(self) -> None:
        self.leader = self.follower = self.leader_broker = None
        self.history_fault = None
        self.guards.clear()
        self.has_enough_in_sync = False
        self.watermarks.end_role()

    def _leader_changed(self, leader: LeaderReplica) -> None:
        """The leader's rules know something new about the in-sync set."""
        self.has_enough_in_sync = leader.has_enough_in_sync
        self.watermarks.commit(leader.committed_offset())
        if not self.has_enough_in_sync:
            self.watermarks.commits.give_up()

    # --- publishing

    def check_leader_epoch(self, epoch: int) -> None:
        """Compare a client's idea of the leader epoch (-1: none) with ours."""
        if epoch < 0 or epoch == self.leader_epoch:
            return
        if epoch < self.leader_epoch:
            raise ApiError(ErrorCode.FENCED_LEADER_EPOCH)
        raise ApiError(ErrorCode.UNKNOWN_LEADER_EPOCH)

    def check_enough_in_sync(self) -> None:
        """Refuse, before anything is written, what must not be acknowledged by fewer than the minimum."""
        if not self.has_enough_in_sync and self.leader is not None:
            self.leader.check_enough_in_sync()

    def append(
        self, records: memoryview, header: BatchHeader, delayed: list[Delayed] | None = None, *, now_ms: int
    ) -> Appended:
        """Append one batch that `check_client_batch` has passed; raises ApiError when it is refused.

        `delayed` is what the partition's features found in a client's batch.
        """
        self.check_online()
        if self.leader is None:
            raise ApiError(ErrorCode.NOT_LEADER_OR_FOLLOWER)
        self.check_history()
        if self.refused:
            self.refused.check(header, self.log.producers, now_ms)
        self.owner.space.claim(header.size)
        try:
            appended = self.log.append(records, header, leader_epoch=self.leader_epoch, now_ms=now_ms)
        except StorageFailure as failure:
            raise self.write_failed(failure) from failure
        if not appended.duplicate:
            counters = self.counters
            counters.messages_in += header.record_count
            counters.bytes_in += header.size
            counters.batches_in += 1
            if self.features is not None:
                self._looked(records, header, delayed, appended)
            self.written(header.size, header.record_count)
        return appended

    def _looked(
        self, records: memoryview, header: BatchHeader, delayed: list[Delayed] | None, appended: Appended
    ) -> None:
        if self.features is not None and delayed is not None:
            self.features.appended(delayed, appended.base_offset, appended.last_offset)
        elif self.features is not None:
            self.features.appended_own(records, header, appended.base_offset, appended.last_offset)

    def written(self, size_bytes: int, message_count: int) -> None:
        """The log has grown by this."""
        flush, watermarks = self.flush, self.watermarks
        flush.appended(size_bytes, message_count)
        if not flush.policy.before_acknowledge:
            self._own_offset_moved()
        watermarks.followers.wake()
        self.owner.flusher.appended(self)

    def write_failed(self, failure: StorageFailure) -> ApiError:
        """Do what a failed write calls for; the error to answer with."""
        if isinstance(failure, DiskFull):
            self.owner.space.write_failed(failure)
            return ApiError(ErrorCode.KAFKA_STORAGE_ERROR, "the broker's disk is full")
        if isinstance(failure, LogDamaged):
            self.owner.damage.read_failed(self, failure)
            return ApiError(
                ErrorCode.KAFKA_STORAGE_ERROR, f"{self.name} takes no messages, its log is damaged: {failure}"
            )
        self.owner.storage_failed(self, failure)
        return ApiError(ErrorCode.KAFKA_STORAGE_ERROR, str(failure))

    @property
    def offline(self) -> bool:
        return self.closed_with is not None

    def check_online(self) -> None:
        """Raise when the partition can no longer be used."""
        if self.closed_with is not None:
            raise self.closed_with

    # --- what is committed

    def check_leading(self) -> LeaderReplica:
        """The leader's rules; raises ApiError unless this replica leads."""
        if self.leader is None:
            raise self.closed_with or ApiError(ErrorCode.NOT_LEADER_OR_FOLLOWER)
        return self.leader

    def when_committed(self, next_offset: int, callback: Callback, *, gives_up: bool = False) -> bool:
        """Call back once the high watermark reaches `next_offset`, or the role ends; False when it already has.

        With `gives_up` also when too few replicas are in sync for it to move. Raises ApiError unless it leads.
        """
        self.check_leading()
        if next_offset <= self.high_watermark:
            return False
        self.watermarks.commits.add(next_offset, callback, gives_up=gives_up)
        return True

    async def committed(self, next_offset: int, *, gives_up: bool = False) -> None:
        """Return when everything before `next_offset` is committed; raises ApiError when this leadership ends before.

        With `gives_up` also when too few replicas are in sync for it to move.
        """
        leader_epoch = self.leader_epoch
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        resolve = lambda: None if future.done() else future.set_result(None)  # noqa: E731 - the caller may be cancelled
        if self.when_committed(next_offset, resolve, gives_up=gives_up):
            await future
        self.check_online()
        if self.leader is None or self.leader_epoch != leader_epoch:
            detail = f"{self.name} got another leader before its message was committed"
            raise ApiError(ErrorCode.NOT_LEADER_OR_FOLLOWER, detail)
        if next_offset > self.high_watermark:
            raise ApiError(ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND)

    def flushed(self) -> None:
        """A flush has been completed in the log."""
        if self.flush.policy.before_acknowledge:
            self._own_offset_moved()

    def _own_offset_moved(self) -> None:
        watermarks = self.watermarks
        offset = watermarks.own_offset
        if self.leader is not None:
            watermarks.commit(self.leader.own_offset_moved(offset))
        watermarks.own.reached(offset)

    # --- serving followers

    def replica_fetched(
        self, member: Member, *, leader_epoch: int, fetch_offset: int, now_ms: int, log_start_offset: int = -1
    ) -> None:
        """A follower whose history agrees with ours asks from `fetch_offset` on: it holds everything below.

        Raises ApiError when it is none of our followers or has another idea of the epoch.
        """
        leader = self.check_leading()
        progress = leader.fetched(member, leader_epoch=leader_epoch, fetch_offset=fetch_offset, now_ms=now_ms)
        if progress.has_moved:
            self.watermarks.commit(leader.committed_offset())
        if progress.log_start_offset != log_start_offset:
            progress.log_start_offset = log_start_offset
            self.watermarks.wake()
        if leader.wants_to_propose(progress):
            self.owner.on_may_join(self)
