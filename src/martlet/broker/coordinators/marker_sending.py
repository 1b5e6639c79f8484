"""Carries out what a coordinator has decided: writes the markers of a transaction to all its partitions, wherever led.

How it works: for each decided transaction a task goes on until every partition has its marker. What this broker leads
is written at once; for each other leader there is one request under way, and what comes in meanwhile goes into the next
one. A partition that does not exist any more needs no marker. Leaders change: a marker refused for that, or for too few
replicas, is sent again a moment later, to the leader of then.

A partition that says that the marker, or its coordinator, is out of date is asked no more. It cannot be, as long as
this broker still leads the transaction's own partition; so it is logged, and the rest goes on.

Rule: a marker may come twice. Leaves off when the leadership under which it was decided is over: the next coordinator
sends all markers again.

Proved by: tests/unit/broker/coordinators/test_transaction_coordinator.py, tests/cluster/test_transactions.py
"""

import asyncio
import logging
from collections.abc import Callable
from typing import Final, NamedTuple, Protocol

from martlet.base.errors import ApiError, ErrorCode, error_code
from martlet.base.ids import NO_LEADER_EPOCH, BrokerId, TopicPartition, by_topic
from martlet.broker.coordinators.marker_writing import MarkerWriter
from martlet.broker.coordinators.transactions import partition_of_id
from martlet.broker.partitions.transaction_guards import MarkerOf
from martlet.broker.routing.peers import Peers
from martlet.client.apis import WRITE_TXN_MARKERS
from martlet.cluster.image import MetadataImage
from martlet.cluster.topic_names import TRANSACTION_STATE_TOPIC
from martlet.transactions.requests import WriteMarkers
from martlet.wire.messages.write_txn_markers import (
    WritableTxnMarker,
    WritableTxnMarkerTopic,
    WriteTxnMarkersRequest,
)

logger = logging.getLogger(__name__)

_PAUSE_SECONDS: Final = 0.02
_PAUSE_SECONDS_MAX: Final = 1.0
_FINAL: Final = frozenset((ErrorCode.INVALID_PRODUCER_EPOCH, ErrorCode.TRANSACTION_COORDINATOR_FENCED))

Outcomes = dict[TopicPartition, ErrorCode]


class _Leader(Protocol):
    """Takes a marker for partitions of one leader."""

    async def write(self, marker: MarkerOf, partitions: frozenset[TopicPartition]) -> Outcomes: ...


class _Waiting(NamedTuple):
    marker: MarkerOf
    partitions: frozenset[TopicPartition]
    outcomes: asyncio.Future[Outcomes]


class _RemoteLeader:
    """One request under way; the markers that come meanwhile go into the next."""

    def __init__(self, broker: BrokerId, peers: Peers) -> None:
        self._broker = broker
        self._peers = peers
        self._waiting: list[_Waiting] = []
        self._sending: asyncio.Task[None] | None = None

    async def write(self, marker: MarkerOf, partitions: frozenset[TopicPartition]) -> Outcomes:
        waiting = _Waiting(marker, partitions, asyncio.get_running_loop().create_future())
        self._waiting.append(waiting)
        if self._sending is None or self._sending.done():
            self._sending = asyncio.create_task(self._send_all(), name=f"martlet-markers-to-{self._broker}")
        return await waiting.outcomes

    async def aclose(self) -> None:
        if self._sending is not None:
            self._sending.cancel()
            await asyncio.gather(self._sending, return_exceptions=True)

    async def _send_all(self) -> None:
        while self._waiting:
            batch, self._waiting = self._waiting, []
            try:
                answers = await self._send(batch)
            except ApiError as error:
                answers = [dict.fromkeys(one.partitions, error.code) for one in batch]
            for one, outcomes in zip(batch, answers, strict=True):
                if not one.outcomes.done():
                    one.outcomes.set_result(outcomes)

    async def _send(self, batch: list[_Waiting]) -> list[Outcomes]:
        request = WriteTxnMarkersRequest([_message(one.marker, one.partitions) for one in batch])
        response = await self._peers.call(self._broker, WRITE_TXN_MARKERS, request)
        if len(response.markers) != len(batch):
            detail = f"broker {self._broker} answered {len(response.markers)} of {len(batch)} markers"
            raise ApiError(ErrorCode.UNKNOWN_SERVER_ERROR, detail)
        return [
            {
                TopicPartition(topic.name, one.partition_index): error_code(one.error_code)
                for topic in answer.topics
                for one in topic.partitions
            }
            for answer in response.markers
        ]


class MarkerRoutes(NamedTuple):
    """How markers reach the leaders: what this broker leads, and the others."""

    own: MarkerWriter
    peers: Peers


class MarkerSender:
    """The executor of the transactions machine's effects; lives until `aclose`."""

    def __init__(self, me: BrokerId, image: MetadataImage, routes: MarkerRoutes) -> None:
        self._me = me
        self._image = image
        self._routes = routes
        self._remote: dict[BrokerId, _RemoteLeader] = {}
        self._deliveries: set[asyncio.Task[None]] = set()

    def start_effect(self, effect: object, done: Callable[[object], None]) -> None:
        """Begin with the markers of one transaction."""
        if isinstance(effect, WriteMarkers):
            name = f"martlet-markers-of-{effect.transactional_id[:50]}"
            task = asyncio.create_task(self._deliver(effect, done), name=name)
            self._deliveries.add(task)
            task.add_done_callback(self._deliveries.discard)

    @property
    def under_way(self) -> int:
        """Transactions whose markers are being written."""
        return len(self._deliveries)

    async def aclose(self) -> None:
        """Leave off; the next coordinator goes on."""
        for task in self._deliveries:
            task.cancel()
        await asyncio.gather(*self._deliveries, return_exceptions=True)
        for leader in self._remote.values():
            await leader.aclose()

    async def _deliver(self, effect: WriteMarkers, done: Callable[[object], None]) -> None:
        epoch = self._coordinator_epoch(effect.transactional_id)
        marker = MarkerOf(*effect.pair, effect.is_commit, epoch, effect.transaction_version)
        missing, pause = effect.partitions, _PAUSE_SECONDS
        while missing:
            missing = await self._pass(marker, missing, effect.transactional_id)
            if missing:
                await asyncio.sleep(pause)
                pause = min(2 * pause, _PAUSE_SECONDS_MAX)
                if self._coordinator_epoch(effect.transactional_id) != epoch:
                    return
        done(None)

    async def _pass(
        self, marker: MarkerOf, partitions: frozenset[TopicPartition], transactional_id: str
    ) -> frozenset[TopicPartition]:
        """Send the marker to all leaders once; the partitions that still need it."""
        by_leader: dict[BrokerId, list[TopicPartition]] = {}
        missing: list[TopicPartition] = []
        for partition in partitions:
            record = self._image.partition(*partition)
            if record is not None and record.leader is not None:
                by_leader.setdefault(record.leader, []).append(partition)
            elif record is not None:
                missing.append(partition)
        writes = [self._leader(leader).write(marker, frozenset(led)) for leader, led in by_leader.items()]
        for led, outcomes in zip(by_leader.values(), await asyncio.gather(*writes), strict=True):
            for partition in led:
                # One that an answer leaves out may have no marker yet.
                code = outcomes.get(partition, ErrorCode.UNKNOWN_SERVER_ERROR)
                if code in _FINAL:
                    logger.error("%s refuses the marker of %r for good: %s", partition, transactional_id, code.name)
                elif code is not ErrorCode.NONE:
                    missing.append(partition)
        return frozenset(missing)

    def _leader(self, broker: BrokerId) -> _Leader:
        if broker == self._me:
            return self._routes.own
        return self._remote.setdefault(broker, _RemoteLeader(broker, self._routes.peers))

    def _coordinator_epoch(self, transactional_id: str) -> int:
        """The epoch in which this broker leads the partition of the id; -1 when it does not."""
        topic = self._image.topic(TRANSACTION_STATE_TOPIC)
        if topic is None:
            return NO_LEADER_EPOCH
        index = partition_of_id(transactional_id, topic.partition_count)
        record = self._image.partition(TRANSACTION_STATE_TOPIC, index)
        return record.leader_epoch if record is not None and record.leader == self._me else NO_LEADER_EPOCH


def _message(marker: MarkerOf, partitions: frozenset[TopicPartition]) -> WritableTxnMarker:
    return WritableTxnMarker(
        marker.producer_id,
        marker.producer_epoch,
        marker.is_commit,
        [WritableTxnMarkerTopic(topic, indexes) for topic, indexes in by_topic(partitions).items()],
        marker.coordinator_epoch,
        marker.version,
    )
