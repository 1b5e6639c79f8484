"""Publishes messages: gathers them into batches, sends them to the leaders, tries again what may be tried again.

How it works: `send` puts a message into its partition's queue and returns a `Delivery` to await. One task looks for
partitions whose oldest batch is full, has lingered or is being flushed, and sends all those of one broker together.
A partition has one batch under way at a time, so a retry cannot overtake; while it is under way the next one fills up,
which is what keeps throughput high.

Invariants: (CLT-15) messages of one partition are written in the order of their `send`; (CLT-16) with idempotence (the
default) a message whose delivery succeeded is written once, however often its batch was sent; (CLT-17) every message is
delivered, or fails with the reason, at the latest some moments after `delivery_timeout_ms`.

Idempotence numbers batches per partition under a producer id. When a batch's fate cannot be known any more, its
partition goes on under a new id, so that one loss does not block what follows. In a transaction it does not go on:
the first failure is the whole transaction's, and everything that waits fails with it.
"""

import asyncio
import contextlib
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, Self

from martlet.base.clock import Clock, SystemClock
from martlet.base.errors import ERROR_TABLE, ApiError, ErrorCode, ProtocolViolation, error_code
from martlet.base.ids import TopicPartition
from martlet.client.accumulator import (
    BatchOutcome,
    Delivery,
    PartitionQueue,
    PendingBatch,
    ProducerIdentity,
    chunks_of,
    record_bytes,
)
from martlet.client.apis import INIT_PRODUCER_ID, NEWEST_BY_NAME, PRODUCE, PRODUCE_IN_TRANSACTION
from martlet.client.cluster import Cluster, Purpose
from martlet.client.errors import ClientError, ConnectionLost, RequestTimedOut
from martlet.client.metadata import TopicInfo
from martlet.client.partitioner import StickyChoice, partition_for_key
from martlet.client.retrying import asks_for_new_metadata, is_worth_retrying
from martlet.client.transaction_state import TransactionState
from martlet.wire.batch import TRANSACTIONAL_BIT, build_batch
from martlet.wire.compression import Compression
from martlet.wire.messages.init_producer_id import InitProducerIdRequest
from martlet.wire.produce import ProducePartitionResult, encode_produce_request, parse_produce_response
from martlet.wire.records.encode import HeaderFields, RecordFields

ALL_REPLICAS: Final = -1

_COMPRESS_IN_THREAD_BYTES: Final = 64 * 1024
_LOST_ITS_PLACE: Final = frozenset(
    {
        ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
        ErrorCode.INVALID_PRODUCER_EPOCH,
        ErrorCode.UNKNOWN_PRODUCER_ID,
        ErrorCode.PRODUCER_FENCED,
    }
)


@dataclass(frozen=True, slots=True, kw_only=True)
class ProducerOptions:
    """How to publish. Idempotence needs the acknowledgement of all replicas."""

    acks: int = ALL_REPLICAS
    idempotent: bool = True
    compression: Compression = Compression.NONE
    linger_ms: int = 5
    batch_bytes: int = 262_144
    request_bytes_max: int = 8_388_608
    buffer_bytes_max: int = 33_554_432
    requests_per_broker_max: int = 5
    delivery_timeout_ms: int = 120_000
    create_topics: bool = True

    def __post_init__(self) -> None:
        if self.acks not in (-1, 0, 1):
            raise ValueError(f"acks must be -1, 0 or 1, not {self.acks}")
        if self.idempotent and self.acks != ALL_REPLICAS:
            raise ValueError("idempotent publishing needs acks -1")


@dataclass(slots=True)
class ProducerStatistics:
    """What has become of the messages so far."""

    delivered: int = 0
    failed: int = 0
    first_error: Exception | None = None


class Producer:
    """Runs one task between `start` and `aclose`; `send` may be called from any number of tasks of its loop."""

    def __init__(
        self,
        cluster: Cluster,
        options: ProducerOptions | None = None,
        clock: Clock | None = None,
        transaction: TransactionState | None = None,
    ) -> None:
        """With a transaction: everything sent is in it; for `TransactionalProducer`."""
        self.statistics = ProducerStatistics()
        self._transaction = transaction
        self._cluster = cluster
        self._options = options or ProducerOptions()
        self._clock = clock or SystemClock()
        self._sticky = StickyChoice(cluster.randomness)
        self._queues: dict[TopicPartition, PartitionQueue] = {}
        self._active: dict[TopicPartition, PartitionQueue] = {}
        self._unsettled: dict[PendingBatch, None] = {}
        self._buffered_bytes = 0
        self._requests_to: dict[int, int] = defaultdict(int)
        self._identity: ProducerIdentity | None = None
        self._identity_lock = asyncio.Lock()
        self._wake = asyncio.Event()
        self._room = asyncio.Event()
        self._task: asyncio.Task[None] | None = None

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(self, kind: type[BaseException] | None, *rest: object) -> None:
        # A caller that is cancelled does not want to wait for brokers.
        await self.aclose(deliver=kind is None or issubclass(kind, Exception))

    async def start(self) -> None:
        """Start sending. Nothing is asked of the cluster yet."""
        self._task = asyncio.create_task(self._run(), name="martlet-producer")

    async def aclose(self, *, deliver: bool = True) -> None:
        """Deliver what is waiting, unless that is not wanted, then stop."""
        if self._task is None:
            return
        task, self._task = self._task, None
        try:
            if deliver:
                await self.flush()
        finally:
            task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await task

    async def send(
        self,
        topic: str,
        value: bytes | None,
        *,
        key: bytes | None = None,
        headers: Sequence[HeaderFields] = (),
        partition: int | None = None,
        timestamp_ms: int | None = None,
    ) -> Delivery:
        """Accept a message; waits only while the buffer is full or the topic unknown. Await the result for its fate."""
        if self._task is None or self._task.done():
            raise ClientError("this producer is not running")
        info = self._cluster.known_topic(topic) or await self._learn(topic)
        target = TopicPartition(topic, self._choose(info, key, partition))
        if timestamp_ms is not None and not 0 <= timestamp_ms < 2**63:
            raise ValueError(f"a timestamp is milliseconds since 1970, not {timestamp_ms}")
        record = (self._clock.now_ms() if timestamp_ms is None else timestamp_ms, key, value, headers)
        size_bytes = record_bytes(record)
        while self._buffered_bytes and self._buffered_bytes + size_bytes > self._options.buffer_bytes_max:
            self._room.clear()
            await self._room.wait()
        queue = self._queues.get(target)
        if queue is None:
            queue = self._queues[target] = PartitionQueue(target)
        batch = queue.open_batch(size_bytes, self._options.batch_bytes)
        if batch is None:
            batch = self._new_batch(queue)
            if key is None and partition is None and len(queue.waiting) > 1:
                self._sticky.batch_is_full(topic, target.partition, _led_partitions(info))
            self._wake.set()
        self._buffered_bytes += size_bytes
        return batch.add(record, size_bytes)

    async def send_many(self, target: TopicPartition, records: Sequence[RecordFields]) -> None:
        """Accept many messages of one partition, in order; waits only while the buffer is full.

        For those who publish in bulk: there is no delivery for each message, `flush` and `statistics` tell the fate of
        all. The partition must be one of the topic's (`Cluster.topic` tells).
        """
        if self._task is None or self._task.done():
            raise ClientError("this producer is not running")
        queue = self._queues.get(target)
        if queue is None:
            queue = self._queues[target] = PartitionQueue(target)
        for chunk, size_bytes in chunks_of(records, self._options.batch_bytes):
            while self._buffered_bytes and self._buffered_bytes + size_bytes > self._options.buffer_bytes_max:
                self._room.clear()
                await self._room.wait()
            batch = self._new_batch(queue)
            batch.add_all(chunk, size_bytes)
            self._buffered_bytes += size_bytes
            self._wake.set()

    async def flush(self) -> None:
        """Send everything accepted so far and wait until it is settled; failures are in the deliveries."""
        batches = list(self._unsettled)
        for batch in batches:
            batch.is_closed = True
        self._wake.set()
        for batch in batches:
            await batch.wait_settled()

    # --- for transactions

    async def discard(self) -> None:
        """Fail what has not been sent, and wait for what is under way: nothing of it is sent again."""
        batches = list(self._unsettled)
        self._fail_waiting()
        for batch in batches:
            await batch.wait_settled()

    def next_epoch(self) -> None:
        """A new transaction begins: every partition's batches are numbered from 0 again."""
        for queue in self._queues.values():
            queue.next_sequence = 0

    def _fail_waiting(self) -> None:
        """The transaction is lost, and with it everything but the first batch of a partition that is being served."""
        error = self._transaction.failure if self._transaction is not None else None
        for queue in self._queues.values():
            under_way = queue.waiting.popleft() if queue.is_busy and queue.waiting else None
            for batch in queue.waiting:
                self._finish(batch, BatchOutcome(error=error))
            queue.waiting.clear()
            if under_way is not None:
                queue.waiting.append(under_way)

    # --- inside

    async def _learn(self, topic: str) -> TopicInfo:
        return await self._cluster.retry(
            lambda: self._cluster.topic(topic, create=self._options.create_topics), topics=[topic]
        )

    def _choose(self, info: TopicInfo, key: bytes | None, partition: int | None) -> int:
        if partition is not None:
            if partition not in info.partitions:
                raise ApiError(
                    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
                    f"topic {info.name!r} has no partition {partition}; it has {len(info.partitions)}, numbered from 0",
                )
            return partition
        if key is not None:
            return partition_for_key(key, len(info.partitions))
        return self._sticky.choose(info.name, _led_partitions(info))

    def _new_batch(self, queue: PartitionQueue) -> PendingBatch:
        now = asyncio.get_running_loop().time()
        batch = PendingBatch(
            queue.partition,
            due_at=now + self._options.linger_ms / 1000,
            deadline=now + self._options.delivery_timeout_ms / 1000,
        )
        queue.waiting.append(batch)
        self._active[queue.partition] = queue
        self._unsettled[batch] = None
        return batch

    async def _run(self) -> None:
        try:
            async with asyncio.TaskGroup() as group:
                while True:
                    self._wake.clear()
                    next_at = self._dispatch(group)
                    with contextlib.suppress(TimeoutError):
                        async with asyncio.timeout_at(next_at):
                            await self._wake.wait()
        finally:
            for batch in list(self._unsettled):
                self._finish(batch, BatchOutcome(error=ClientError("the producer was stopped before delivery")))

    def _dispatch(self, group: asyncio.TaskGroup) -> float | None:
        """Start a request for every broker that has batches ready; returns when to check again, if not woken."""
        now = asyncio.get_running_loop().time()
        next_at: float | None = None
        by_leader: dict[int, list[PartitionQueue]] = defaultdict(list)
        if self._transaction is not None and self._transaction.failure is not None:
            self._fail_waiting()
        for queue in list(self._active.values()):
            if queue.is_busy:
                continue
            if not queue.waiting:
                del self._active[queue.partition]
                continue
            ready_at = queue.ready_at()
            if ready_at > now:
                next_at = ready_at if next_at is None else min(next_at, ready_at)
                continue
            leader = self._cluster.known_leader(queue.partition)
            if leader is None:
                queue.is_busy = True
                group.create_task(self._find_leader(queue))
            else:
                by_leader[leader.broker_id].append(queue)
        for broker_id, queues in by_leader.items():
            while queues and self._requests_to[broker_id] < self._options.requests_per_broker_max:
                chosen = _take_up_to(queues, self._options.request_bytes_max)
                for queue in chosen:
                    queue.is_busy = True
                    queue.waiting[0].is_closed = True
                self._requests_to[broker_id] += 1
                group.create_task(self._send_batches(broker_id, chosen))
        return next_at

    async def _find_leader(self, queue: PartitionQueue) -> None:
        try:
            await self._cluster.leader(queue.partition)
        except (ApiError, ClientError) as error:
            self._retry_or_fail(queue, error)
        queue.is_busy = False
        self._wake.set()

    async def _send_batches(self, broker_id: int, queues: list[PartitionQueue]) -> None:
        try:
            for queue in queues:
                await self._encode(queue)
            results = await self._produce(broker_id, queues)
            for queue in queues:
                self._take_result(queue, results.get(queue.partition))
        except (ApiError, ClientError) as error:
            for queue in queues:
                self._retry_or_fail(queue, error)
        self._requests_to[broker_id] -= 1
        for queue in queues:
            queue.is_busy = False
        self._wake.set()

    async def _encode(self, queue: PartitionQueue) -> None:
        batch = queue.waiting[0]
        if batch.encoded is not None:
            return
        identity = ProducerIdentity(-1, -1)
        attributes = 0
        if self._transaction is not None:
            identity, attributes = self._transaction.identity, TRANSACTIONAL_BIT
            batch.base_sequence = queue.next_sequence
        elif self._options.idempotent:
            identity = queue.identity = queue.identity or await self._identify(queue)
            batch.base_sequence = queue.next_sequence

        def build() -> bytes:
            return build_batch(
                batch.records,
                compression=self._options.compression,
                producer_id=identity.producer_id,
                producer_epoch=identity.producer_epoch,
                base_sequence=batch.base_sequence,
                attributes=attributes,
            )

        compressed_in_thread = self._options.compression and batch.size_bytes > _COMPRESS_IN_THREAD_BYTES
        batch.encoded = await asyncio.to_thread(build) if compressed_in_thread else build()

    async def _identify(self, queue: PartitionQueue) -> ProducerIdentity:
        """The id all partitions begin with, or a new one for a partition that lost its place."""
        async with self._identity_lock:
            if self._identity is not None and not queue.needs_new_identity:
                return self._identity
            connection = await self._cluster.any_connection()
            response = await connection.call(INIT_PRODUCER_ID, InitProducerIdRequest())
            if response.error_code:
                code = error_code(response.error_code)
                raise ApiError(code, f"no producer id was given: {ERROR_TABLE[code].text}")
            identity = ProducerIdentity(response.producer_id, response.producer_epoch)
            if not queue.needs_new_identity:
                self._identity = identity
            queue.needs_new_identity = False
            return identity

    async def _produce(
        self, broker_id: int, queues: list[PartitionQueue]
    ) -> dict[TopicPartition, ProducePartitionResult]:
        connection = await self._cluster.connection(broker_id, Purpose.PRODUCE)
        infos = {queue.partition.topic: self._cluster.metadata.topics.get(queue.partition.topic) for queue in queues}
        have_ids = all(info is not None and info.has_id for info in infos.values())
        api = PRODUCE if self._transaction is None else PRODUCE_IN_TRANSACTION
        version = connection.version_of(api, newest=None if have_ids else NEWEST_BY_NAME)
        by_topic: dict[str, list[tuple[int, bytes | None]]] = defaultdict(list)
        for queue in queues:
            by_topic[queue.partition.topic].append((queue.partition.partition, queue.waiting[0].encoded))
        ids = {name: info.id for name, info in infos.items() if info is not None}
        timeout_ms = self._cluster.options.request_timeout_ms
        chunks = encode_produce_request(
            version,
            topics=[(name, ids.get(name), partitions) for name, partitions in by_topic.items()],
            acks=self._options.acks,
            timeout_ms=timeout_ms,
            transactional_id=self._transaction.transactional_id if self._transaction is not None else None,
        )
        body = b"".join(chunks)
        if self._options.acks == 0:
            await connection.send_only(PRODUCE.key, version, body)
            return {queue.partition: ProducePartitionResult(queue.partition.partition) for queue in queues}
        # The broker may use its whole time to wait for replicas and still answer.
        answer = await connection.exchange(PRODUCE.key, version, body, timeout_ms=timeout_ms * 5 // 4)
        try:
            response = parse_produce_response(answer, version)
        except ProtocolViolation as error:
            raise connection.broken_by(error) from error
        names = {topic_id: name for name, topic_id in ids.items()}
        return {
            TopicPartition(topic.name or names.get(topic.topic_id or b"", ""), result.index): result
            for topic in response.topics
            for result in topic.partitions
        }

    def _take_result(self, queue: PartitionQueue, result: ProducePartitionResult | None) -> None:
        batch = queue.waiting[0]
        if result is None:
            self._retry_or_fail(queue, ApiError(ErrorCode.UNKNOWN_SERVER_ERROR, f"no answer for {queue.partition}"))
            return
        code = error_code(result.error_code)
        if code in (ErrorCode.NONE, ErrorCode.DUPLICATE_SEQUENCE_NUMBER):
            queue.waiting.popleft()
            queue.next_sequence = (queue.next_sequence + len(batch.records)) % 2**31
            self._finish(batch, BatchOutcome(result.base_offset, result.log_append_time_ms))
        elif code == ErrorCode.MESSAGE_TOO_LARGE and len(batch.records) > 1:
            queue.waiting.popleft()
            halves = batch.split()
            queue.waiting.extendleft(reversed(halves))
            self._unsettled.pop(batch, None)
            self._unsettled.update(dict.fromkeys(halves))
        else:
            text = result.error_message or ERROR_TABLE[code].text
            self._retry_or_fail(queue, ApiError(code, f"{queue.partition}: {text}"))

    def _retry_or_fail(self, queue: PartitionQueue, error: ApiError | ClientError) -> None:
        batch = queue.waiting[0]
        now = asyncio.get_running_loop().time()
        transaction = self._transaction
        may_renumber = self._options.idempotent and transaction is None
        lost_its_place = isinstance(error, ApiError) and error.code in _LOST_ITS_PLACE and may_renumber
        if isinstance(error, ConnectionLost | RequestTimedOut):
            batch.outcome_unknown = True
        if asks_for_new_metadata(error):
            self._cluster.mark_stale(queue.partition.topic)
        if lost_its_place:
            queue.renumber()
        is_lost = transaction is not None and transaction.failure is not None
        if now < batch.deadline and not is_lost and (lost_its_place or is_worth_retrying(error)):
            batch.not_before = now + self._cluster.options.retry_backoff_ms * 2 / 1000
            return
        queue.waiting.popleft()
        if batch.outcome_unknown and may_renumber:
            queue.renumber()
        if is_worth_retrying(error):
            error = RequestTimedOut(f"not delivered within {self._options.delivery_timeout_ms} ms: {error}")
        self._finish(batch, BatchOutcome(error=error))
        if transaction is not None:
            transaction.failed(error)  # what waits fails with the next look at the queues

    def _finish(self, batch: PendingBatch, outcome: BatchOutcome) -> None:
        batch.settle(outcome)
        self._unsettled.pop(batch, None)
        self._buffered_bytes -= batch.size_bytes
        self._room.set()
        if outcome.error is None:
            self.statistics.delivered += len(batch.records)
        else:
            self.statistics.failed += len(batch.records)
            self.statistics.first_error = self.statistics.first_error or outcome.error


def _led_partitions(info: TopicInfo) -> list[int]:
    """Partitions that have a leader; all of them when none has, so that messages wait instead of failing."""
    return [index for index, partition in info.partitions.items() if partition.leader >= 0] or list(info.partitions)


def _take_up_to(queues: list[PartitionQueue], bytes_max: int) -> list[PartitionQueue]:
    """Remove and return queues from the front whose oldest batches fit one request; at least one."""
    chosen = [queues.pop(0)]
    total = chosen[0].waiting[0].size_bytes
    while queues and total + queues[0].waiting[0].size_bytes <= bytes_max:
        total += queues[0].waiting[0].size_bytes
        chosen.append(queues.pop(0))
    return chosen
