"""One broker of three without connections: a partition table over a simulated disk, an image the test writes, handlers.

The test says what the metadata store holds (`store`), and sends publishes and fetches as frames; followers are played
by the test.
"""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any, ClassVar, cast

from sim.clock import SimClock
from sim.disk import SimDisk
from sim.randomness import SimRandomness

from martlet.base.addresses import Address
from martlet.base.errors import ErrorCode
from martlet.base.ids import BrokerId, Incarnation, LeaderEpoch, Member, TopicId
from martlet.broker.app import follow_metadata
from martlet.broker.ground.request import Link, Reply
from martlet.broker.ground.settings import BrokerSettings
from martlet.broker.handlers import fetch, produce
from martlet.broker.partitions.partition import Partition
from martlet.broker.partitions.partition_table import PartitionTable
from martlet.broker.partitions.topic_settings import TopicSettings
from martlet.broker.routing.cluster_view import ClusterView
from martlet.broker.services import BrokerServices
from martlet.cluster.keys import CLUSTER_KEY, broker_key, live_key, partition_key, topic_key
from martlet.cluster.records import (
    BrokerRecord,
    ClusterRecord,
    Endpoint,
    LiveRecord,
    PartitionRecord,
    TopicRecord,
    encode_record,
)
from martlet.cluster.store import CommitPlan
from martlet.log.log_directory import LogDirectory
from martlet.log.options import LogOptions
from martlet.observe.metrics import BrokerMetrics, DropReason
from martlet.wire.api_keys import ApiKey
from martlet.wire.batch import build_batch
from martlet.wire.fetch import (
    FetchPartition,
    FetchPartitionResult,
    FetchRequest,
    FetchTopic,
    ReplicaState,
    encode_fetch_request,
    parse_fetch_response,
)
from martlet.wire.headers import RequestHeader
from martlet.wire.leader_hints import NodeEndpoint
from martlet.wire.produce import ProducePartitionResult, encode_produce_request, parse_produce_response
from tests.unit.cluster.images import FollowedStore

SECRET = "between brokers"
TOPIC_ID = TopicId(b"orders".ljust(16, b"\0"))
ME, SECOND, THIRD = (Member(BrokerId(number), Incarnation(number * 10)) for number in (1, 2, 3))
ALL = (ME, SECOND, THIRD)
LINK = Link(Address("127.0.0.1", 50_000), Address("127.0.0.1", 9_092))


@dataclass
class Line:
    """A connection, as far as its replies care."""

    refusals: list[str] = field(default_factory=list)
    wait_ms: ClassVar[int] = 0
    """How long clients wait after each answer."""

    def reply_ready(self) -> None: ...

    def queue_released(self) -> None: ...

    def throttle_ms(self, header: RequestHeader) -> int:
        return self.wait_ms

    def refuse(self, reason: str, kind: DropReason = DropReason.PROTOCOL_VIOLATION) -> None:
        self.refusals.append(reason)


class Answer:
    """What became of one request."""

    def __init__(self, key: ApiKey, version: int) -> None:
        self.version = version
        self.reply = Reply(RequestHeader(key, version, 1, "test", 0), Line())

    @property
    def is_there(self) -> bool:
        return self.reply.ready

    @property
    def body(self) -> bytes:
        assert self.reply.ready, "the request has not been answered"
        return b"".join(bytes(chunk) for chunk in self.reply.chunks[1:])


class ProduceAnswer(Answer):
    @property
    def result(self) -> ProducePartitionResult:
        return parse_produce_response(self.body, self.version).topics[0].partitions[0]

    @property
    def error(self) -> ErrorCode:
        return ErrorCode(self.result.error_code)

    @property
    def endpoints(self) -> list[NodeEndpoint]:
        return list(parse_produce_response(self.body, self.version).node_endpoints)


class FetchAnswer(Answer):
    @property
    def results(self) -> list[FetchPartitionResult]:
        response = parse_fetch_response(self.body, self.version)
        return [result for topic in response.topics for result in topic.partitions]

    @property
    def result(self) -> FetchPartitionResult:
        [result] = self.results
        return result

    @property
    def error(self) -> ErrorCode:
        return ErrorCode(self.result.error_code)

    @property
    def endpoints(self) -> list[NodeEndpoint]:
        return list(parse_fetch_response(self.body, self.version).node_endpoints)


def record(
    leader: Member | None = ME,
    epoch: int = 0,
    in_sync: tuple[Member, ...] = ALL,
    replicas: tuple[Member, ...] = ALL,
    *,
    index: int = 0,
    eligible: tuple[Member, ...] = (),
) -> PartitionRecord:
    """A partition of `orders`."""
    return PartitionRecord(
        topic_id=TOPIC_ID,
        partition=index,
        replicas=tuple(member.broker for member in replicas),
        leader=leader.broker if leader is not None else None,
        leader_epoch=LeaderEpoch(epoch),
        isr=in_sync,
        elr=eligible,
    )


class ReplicaTableBench:
    """Broker 1, which has followers or follows; needs a running event loop."""

    def __init__(self, disk: SimDisk | None = None, store: FollowedStore | None = None) -> None:
        self.disk = disk or SimDisk(SimRandomness(5))
        self.metadata = store or new_store()
        self.clock = SimClock()
        self.metrics = BrokerMetrics()
        self.failures: list[BaseException] = []
        self.may_act = True
        self.roles_changed: list[Partition] = []
        self.may_join: list[Partition] = []
        settings = BrokerSettings(broker_id=ME.broker, rack="r1")
        image = self.metadata.image
        topic_settings = TopicSettings(settings, image, {})
        self.logs = LogDirectory(self.disk, "/logs", LogOptions())
        self.logs.open(self.clock.now_ms(), topic_settings.options_for)
        self.table = PartitionTable(
            ME, image, self.logs, topic_settings, self.metrics, self.clock, self.failures.append
        )
        self.table.may_act = lambda: self.may_act
        self.table.on_roles_changed = self.roles_changed.extend
        self.table.on_may_join = self.may_join.append
        self.table.open_existing()
        self.services = cast(
            BrokerServices,
            SimpleNamespace(
                access=SimpleNamespace(rules=None),
                settings=settings,
                me=ME,
                broker_id=ME.broker,
                clock=self.clock,
                image=image,
                partitions=self.table,
                logs=self.logs,
                topic_settings=topic_settings,
                metrics=self.metrics,
                cluster=ClusterView(image, ME.broker, may_act=lambda: self.may_act, rack="r1"),
                checkpoint=self._checkpoint,
            ),
        )

    async def _checkpoint(self) -> None:
        self.logs.checkpoint()

    # --- the metadata

    def store(self, *records: PartitionRecord, configs: dict[str, str] | None = None) -> None:
        """The store's word on `orders` is this now."""
        values = {partition_key(one.topic_id, one.partition): encode_record(one) for one in records}
        known = self.metadata.image.topic("orders")
        if known is None or configs is not None:
            count = known.partition_count if known is not None else len(records)
            topic = TopicRecord("orders", TOPIC_ID, count, 3, configs or {})
            values[topic_key("orders")] = encode_record(topic)
        delta = self.metadata.commit(CommitPlan(puts=values))
        follow_metadata(self.table, self.metadata.image, delta)

    def partition(self) -> Partition:
        partition = self.table.hosted("orders", 0)
        assert partition is not None
        return partition

    # --- requests

    def produce(
        self,
        *values: bytes,
        acks: int = -1,
        timeout_ms: int = 60_000,
        version: int = 12,
        producer: tuple[int, int, int] = (-1, -1, -1),
        damage_at: int | None = None,
    ) -> ProduceAnswer:
        """A publish; `producer` is id, epoch and first sequence number, `damage_at` a byte that is sent wrong."""
        records = [(self.clock.now_ms(), None, value, ()) for value in values or (b"v",)]
        producer_id, producer_epoch, sequence = producer
        batch = bytearray(
            build_batch(records, producer_id=producer_id, producer_epoch=producer_epoch, base_sequence=sequence)
        )
        if damage_at is not None:
            batch[damage_at] ^= 0xFF
        chunks = encode_produce_request(
            version, topics=[("orders", None, [(0, memoryview(batch))])], acks=acks, timeout_ms=timeout_ms
        )
        answer = ProduceAnswer(ApiKey.PRODUCE, version)
        produce.start(self.services, LINK, memoryview(bytearray(b"".join(chunks))), answer.reply)
        return answer

    def fetch(
        self,
        *asked: FetchPartition,
        version: int = 18,
        replica_id: int = -1,
        replica_epoch: int = -1,
        **request: Any,
    ) -> FetchAnswer:
        """A reader's fetch, unless the request names a replica."""
        name, topic_id = (None, TOPIC_ID) if version >= 13 else ("orders", None)
        whole = FetchRequest(
            replica_id=replica_id,
            replica_state=ReplicaState(replica_id, replica_epoch),
            topics=[FetchTopic(name, topic_id, list(asked))],
            **request,
        )
        answer = FetchAnswer(ApiKey.FETCH, version)
        frame = memoryview(encode_fetch_request(version, whole))
        fetch.start(self.services, LINK, frame, answer.reply)
        return answer

    def replica_fetch(
        self,
        follower: Member,
        offset: int,
        *,
        epoch: int = 0,
        last_epoch: int = -1,
        log_start: int = 0,
        watermark: int = 0,
        **request: Any,
    ) -> FetchAnswer:
        """A follower's fetch of partition 0."""
        asked = FetchPartition(0, epoch, offset, last_epoch, log_start, 1 << 20, high_watermark=watermark)
        whole: dict[str, Any] = {
            "replica_id": follower.broker,
            "replica_epoch": follower.incarnation,
            "cluster_id": SECRET,
            "max_wait_ms": 0,
        }
        return self.fetch(asked, **{**whole, **request})

    async def settle(self) -> None:
        """Let what was woken run."""
        for _ in range(3):
            await asyncio.sleep(0)

    async def flush(self) -> None:
        await self.table.flusher.flush_all(self.table.open_partitions())

    async def stop(self, *, clean: bool = True) -> None:
        await self.flush()
        await self.table.flusher.aclose()
        self.logs.close(clean=clean)


@asynccontextmanager
async def replica_table(
    disk: SimDisk | None = None, store: FollowedStore | None = None
) -> AsyncIterator[ReplicaTableBench]:
    """A bench that is stopped cleanly at the end."""
    bench = ReplicaTableBench(disk, store)
    yield bench
    await bench.stop()


def new_store() -> FollowedStore:
    """Three brokers in three racks, all alive."""
    store = FollowedStore()
    values = {CLUSTER_KEY: encode_record(ClusterRecord("cluster", 0, SECRET))}
    for member in ALL:
        endpoint = Endpoint("kafka", f"host{member.broker}", 9_000 + member.broker)
        broker = BrokerRecord(member.broker, member.incarnation, (endpoint,), rack=f"r{member.broker}")
        values[broker_key(member.broker)] = encode_record(broker)
        values[live_key(member.broker)] = encode_record(LiveRecord(*member))
    store.commit(CommitPlan(puts=values))
    return store
