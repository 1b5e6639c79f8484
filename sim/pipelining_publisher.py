"""A publisher of librdkafka's kind: several numbered batches of one partition under way at a time.

Martlet's own producer waits for each batch of a partition before it sends the next one, so it never shows what becomes
of the batches behind a refused one. This one has up to five unanswered on one connection, in order, and sends what was
refused again, the lowest first. It goes to another connection, to the new leader's for example, when the one before
owes it no answer any more.

Invariant (REP-10): no batch of it is refused for good. Above all none is called a gap (OUT_OF_ORDER_SEQUENCE_NUMBER),
on which librdkafka begins a new epoch and publishes a second time what may be in the log already.
"""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from martlet.base.errors import ERROR_TABLE, ApiError, ErrorCode, error_code
from martlet.base.ids import TopicPartition
from martlet.client.accumulator import ProducerIdentity
from martlet.client.apis import INIT_PRODUCER_ID, NEWEST_BY_NAME, PRODUCE
from martlet.client.cluster import Cluster, Purpose
from martlet.client.connection import Connection
from martlet.client.errors import ClientError
from martlet.client.retrying import asks_for_new_metadata, is_worth_retrying
from martlet.wire.batch import build_batch
from martlet.wire.messages.init_producer_id import InitProducerIdRequest
from martlet.wire.produce import encode_produce_request, parse_produce_response
from sim.randomness import SimRandomness

_UNDER_WAY_MAX: Final = 5
_PAUSE_MS_MAX: Final = 12
"""After a refusal, before the next batch."""
_GAP_MS_MAX: Final = 4
"""Between two batches: some arrive together, and a leader may change its mind between others."""


@dataclass(slots=True, eq=False)
class _Batch:
    sequence: int
    value: bytes
    acknowledged: Callable[[int], None]
    is_under_way: bool = False


async def new_identity(cluster: Cluster) -> ProducerIdentity:
    """A producer id of its own, however often it has to be asked for."""
    while True:
        try:
            connection = await cluster.any_connection()
            response = await connection.call(INIT_PRODUCER_ID, InitProducerIdRequest())
        except (ApiError, ClientError):
            pass
        else:
            if not response.error_code:
                return ProducerIdentity(response.producer_id, response.producer_epoch)
        await asyncio.sleep(_PAUSE_MS_MAX / 1000)


class PipeliningPublisher:
    """Publishes to one partition; one task runs `deliver`, others `add` until one calls `finish`."""

    def __init__(
        self,
        cluster: Cluster,
        partition: TopicPartition,
        identity: ProducerIdentity,
        draws: SimRandomness,
        refused_for_good: Callable[[str], None],
    ) -> None:
        self._cluster = cluster
        self._partition = partition
        self._identity = identity
        self._draws = draws
        self._refused_for_good = refused_for_good
        self._batches: list[_Batch] = []
        """Those without an outcome, the lowest first."""
        self._next_sequence = 0
        self._connection: Connection | None = None
        self._must_pause = self._is_finished = False
        self._news = asyncio.Event()

    @property
    def waiting(self) -> int:
        """How many batches have no outcome."""
        return len(self._batches)

    def add(self, value: bytes, acknowledged: Callable[[int], None]) -> None:
        """Send this as a batch of its own; `acknowledged` is called with its offset."""
        self._batches.append(_Batch(self._next_sequence, value, acknowledged))
        self._next_sequence += 1
        self._news.set()

    def finish(self) -> None:
        """Nothing more is added."""
        self._is_finished = True
        self._news.set()

    async def deliver(self) -> None:
        """Send until nothing more is added and every batch has its outcome."""
        async with asyncio.TaskGroup() as group:
            while self._batches or not self._is_finished:
                self._news.clear()
                batch = self._next_batch()
                connection = await self._leader_connection() if batch is not None else None
                if self._must_pause:
                    self._must_pause = False
                    await self._pause(_PAUSE_MS_MAX)
                elif batch is None or connection is None:
                    await self._news.wait()
                else:
                    batch.is_under_way = True
                    group.create_task(self._send(connection, batch))
                    await self._pause(_GAP_MS_MAX)

    def _next_batch(self) -> _Batch | None:
        """The lowest that is not under way. A leader knows a batch again only among its producer's last five."""
        batches = self._batches
        known = [batch for batch in batches if batch.sequence < batches[0].sequence + _UNDER_WAY_MAX]
        return next((batch for batch in known if not batch.is_under_way), None)

    async def _leader_connection(self) -> Connection | None:
        """The connection to the leader; None while there is none or another one owes answers."""
        try:
            leader = await self._cluster.leader(self._partition)
            connection = await self._cluster.connection(leader.broker_id, Purpose.PRODUCE)
        except (ApiError, ClientError) as error:
            self._failed(error)
            return None
        if connection is not self._connection and any(batch.is_under_way for batch in self._batches):
            return None
        self._connection = connection
        return connection

    async def _send(self, connection: Connection, batch: _Batch) -> None:
        try:
            offset = await self._produce(connection, batch)
        except (ApiError, ClientError) as error:
            batch.is_under_way = False
            self._failed(error)
            if not is_worth_retrying(error):
                self._batches.remove(batch)
                self._refused_for_good(f"batch {batch.sequence} of {self._identity} to {self._partition}: {error}")
        else:
            self._batches.remove(batch)
            batch.acknowledged(offset)
        self._news.set()

    def _failed(self, error: ApiError | ClientError) -> None:
        self._must_pause = True
        if asks_for_new_metadata(error):
            self._cluster.mark_stale(self._partition.topic)

    async def _pause(self, milliseconds_max: int) -> None:
        await asyncio.sleep(self._draws.below(milliseconds_max) / 1000)

    async def _produce(self, connection: Connection, batch: _Batch) -> int:
        encoded = build_batch(
            [(0, None, batch.value, ())],
            producer_id=self._identity.producer_id,
            producer_epoch=self._identity.producer_epoch,
            base_sequence=batch.sequence,
        )
        version = connection.version_of(PRODUCE, newest=NEWEST_BY_NAME)
        timeout_ms = self._cluster.options.request_timeout_ms
        topics = [(self._partition.topic, None, [(self._partition.partition, encoded)])]
        body = b"".join(encode_produce_request(version, topics=topics, acks=-1, timeout_ms=timeout_ms))
        answer = await connection.exchange(PRODUCE.key, version, body, timeout_ms=timeout_ms * 5 // 4)
        result = parse_produce_response(answer, version).topics[0].partitions[0]
        code = error_code(result.error_code)
        if code is not ErrorCode.NONE:
            raise ApiError(code, result.error_message or ERROR_TABLE[code].text)
        return result.base_offset
