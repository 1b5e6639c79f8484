"""Requests of ended transactions that come again, much later: markers of coordinators and ends of producers.

A network may keep a request for any time, and its sender may have sent it twice. Here a client sends again what the
`TransactionGhost` knows to have been decided and written before. Nothing of it may touch a newer transaction.
"""

import asyncio
from contextlib import aclosing
from typing import Final

from martlet.base.errors import ApiError
from martlet.base.ids import TopicPartition
from martlet.client.apis import END_TRANSACTION, WRITE_TXN_MARKERS
from martlet.client.cluster import Cluster
from martlet.client.connection import Connection
from martlet.client.coordinators import Coordinated, Coordinators
from martlet.client.errors import ClientError
from martlet.wire.messages.end_txn import EndTxnRequest
from martlet.wire.messages.write_txn_markers import (
    WritableTxnMarker,
    WritableTxnMarkerTopic,
    WriteTxnMarkersRequest,
)
from sim.randomness import SimRandomness
from sim.transaction_ghost import Decision, TransactionGhost

_PAUSE_MS: Final = 250
_RECENT: Final = 12
"""Of the last decisions one comes again: those of ids that go on at once are the dangerous ones."""


class LateRequests:
    """One client; runs until its process ends."""

    def __init__(self, ghost: TransactionGhost, draws: SimRandomness) -> None:
        self._ghost = ghost
        self._draws = draws
        self.sent = 0

    async def send(self, cluster: Cluster) -> None:
        """One after another, whatever the answers are."""
        async with aclosing(cluster):
            coordinators = Coordinators(cluster, Coordinated.TRANSACTION)
            while True:
                await asyncio.sleep(self._draws.below(_PAUSE_MS) / 1000)
                decisions = self._ghost.decisions[-_RECENT:]
                if not decisions:
                    continue
                decision = decisions[self._draws.below(len(decisions))]
                try:
                    if self._draws.below(3):
                        await self._marker(cluster, decision)
                    else:
                        await self._end(coordinators, decision)
                except (ApiError, ClientError):
                    pass
                self.sent += 1

    async def _marker(self, cluster: Cluster, decision: Decision) -> None:
        places = [place for place in decision.partitions if not place.topic.startswith("__")]
        if not places:
            return
        place: TopicPartition = places[self._draws.below(len(places))]
        if (place, decision.producer_id, decision.epoch) not in self._ghost.written:
            return
        marker = WritableTxnMarker(
            decision.producer_id,
            decision.epoch,
            decision.is_commit,
            [WritableTxnMarkerTopic(place.topic, [place.partition])],
            self._ghost.written[place, decision.producer_id, decision.epoch],
            decision.version,
        )
        leader = await cluster.leader(place)
        connection = await cluster.connection(leader.broker_id)
        await connection.call(WRITE_TXN_MARKERS, WriteTxnMarkersRequest([marker]))

    async def _end(self, coordinators: Coordinators, decision: Decision) -> None:
        request = EndTxnRequest(decision.name, decision.producer_id, decision.epoch - 1, decision.is_commit)

        async def ask(connection: Connection) -> None:
            await connection.call(END_TRANSACTION, request)

        await coordinators.call(decision.name, ask)
