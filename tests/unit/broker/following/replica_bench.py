"""A follower's fetchers against a scripted leader, on virtual time: real connections, real logs, a simulated network.

`FollowedCopy` is a partition reduced to what fetchers ask of one, over a real log. `FakeLeader` is a broker that leads
real logs and whose answers can be spoilt. `run_bench` runs a test's body inside a simulated process.
"""

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

from sim.disk import SimDisk
from sim.host import SimHost
from sim.randomness import SimRandomness
from sim.world import SimWorld

from martlet.base.errors import ApiError, ErrorCode, StorageFailure
from martlet.base.ids import BrokerId, Incarnation, Member, TopicId, TopicPartition
from martlet.broker.following.assignment import ReplicaFetching
from martlet.broker.following.connection import ReplicaFetchOptions, ReplicaPorts
from martlet.broker.following.request import ReplicaIdentity
from martlet.broker.partitions.flush_policy import FlushMode, FlushPolicy
from martlet.cluster.keys import broker_key
from martlet.cluster.records import BrokerRecord, Endpoint, encode_record
from martlet.cluster.store import CommitPlan
from martlet.log.options import LogOptions
from martlet.log.partition_log import PartitionLog
from martlet.log.recovery import LogCheckpoint
from martlet.log.replicated_batches import ReplicatedBatches
from martlet.observe.metrics import BrokerMetrics
from martlet.replication.follower import EpochEnd, FollowerReplica, high_watermark_after
from martlet.wire.api_keys import ApiKey
from martlet.wire.batch import build_batch, iterate_batches, read_batch_header
from martlet.wire.fetch import (
    EpochEndOffset,
    FetchPartition,
    FetchPartitionResult,
    FetchRequest,
    encode_fetch_response,
)
from martlet.wire.records.record import read_records
from tests.unit.client.fake_broker import FakeBroker
from tests.unit.cluster.images import FollowedStore

NOW_MS = 1_700_000_000_000
ME = Member(BrokerId(2), Incarnation(20))
SECRET = "between brokers"
SMALL_SEGMENTS = LogOptions(segment_bytes=4_000, index_interval_bytes=500, retention_ms=-1)
INTERVAL = FlushPolicy(FlushMode.INTERVAL, 1_000, 10_000)
COMMIT = FlushPolicy(FlushMode.COMMIT, 1_000, 10_000)


def open_log(disk: SimDisk, name: TopicPartition) -> PartitionLog:
    return PartitionLog.open(
        disk, f"data/{name}", SMALL_SEGMENTS, partition=name, checkpoint=LogCheckpoint(), now_ms=NOW_MS
    )


def topic_id_of(topic: str) -> TopicId:
    return TopicId(topic.encode().ljust(16, b"\0")[:16])


def publish(log: PartitionLog, *values: bytes, epoch: int) -> None:
    """Append one batch as the leader of `epoch` does."""
    batch = bytearray(build_batch([(NOW_MS, None, value, ()) for value in values]))
    log.append(memoryview(batch), read_batch_header(batch), leader_epoch=epoch, now_ms=NOW_MS)


def content(log: PartitionLog) -> bytes:
    """All bytes of all batches, from the log's start on."""
    found = b""
    offset = log.log_start_offset
    while offset < log.end_offset:
        piece = log.locate(offset, max_bytes=1 << 20, end_offset=log.end_offset, at_least_one=True).read()
        found += piece
        for _, header in iterate_batches(piece):
            offset = header.next_offset
    return found


def values(log: PartitionLog) -> list[bytes]:
    return [record.value or b"" for record in read_records(content(log), 1 << 24)]


class CopiedLog:
    """The log of a `FollowedCopy`, as fetchers read and write it."""

    def __init__(self, copy: "FollowedCopy") -> None:
        self._copy = copy
        self._log = copy.log

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
        return EpochEnd(*self._log.epochs.end_offset_for(epoch, log_end_offset=self._log.end_offset))

    @property
    def needs_flush(self) -> bool:
        return self._copy.policy.before_acknowledge and self._log.durability.flushed_offset < self._log.end_offset

    def when_flushed(self, callback: Callable[[], None]) -> bool:
        if self._log.durability.flushed_offset == self._log.end_offset:
            return False
        self._copy.flush_waiters.append(callback)
        return True

    def append(self, batches: ReplicatedBatches, *, now_ms: int) -> None:
        copy = self._copy
        if copy.failing_with is not None:
            raise copy.failing_with
        self._log.append_as_is(batches, now_ms=now_ms)
        copy.appends += 1
        copy.flush_if_due()

    def commit(self, leader_high_watermark: int) -> None:
        assert self._copy.follower is not None
        self._log.high_watermark = high_watermark_after(leader_high_watermark, self)

    def truncate_to(self, offset: int, now_ms: int) -> None:
        assert self._copy.follower is not None
        self._copy.cuts.append(offset)
        self._log.truncate_to(offset, now_ms=now_ms)

    def start_at(self, offset: int, now_ms: int) -> None:
        assert self._copy.follower is not None
        self._copy.starts.append(offset)
        self._log.truncate_fully_and_start_at(offset, now_ms=now_ms)

    def advance_log_start(self, offset: int) -> None:
        self._log.advance_log_start(offset)


class FollowedCopy:
    """This broker's copy: what fetchers see of a partition, and nothing more."""

    def __init__(self, name: TopicPartition, disk: SimDisk, policy: FlushPolicy = INTERVAL) -> None:
        self.name = name
        self.topic_id = topic_id_of(name.topic)
        self.log = open_log(disk, name)
        self.policy = policy
        self.follower: FollowerReplica | None = None
        self.leader_broker: BrokerId | None = None
        self.offline = False
        self.appends = 0
        self.cuts: list[int] = []
        self.starts: list[int] = []
        self.followed_log = CopiedLog(self)
        self.flush_seconds = 0.001
        self.failing_with: Exception | None = None
        """What the next appends raise."""
        self.flush_waiters: list[Callable[[], None]] = []

    def follow(self, leader: int, epoch: int) -> None:
        self.leader_broker = BrokerId(leader)
        self.follower = FollowerReplica(epoch)
        self.flush_if_due()

    @property
    def high_watermark(self) -> int:
        return self.log.high_watermark

    def lead(self) -> None:
        self.leader_broker = self.follower = None

    def flush_if_due(self) -> None:
        if self.policy.before_acknowledge and self.log.durability.flushed_offset < self.log.end_offset:
            asyncio.get_running_loop().call_later(self.flush_seconds, self._flush)

    def _flush(self) -> None:
        self.log.durability.flush()
        self._wake_flush_waiters()

    def close(self) -> None:
        """What a failed storage does to a partition."""
        self.offline = True
        self._wake_flush_waiters()

    def _wake_flush_waiters(self) -> None:
        waiters, self.flush_waiters = self.flush_waiters, []
        for callback in waiters:
            callback()


class LedLog:
    """A log of the fake leader."""

    def __init__(self, log: PartitionLog, epoch: int) -> None:
        self.log = log
        self.epoch = epoch
        self.high_watermark = 0
        log.assign_epoch(epoch)

    def publish(self, *values: bytes) -> None:
        publish(self.log, *values, epoch=self.epoch)
        self.high_watermark = self.log.end_offset

    def elect(self, epoch: int) -> None:
        self.epoch = epoch
        self.log.assign_epoch(epoch)


Spoil = Callable[[FetchPartition, FetchPartitionResult], FetchPartitionResult]


class FakeLeader(FakeBroker):
    """A broker that serves replica fetches from real logs, by the rules: epochs, then history, then data."""

    def __init__(self, broker_id: int = 1) -> None:
        super().__init__(broker_id=broker_id)
        self.led: dict[tuple[bytes, int], LedLog] = {}
        self.disk = SimDisk(SimRandomness(f"leader {broker_id}"))
        self.spoil: Spoil | None = None
        """Changes answers before they go out."""
        self.refuses_with = ErrorCode.NONE
        self.positions: list[dict[tuple[bytes, int], FetchPartition]] = []
        """What each fetch asked for, oldest first."""
        self._changed = asyncio.Event()
        self.scripts[ApiKey.FETCH] = self._fetch

    @property
    def fetches(self) -> list[FetchRequest]:
        return self.asked(ApiKey.FETCH)

    def lead(self, name: TopicPartition, epoch: int = 1) -> LedLog:
        key = (topic_id_of(name.topic), name.partition)
        if key in self.led:
            self.led[key].elect(epoch)
        else:
            self.led[key] = LedLog(open_log(self.disk, name), epoch)
        self.wake()
        return self.led[key]

    def wake(self) -> None:
        """Something that a waiting fetch may care about has changed."""
        self._changed.set()
        self._changed = asyncio.Event()

    async def _fetch(self, request: FetchRequest, version: int) -> bytes:
        assert version >= 17
        assert tuple(request.replica) == ME
        assert request.cluster_id == SECRET
        self.positions.append({(t.topic_id or b"", p.partition): p for t in request.topics for p in t.partitions})
        loop = asyncio.get_running_loop()
        deadline = loop.time() + request.max_wait_ms / 1000
        while True:
            changed = self._changed
            topics, is_news = self._examine(request)
            if self.refuses_with is not ErrorCode.NONE:
                return b"".join(encode_fetch_response(version, (), error_code=self.refuses_with))
            if is_news or loop.time() >= deadline:
                return b"".join(encode_fetch_response(version, topics))
            try:
                async with asyncio.timeout_at(deadline):
                    await changed.wait()
            except TimeoutError:
                continue

    def _examine(self, request: FetchRequest) -> tuple[list[Any], bool]:
        topics = []
        bytes_left = request.max_bytes
        is_news = False
        for topic in request.topics:
            results = []
            for asked in topic.partitions:
                led = self.led.get((topic.topic_id or b"", asked.partition))
                result = self._result(led, asked, bytes_left, at_least_one=bytes_left == request.max_bytes)
                if self.spoil is not None:
                    result = self.spoil(asked, result)
                bytes_left = max(0, bytes_left - len(result.records))
                is_news = is_news or bool(result.error_code or result.records or result.diverging_epoch)
                is_news = is_news or result.high_watermark > asked.high_watermark
                results.append(result)
            topics.append((None, topic.topic_id, results))
        return topics, is_news

    def _result(
        self, led: LedLog | None, asked: FetchPartition, bytes_left: int, *, at_least_one: bool
    ) -> FetchPartitionResult:
        index = asked.partition
        if led is None:
            return FetchPartitionResult(index, ErrorCode.NOT_LEADER_OR_FOLLOWER)
        log = led.log
        if asked.current_leader_epoch != led.epoch:
            is_older = asked.current_leader_epoch < led.epoch
            code = ErrorCode.FENCED_LEADER_EPOCH if is_older else ErrorCode.UNKNOWN_LEADER_EPOCH
            return FetchPartitionResult(index, code)
        if asked.last_fetched_epoch >= 0:
            end = log.epochs.end_offset_for(asked.last_fetched_epoch, log_end_offset=log.end_offset)
            if end.epoch < asked.last_fetched_epoch or end.end_offset < asked.fetch_offset:
                return FetchPartitionResult(index, diverging_epoch=EpochEndOffset(*end))
        try:
            limit = min(bytes_left, asked.partition_max_bytes)
            piece = log.locate(
                asked.fetch_offset, max_bytes=limit, end_offset=log.end_offset, at_least_one=at_least_one
            )
        except ApiError as error:
            return FetchPartitionResult(index, error.code, log_start_offset=log.log_start_offset)
        records = piece.read() if piece.size else b""
        return FetchPartitionResult(
            index, 0, led.high_watermark, led.high_watermark, log.log_start_offset, records=records
        )


class FetchingBench:
    """One follower with its fetchers; leaders are added to it."""

    def __init__(self, host: SimHost, **options: int) -> None:
        self.host = host
        self.store = FollowedStore()
        self.copies: list[FollowedCopy] = []
        self.metrics = BrokerMetrics()
        self.disk = SimDisk(SimRandomness("follower"))
        self.fetching = ReplicaFetching(
            self,
            self.store.image,
            ReplicaIdentity(ME, SECRET),
            ReplicaFetchOptions(**options),
            ReplicaPorts(clock=host.clock, randomness=host.randomness),
            self.metrics,
        )
        self._leaders: list[FakeLeader] = []

    def following(self) -> list[FollowedCopy]:
        return [copy for copy in self.copies if copy.follower is not None]

    async def add_leader(self, broker_id: int = 1) -> FakeLeader:
        leader = FakeLeader(broker_id)
        await leader.start()
        self._leaders.append(leader)
        self.register(leader, incarnation=broker_id * 10)
        return leader

    def register(self, leader: FakeLeader, incarnation: int) -> None:
        endpoint = Endpoint("kafka", leader.address.host, leader.address.port)
        record = BrokerRecord(BrokerId(leader.broker_id), Incarnation(incarnation), (endpoint,))
        delta = self.store.commit(CommitPlan(puts={broker_key(record.id): encode_record(record)}))
        self.fetching.follow_brokers(delta)

    def follow(
        self, name: TopicPartition, leader: int = 1, epoch: int = 1, policy: FlushPolicy = INTERVAL
    ) -> FollowedCopy:
        """A new copy, or one that is there already, follows this leader from now on."""
        known = [copy for copy in self.copies if copy.name == name]
        copy = known[0] if known else FollowedCopy(name, self.disk, policy)
        if not known:
            self.copies.append(copy)
        copy.follow(leader, epoch)
        self.fetching.roles_changed([copy])
        return copy

    async def aclose(self) -> None:
        await self.fetching.aclose()
        for leader in self._leaders:
            await leader.stop()


async def until(condition: Callable[[], bool], seconds: float = 30.0) -> None:
    """Let virtual time pass until it holds."""
    loop = asyncio.get_running_loop()
    deadline = loop.time() + seconds
    while not condition():
        assert loop.time() < deadline, "it did not happen in time"
        await asyncio.sleep(0.001)


def run_bench(body: Callable[[FetchingBench], Coroutine[Any, Any, None]], seed: int = 1, **options: int) -> None:
    """Run a test's body inside a simulated process, with a bench whose fetchers run."""

    async def main() -> None:
        bench = FetchingBench(host, **options)
        bench.fetching.start()
        try:
            await body(bench)
        finally:
            await bench.aclose()

    with SimWorld(seed) as world:
        host = world.add_host("machine")
        world.run_process(host, main)
        assert not world.unhandled()


def storage_failure() -> StorageFailure:
    return StorageFailure("the device is gone")
