"""One replica of a partition on this broker: its log, its role, its high watermark, and who waits for it.

A replica leads, follows, or stands by while nobody leads; the partition table says which. While it leads, publishes
append here and `leader` decides what is committed; while it follows, the fetcher that copies from the leader appends
and `follower` decides how far the copy may be shown. Readers see what is below the high watermark, followers all.

How far this copy counts itself, its *own offset*, is the flushed offset under the flush mode `commit` and the end
offset otherwise. With one replica that is the high watermark.

Invariants: (P1) the high watermark never passes the end offset and goes back only when committed data is lost, which
is logged loudly; (P2) under `commit` no reader and no acknowledgement gets ahead of the device; (P3) a waiter is told
once; (P4) who waits for a commit when a role ends is told that the leader has changed, never that it succeeded.

Proved by: tests/unit/broker/parked/test_publish_acks.py, tests/unit/broker/partitions/test_partition_table.py
"""

import logging
from collections import deque
from collections.abc import Callable
from typing import Final, Protocol, TypeAlias

from martlet.base.errors import ApiError, DiskFull, ErrorCode, LogDamaged, StorageFailure
from martlet.base.ids import NO_LEADER_EPOCH, BrokerId, Member, TopicId, TopicPartition
from martlet.base.invariant import invariant
from martlet.broker.ground.disk_space import DiskSpace
from martlet.broker.partitions.flush_policy import FlushMode, FlushPolicy
from martlet.broker.partitions.follower_log import ReplicaLog
from martlet.broker.partitions.partition_role import partition_state
from martlet.broker.partitions.refused_batches import RefusedBatches
from martlet.cluster.records import PartitionRecord
from martlet.cluster.topic_names import is_internal_topic
from martlet.log.log_slice import Appended, LogSlice
from martlet.log.partition_log import PartitionLog
from martlet.log.recompression import needs_recompression
from martlet.log.replicated_batches import ReplicatedBatches
from martlet.observe.metrics import TopicCounters
from martlet.replication.follower import FollowerReplica, high_watermark_after
from martlet.replication.leader import LeaderReplica, ReplicationOptions
from martlet.wire.batch import HEADER_BYTES, BatchHeader, read_batch_header
from martlet.wire.compression import Compression

logger = logging.getLogger(__name__)

LONG_CHECK_BYTES: Final = 16_384
"""A compressed batch from this size on is opened in a thread where it has to be opened at all, and one that is to be
compressed is compressed there."""


WRITE_BACK_BYTES: Final = 32 << 20
"""Unflushed bytes after which a flush starts early, so that the kernel need not stall our writes to catch up."""

READ_UNCOMMITTED: Final = 0
READ_COMMITTED: Final = 1
"""Isolation levels as requests name them; one that is not known is served like READ_COMMITTED."""

Callback: TypeAlias = Callable[[], None]


class PartitionListener(Protocol):
    """What a partition tells its broker, and asks of it."""

    space: DiskSpace

    def appended(self, partition: "Partition") -> None:
        """Bytes wait for a flush."""
        ...

    def may_join(self, partition: "Partition") -> None:
        """A follower has caught up that is not in sync yet."""
        ...

    def storage_failed(self, partition: "Partition", error: StorageFailure) -> None: ...

    def read_failed(self, partition: "Partition", error: StorageFailure) -> ErrorCode:
        """A part of the log is damaged or cannot be read; what to tell a reader."""
        ...


class Partition:
    """Owned by the partition table, which alone gives it its roles; lives on the event loop."""

    __slots__ = (
        "_commit_waiters",
        "_fetch_waiters",
        "_listener",
        "_own_waiters",
        "_replica_waiters",
        "closed_with",
        "counters",
        "flush_in_progress",
        "follower",
        "has_enough_in_sync",
        "history_fault",
        "internal",
        "leader",
        "leader_broker",
        "leader_epoch",
        "log",
        "me",
        "name",
        "policy",
        "refused",
        "replica_log",
        "replication",
        "topic_id",
        "unflushed_bytes",
        "unflushed_messages",
    )

    def __init__(
        self,
        name: TopicPartition,
        topic_id: TopicId,
        log: PartitionLog,
        me: Member,
        policy: FlushPolicy,
        counters: TopicCounters,
        listener: PartitionListener,
    ) -> None:
        self.name = name
        self.internal = is_internal_topic(name.topic)
        """Whether only Martlet itself writes to it."""
        self.topic_id = topic_id
        self.log = log
        self.replica_log = ReplicaLog(log)
        self.me = me
        self.policy = policy
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
        """Why, in the present role, nothing may be appended and nobody's history compared with this log's."""
        self.has_enough_in_sync = False
        """Whether it leads and as many replicas are in sync as the topic demands."""
        self.refused = RefusedBatches()
        """What producers will send again, and nothing behind it may overtake."""
        self.closed_with: ApiError | None = None
        """Why the replica can no longer be used: its storage failed, its topic was deleted, it was moved away."""
        self.flush_in_progress = False
        self.unflushed_bytes = 0
        self.unflushed_messages = 0
        self._listener = listener
        self._commit_waiters: deque[tuple[int, Callback, bool]] = deque()
        self._own_waiters: deque[tuple[int, Callback]] = deque()
        self._fetch_waiters: dict[Callback, None] = {}
        self._replica_waiters: dict[Callback, None] = {}
        self._markers_committed()

    # --- the role, as the partition table gives it

    @property
    def is_leading(self) -> bool:
        return self.leader is not None

    @property
    def high_watermark(self) -> int:
        """Everything below is committed. The log keeps it; only this class moves it."""
        return self.log.high_watermark

    @property
    def last_stable_offset(self) -> int:
        """Everything below is committed and belongs to no transaction that is open or not yet known to be decided."""
        high_watermark, unstable = self.log.high_watermark, self.log.first_unstable_offset
        return high_watermark if unstable is None else min(unstable, high_watermark)

    def readable_end(self, isolation: int) -> int:
        """Where a reader of that isolation level has to stop."""
        return self.high_watermark if isolation == READ_UNCOMMITTED else self.last_stable_offset

    @property
    def lag_messages(self) -> int:
        """How many committed messages this copy lacks, while it follows."""
        return 0 if self.follower is None else self.follower.lag(self.replica_log)

    def lead(self, record: PartitionRecord, now_ms: int) -> None:
        """Lead in the record's epoch; `now_ms` here and wherever followers are judged is the monotonic clock's."""
        self._end_role()
        if self.closed_with is not None:
            return
        log, own_offset = self.log, self.own_offset
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
        """An epoch that never was, from a damaged batch, would make followers cut off what they hold rightly.

        A follower that names one is understood by no leader.
        """
        latest = self.log.epochs.latest_epoch
        if latest > self.leader_epoch:
            fault = f"its log names leader epoch {latest}, and the newest is {self.leader_epoch}"
            self.history_fault = ApiError(ErrorCode.KAFKA_STORAGE_ERROR, f"{self.name} takes no messages: {fault}")
            self._listener.read_failed(self, LogDamaged(fault))

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

    def stand_by(self, record: PartitionRecord) -> None:
        """Nobody leads: serve nobody and keep everything."""
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
        if policy != self.policy:
            self.policy = policy
            self._own_offset_moved(self.own_offset)
            if self.log.flushed_offset < self.log.end_offset:
                self._listener.appended(self)  # it may have to be flushed sooner than was planned

    def close(self, reason: ApiError) -> None:
        """Serve nobody any more; everybody who waits is woken to find out why."""
        self.closed_with = reason
        self._end_role()

    def _end_role(self) -> None:
        self.leader = self.follower = self.leader_broker = None
        self.history_fault = None
        self.has_enough_in_sync = False
        commits, self._commit_waiters = self._commit_waiters, deque()
        flushes, self._own_waiters = self._own_waiters, deque()
        for _, callback, _ in commits:
            callback()
        for _, callback in flushes:
            callback()
        self.wake_fetches()

    def _leader_changed(self, leader: LeaderReplica) -> None:
        """The leader's rules know something new about the in-sync set."""
        self.has_enough_in_sync = leader.has_enough_in_sync
        self.advance_high_watermark(leader.committed_offset())
        if not self.has_enough_in_sync and self._commit_waiters:
            waiters = self._commit_waiters
            self._commit_waiters = deque(waiter for waiter in waiters if not waiter[2])
            for _, callback, gives_up in waiters:
                if gives_up:
                    callback()

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

    def check_takes_long(self, records: memoryview) -> bool:
        """Whether checking this batch means (de)compressing much, which must not happen on the event loop."""
        options = self.log.options
        if len(records) < HEADER_BYTES:
            return False
        is_large = len(records) >= LONG_CHECK_BYTES
        if options.compression is None and not (is_large and (options.compact or options.bounds_past_timestamps)):
            return False
        header = read_batch_header(records)
        is_compressed = header.compression != Compression.NONE
        if needs_recompression(header, options):
            # How much a compressed batch holds is not known before it is opened.
            return is_large or is_compressed
        return is_large and is_compressed and (options.compact or options.bounds_past_timestamps)

    def append(self, records: memoryview, header: BatchHeader, *, now_ms: int) -> Appended:
        """Append one batch that `check_client_batch` has passed; raises ApiError when it is refused."""
        self.check_online()
        if self.leader is None:
            raise ApiError(ErrorCode.NOT_LEADER_OR_FOLLOWER)
        self.check_history()
        if self.refused:
            self.refused.check(header, self.log.producers, now_ms)
        self._listener.space.claim(header.size)
        try:
            appended = self.log.append(records, header, leader_epoch=self.leader_epoch, now_ms=now_ms)
        except StorageFailure as failure:
            raise self._write_failed(failure) from failure
        if not appended.duplicate:
            counters = self.counters
            counters.messages_in += header.record_count
            counters.bytes_in += header.size
            counters.batches_in += 1
            self._written(header.size, header.record_count)
        return appended

    def _written(self, size_bytes: int, message_count: int) -> None:
        self.unflushed_bytes += size_bytes
        self.unflushed_messages += message_count
        if not self.policy.before_acknowledge:
            self._own_offset_moved(self.log.end_offset)
        if self._replica_waiters:
            _wake(self._replica_waiters)
        self._listener.appended(self)

    def _write_failed(self, failure: StorageFailure) -> ApiError:
        if isinstance(failure, DiskFull):
            self._listener.space.write_failed(failure)
            return ApiError(ErrorCode.KAFKA_STORAGE_ERROR, "the broker's disk is full")
        if isinstance(failure, LogDamaged):
            self._listener.read_failed(self, failure)
            return ApiError(
                ErrorCode.KAFKA_STORAGE_ERROR, f"{self.name} takes no messages, its log is damaged: {failure}"
            )
        self._listener.storage_failed(self, failure)
        return ApiError(ErrorCode.KAFKA_STORAGE_ERROR, str(failure))

    @property
    def offline(self) -> bool:
        return self.closed_with is not None

    def check_online(self) -> None:
        """Raise when the partition can no longer be used."""
        if self.closed_with is not None:
            raise self.closed_with

    # --- the high watermark, the own offset, and those who wait for them

    @property
    def own_offset(self) -> int:
        """Up to where this copy counts."""
        return self.log.flushed_offset if self.policy.before_acknowledge else self.log.end_offset

    def advance_high_watermark(self, offset: int) -> None:
        """Everything below `offset` is committed: wake whom it concerns."""
        log = self.log
        if offset <= log.high_watermark:
            return
        invariant(offset <= log.end_offset, "PAR-1: the high watermark never passes the end offset")
        log.high_watermark = offset
        self._markers_committed()
        waiters = self._commit_waiters
        while waiters and waiters[0][0] <= offset:
            waiters.popleft()[1]()
        if self._fetch_waiters or self._replica_waiters:
            self.wake_fetches()

    def _markers_committed(self) -> None:
        """Transactions whose markers are below the high watermark hold readers back no longer."""
        log = self.log
        log.producers.transactions.marker_is_committed_below(log.high_watermark)

    def when_committed(self, next_offset: int, callback: Callback, *, gives_up: bool = False) -> bool:
        """Call back once the high watermark reaches `next_offset`, or the role ends; False when it already has.

        With `gives_up` also when too few replicas are in sync for it to move. Raises ApiError unless it leads.
        """
        if self.leader is None:
            raise self.closed_with or ApiError(ErrorCode.NOT_LEADER_OR_FOLLOWER)
        if next_offset <= self.high_watermark:
            return False
        self._commit_waiters.append((next_offset, callback, gives_up))
        return True

    def when_own(self, next_offset: int, callback: Callback) -> bool:
        """Call back once this copy alone counts up to `next_offset`, or the role ends; False when it already does."""
        if next_offset <= self.own_offset or self.closed_with is not None:
            return False
        self._own_waiters.append((next_offset, callback))
        return True

    def when_flushed(self, callback: Callback) -> bool:
        """Call back once what the policy wants flushed by now is, or the role ends; False when it already is."""
        return self.when_own(self.log.end_offset, callback)

    def _own_offset_moved(self, offset: int) -> None:
        leader = self.leader
        if leader is not None:
            self.advance_high_watermark(leader.own_offset_moved(offset))
        waiters = self._own_waiters
        while waiters and waiters[0][0] <= offset:
            waiters.popleft()[1]()

    def add_fetch_waiter(self, callback: Callback) -> None:
        """Be called at every change that a reader may care about."""
        self._fetch_waiters[callback] = None

    def remove_fetch_waiter(self, callback: Callback) -> None:
        self._fetch_waiters.pop(callback, None)

    def add_replica_waiter(self, callback: Callback) -> None:
        """Be called at every change that a follower may care about: appends too."""
        self._replica_waiters[callback] = None

    def remove_replica_waiter(self, callback: Callback) -> None:
        self._replica_waiters.pop(callback, None)

    def wake_fetches(self) -> None:
        """Something a waiting fetch may care about has changed."""
        _wake(self._fetch_waiters)
        _wake(self._replica_waiters)

    # --- serving followers

    def replica_fetched(
        self, member: Member, *, leader_epoch: int, fetch_offset: int, now_ms: int, log_start_offset: int = -1
    ) -> None:
        """A follower whose history agrees with ours asks from `fetch_offset` on: it holds everything below.

        Raises ApiError when it is none of our followers or has another idea of the epoch.
        """
        leader = self.leader
        if leader is None:
            raise self.closed_with or ApiError(ErrorCode.NOT_LEADER_OR_FOLLOWER)
        progress = leader.fetched(member, leader_epoch=leader_epoch, fetch_offset=fetch_offset, now_ms=now_ms)
        if progress.has_moved:
            self.advance_high_watermark(leader.committed_offset())
        if progress.log_start_offset != log_start_offset:
            progress.log_start_offset = log_start_offset
            self.wake_fetches()
        if leader.wants_to_propose(progress):
            self._listener.may_join(self)

    def start_is_known(self, offset: int) -> bool:
        """Whether the logs of all replicas in sync start at `offset` or later; raises ApiError unless it leads."""
        if self.leader is None:
            raise self.closed_with or ApiError(ErrorCode.NOT_LEADER_OR_FOLLOWER)
        return self.leader.all_start_at(offset)

    # --- copying from the leader

    def append_replicated(self, batches: ReplicatedBatches, *, now_ms: int) -> None:
        """Append batches as the leader has them; `now_ms` is the wall clock's.

        Raises ApiError and writes nothing when they do not follow or would take the disk's reserve; when the disk does
        not take them all, those that it took stay.
        """
        self.check_online()
        size = len(batches.records)
        self._listener.space.claim(size)
        before = self.log.end_offset
        try:
            end_offset = self.log.append_as_is(batches, now_ms=now_ms)
        except StorageFailure as failure:
            if self.log.end_offset > before:
                self._written(size, self.log.end_offset - before)
            raise self._write_failed(failure) from failure
        self.counters.replica_bytes_in += size
        self._written(size, end_offset - before)

    def take_high_watermark(self, leader_high_watermark: int) -> None:
        """After an append: what the leader calls committed is, as far as it is here."""
        if self.follower is not None:
            self.advance_high_watermark(high_watermark_after(leader_high_watermark, self.replica_log))

    def cut_to(self, offset: int, now_ms: int) -> None:
        """Drop everything from `offset` on, which the leader does not have; durable when it returns."""
        if offset < self.high_watermark:
            logger.critical(
                "%s is cut to offset %d in epoch %d although all up to %d was committed: messages are lost",
                self.name, offset, self.leader_epoch, self.high_watermark,
            )  # fmt: skip
        self._cut(lambda: self.log.truncate_to(offset, now_ms=now_ms), now_ms)

    def start_at(self, offset: int, now_ms: int) -> None:
        """Forget the whole log and begin at `offset`, because the leader no longer has what would come next."""
        logger.warning(
            "%s ended at offset %d, which its leader does not have any more; it begins anew at %d",
            self.name, self.log.end_offset, offset,
        )  # fmt: skip
        self._cut(lambda: self.log.truncate_fully_and_start_at(offset, now_ms=now_ms), now_ms)

    def advance_log_start(self, offset: int) -> None:
        """The leader's log starts here: hide what is before."""
        log = self.log
        log.advance_log_start(min(offset, log.end_offset))
        # The leader starts nowhere above what is committed.
        self.advance_high_watermark(log.log_start_offset)

    def _cut(self, truncate: Callback, now_ms: int) -> None:
        self.check_online()
        log = self.log
        producers = dict(log.producers.items())
        try:
            truncate()
        except StorageFailure as failure:
            error = self._write_failed(failure)
            if isinstance(failure, LogDamaged):
                self.close(error)  # it may be cut in part: what it knows of producers is older than the rest
            raise error from failure
        self._markers_committed()
        self.refused.note_cut(producers, log.producers, now_ms)
        self.wake_fetches()
        waiters, self._own_waiters = self._own_waiters, deque()
        for _, callback in waiters:
            callback()

    # --- reading

    def locate(self, offset: int, *, max_bytes: int, at_least_one: bool, isolation: int = READ_UNCOMMITTED) -> LogSlice:
        """Where the batches from `offset` on lie, as far as a reader of that isolation level may see."""
        end_offset = self.readable_end(isolation)
        return self.log.locate(offset, max_bytes=max_bytes, end_offset=end_offset, at_least_one=at_least_one)

    # --- flushing (driven by the flusher)

    @property
    def wants_flush_now(self) -> bool:
        """Whether a flush is due because of what was appended, and not because time has passed."""
        mode = self.policy.mode
        if mode is FlushMode.COMMIT:
            return True
        if mode is FlushMode.NEVER:
            # Once per segment all the same, or a crash would mean checking everything ever written.
            return self.unflushed_bytes >= self.log.options.segment_bytes
        if mode is FlushMode.MESSAGES and self.unflushed_messages >= self.policy.messages:
            return True
        return self.unflushed_bytes >= WRITE_BACK_BYTES

    def flushed(self) -> None:
        """A flush has been completed in the log."""
        if self.policy.before_acknowledge:
            self._own_offset_moved(self.log.flushed_offset)


def _wake(waiters: dict[Callback, None]) -> None:
    for callback in tuple(waiters):
        callback()
