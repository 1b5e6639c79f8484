"""One partition as this broker leads it: its log, its epoch, its high watermark, and who waits for it.

Publishes append here; fetches read up to the high watermark. With one replica the high watermark is the flushed
offset under the flush mode `commit` and the end offset otherwise.

Invariants: (P1) the high watermark never goes back and never passes the end offset; (P2) under `commit` no reader
and no acknowledgement gets ahead of the device; (P3) a waiter is told once.
"""

from collections import deque
from collections.abc import Callable
from typing import Final, Protocol

from martlet.base.errors import ApiError, DiskFull, ErrorCode, StorageFailure
from martlet.base.ids import TopicId, TopicPartition
from martlet.base.invariant import invariant
from martlet.broker.flush_policy import FlushMode, FlushPolicy
from martlet.cluster.topic_names import is_internal_topic
from martlet.log.log_slice import Appended, LogSlice
from martlet.log.partition_log import PartitionLog
from martlet.observe.metrics import TopicCounters
from martlet.wire.batch import BatchHeader, read_batch_header
from martlet.wire.compression import Compression

LONG_CHECK_BYTES: Final = 16_384
"""A compressed batch from this size on is opened in a thread where it has to be opened at all."""


WRITE_BACK_BYTES: Final = 32 << 20
"""Unflushed bytes after which a flush starts early, so that the kernel need not stall our writes to catch up."""


class PartitionListener(Protocol):
    """What a partition tells its broker."""

    def appended(self, partition: "Partition") -> None:
        """Bytes wait for a flush."""
        ...

    def disk_full(self, partition: "Partition", error: DiskFull) -> None: ...

    def storage_failed(self, partition: "Partition", error: StorageFailure) -> None: ...


class Partition:
    """Owned by the partition table; lives on the event loop."""

    __slots__ = (
        "_commit_waiters",
        "_fetch_waiters",
        "_listener",
        "closed_with",
        "counters",
        "flush_in_progress",
        "high_watermark",
        "internal",
        "leader_epoch",
        "log",
        "name",
        "policy",
        "topic_id",
        "unflushed_bytes",
        "unflushed_messages",
    )

    def __init__(
        self,
        name: TopicPartition,
        topic_id: TopicId,
        log: PartitionLog,
        leader_epoch: int,
        policy: FlushPolicy,
        counters: TopicCounters,
        listener: PartitionListener,
    ) -> None:
        self.name = name
        self.internal = is_internal_topic(name.topic)
        """Whether only Martlet itself writes to it."""
        self.topic_id = topic_id
        self.log = log
        self.leader_epoch = leader_epoch
        self.policy = policy
        self.counters = counters
        self.closed_with: ApiError | None = None
        """Why the partition can no longer be used: its storage failed, or its topic was deleted."""
        self.flush_in_progress = False
        self.unflushed_bytes = 0
        self.unflushed_messages = 0
        self.high_watermark = log.flushed_offset if policy.before_acknowledge else log.end_offset
        self._listener = listener
        self._commit_waiters: deque[tuple[int, Callable[[], None]]] = deque()
        self._fetch_waiters: dict[Callable[[], None], None] = {}

    # --- publishing

    def check_leader_epoch(self, epoch: int) -> None:
        """Compare a client's idea of the leader epoch (-1: none) with ours."""
        if epoch < 0 or epoch == self.leader_epoch:
            return
        if epoch < self.leader_epoch:
            raise ApiError(ErrorCode.FENCED_LEADER_EPOCH)
        raise ApiError(ErrorCode.UNKNOWN_LEADER_EPOCH)

    def check_takes_long(self, records: memoryview) -> bool:
        """Whether checking this batch means decompressing much, which must not happen on the event loop."""
        options = self.log.options
        if len(records) < LONG_CHECK_BYTES or not (options.compact or options.bounds_past_timestamps):
            return False
        return read_batch_header(records).compression != Compression.NONE

    def append(self, records: memoryview, header: BatchHeader, *, now_ms: int) -> Appended:
        """Append one batch that `check_client_batch` has passed; raises ApiError when it is refused."""
        self.check_online()
        log = self.log
        if header.is_transactional:
            raise ApiError(ErrorCode.INVALID_TXN_STATE, "this broker does not serve transactions")
        appended = self._write(records, header, now_ms)
        if not appended.duplicate:
            counters = self.counters
            counters.messages_in += header.record_count
            counters.bytes_in += header.size
            counters.batches_in += 1
            self.unflushed_bytes += header.size
            self.unflushed_messages += header.record_count
            if not self.policy.before_acknowledge:
                self.advance_high_watermark(log.end_offset)
            self._listener.appended(self)
        return appended

    def _write(self, records: memoryview, header: BatchHeader, now_ms: int) -> Appended:
        try:
            return self.log.append(records, header, leader_epoch=self.leader_epoch, now_ms=now_ms)
        except DiskFull as error:
            self._listener.disk_full(self, error)
            raise ApiError(ErrorCode.KAFKA_STORAGE_ERROR, "the broker's disk is full") from error
        except StorageFailure as error:
            self._listener.storage_failed(self, error)
            raise ApiError(ErrorCode.KAFKA_STORAGE_ERROR, str(error)) from error

    @property
    def offline(self) -> bool:
        return self.closed_with is not None

    def check_online(self) -> None:
        """Raise when the partition can no longer be used."""
        if self.closed_with is not None:
            raise self.closed_with

    def close(self, reason: ApiError) -> None:
        """Serve nobody any more; everybody who waits is woken to find out why."""
        self.closed_with = reason
        waiters, self._commit_waiters = self._commit_waiters, deque()
        for _, callback in waiters:
            callback()
        self.wake_fetches()

    # --- the high watermark and those who wait for it

    def advance_high_watermark(self, offset: int) -> None:
        """Everything below `offset` is committed: wake whom it concerns."""
        if offset <= self.high_watermark:
            return
        invariant(offset <= self.log.end_offset, "P1: the high watermark never passes the end offset")
        self.high_watermark = offset
        waiters = self._commit_waiters
        while waiters and waiters[0][0] <= offset:
            waiters.popleft()[1]()
        if self._fetch_waiters:
            self.wake_fetches()

    def when_committed(self, next_offset: int, callback: Callable[[], None]) -> bool:
        """Call back once the high watermark reaches `next_offset`; False when it already has."""
        if next_offset <= self.high_watermark:
            return False
        self._commit_waiters.append((next_offset, callback))
        return True

    def add_fetch_waiter(self, callback: Callable[[], None]) -> None:
        self._fetch_waiters[callback] = None

    def remove_fetch_waiter(self, callback: Callable[[], None]) -> None:
        self._fetch_waiters.pop(callback, None)

    def wake_fetches(self) -> None:
        """Something a waiting fetch may care about has changed."""
        for callback in tuple(self._fetch_waiters):
            callback()

    # --- reading

    def locate(self, offset: int, *, max_bytes: int, at_least_one: bool) -> LogSlice:
        """Where the batches from `offset` on lie, as far as readers may see."""
        return self.log.locate(offset, max_bytes=max_bytes, end_offset=self.high_watermark, at_least_one=at_least_one)

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
            self.advance_high_watermark(self.log.flushed_offset)
