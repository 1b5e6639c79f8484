"""Transactions for operators: which there are, what one has open and for how long, which no coordinator knows, aborts.

A transaction is *hanging* when a partition has it open and its coordinator does not: no producer and no time-out will
ever end it, and readers of committed data wait at its first message for ever. It is found by asking both sides.

Rule: an abort goes through the coordinator whenever that knows the transaction; otherwise a commit that is answered
later would have lost its data. Only a hanging one is ended by a marker of ours, and then in one partition.
"""

import asyncio
from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping
from typing import Any, Final, NamedTuple

from martlet.base.errors import ApiError, ErrorCode
from martlet.base.ids import TopicPartition
from martlet.client.answers import check, only
from martlet.client.apis import (
    DESCRIBE_PRODUCERS,
    DESCRIBE_TRANSACTIONS,
    END_TRANSACTION,
    INIT_TRANSACTIONS,
    LIST_TRANSACTIONS,
    WRITE_TXN_MARKERS,
)
from martlet.client.cluster import Cluster
from martlet.client.connection import Connection
from martlet.client.coordinators import Coordinated, Coordinators
from martlet.client.metadata import TopicInfo
from martlet.wire.messages.describe_producers import DescribeProducersRequest, TopicRequest
from martlet.wire.messages.describe_transactions import DescribeTransactionsRequest
from martlet.wire.messages.end_txn import EndTxnRequest
from martlet.wire.messages.init_producer_id import InitProducerIdRequest
from martlet.wire.messages.list_transactions import ListTransactionsRequest
from martlet.wire.messages.write_txn_markers import (
    WritableTxnMarker,
    WritableTxnMarkerTopic,
    WriteTxnMarkersRequest,
)

OPEN_STATES: Final = frozenset(("Ongoing", "PrepareCommit", "PrepareAbort"))
_IDS_AT_ONCE: Final = 500
_NONE_OPEN: Final = -1
_NEW_PRODUCER_TIMEOUT_MS: Final = 60_000


class TransactionListing(NamedTuple):
    """One transactional id as the list of its coordinator has it."""

    transactional_id: str
    producer_id: int
    state: str
    coordinator: int

    def to_json(self) -> dict[str, Any]:
        return self._asdict()


class TransactionDescription(NamedTuple):
    """What the coordinator knows of a transactional id; a transaction that is not open has no start."""

    transactional_id: str
    coordinator: int
    state: str
    producer_id: int
    producer_epoch: int
    timeout_ms: int
    started_at_ms: int | None
    partitions: tuple[TopicPartition, ...]

    @property
    def is_open(self) -> bool:
        """Whether there is something that has no end yet."""
        return self.state in OPEN_STATES

    def to_json(self) -> dict[str, Any]:
        return {**self._asdict(), "partitions": [list(partition) for partition in self.partitions]}


class OpenProducer(NamedTuple):
    """A transaction as the leader of a partition has it open."""

    partition: TopicPartition
    producer_id: int
    producer_epoch: int
    coordinator_epoch: int
    first_offset: int
    last_write_at_ms: int

    def to_json(self) -> dict[str, Any]:
        return {
            "topic": self.partition.topic,
            "partition": self.partition.partition,
            "producer_id": self.producer_id,
            "producer_epoch": self.producer_epoch,
            "first_offset": self.first_offset,
            "last_write_at_ms": self.last_write_at_ms,
        }


class Transactions:
    """Stateless but for the coordinators it has found; owns nothing that needs closing."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._coordinators = Coordinators(cluster, Coordinated.TRANSACTION)

    # --- what coordinators know

    async def listings(
        self, *, states: Collection[str] = (), producer_ids: Collection[int] = (), older_than_ms: int = -1
    ) -> list[TransactionListing]:
        """The transactional ids of every broker, sorted; filters leave out what does not pass all of them."""
        request = ListTransactionsRequest([*states], [*producer_ids], older_than_ms)

        async def list_at(broker_id: int) -> list[TransactionListing]:
            connection = await self._cluster.connection(broker_id)
            answer = await connection.call(LIST_TRANSACTIONS, request)
            check(answer.error_code, None, f"the transactions of broker {broker_id} were not listed")
            return [
                TransactionListing(one.transactional_id, one.producer_id, one.transaction_state, broker_id)
                for one in answer.transaction_states
            ]

        async def attempt() -> list[list[TransactionListing]]:
            await self._cluster.refresh(())
            return list(await asyncio.gather(*map(list_at, sorted(self._cluster.metadata.brokers))))

        # While a coordinator moves, two brokers may both claim an id.
        found = {one.transactional_id: one for some in await self._cluster.retry(attempt) for one in some}
        return [found[name] for name in sorted(found)]

    async def describe(self, transactional_id: str) -> TransactionDescription:
        """ApiError TRANSACTIONAL_ID_NOT_FOUND when there is no such id."""
        request = DescribeTransactionsRequest([transactional_id])

        async def ask(connection: Connection) -> TransactionDescription:
            found = only((await connection.call(DESCRIBE_TRANSACTIONS, request)).transaction_states)
            if found.error_code == ErrorCode.TRANSACTIONAL_ID_NOT_FOUND:
                detail = f"there is no transactional id {transactional_id!r}"
                raise ApiError(ErrorCode.TRANSACTIONAL_ID_NOT_FOUND, detail)
            check(found.error_code, None, f"{transactional_id!r} was not described")
            return TransactionDescription(
                transactional_id,
                self._coordinators.known(transactional_id),
                found.transaction_state,
                found.producer_id,
                found.producer_epoch,
                found.transaction_timeout_ms,
                found.transaction_start_time_ms if found.transaction_start_time_ms >= 0 else None,
                tuple(TopicPartition(topic.topic, index) for topic in found.topics for index in topic.partitions),
            )

        return await self._coordinators.call(transactional_id, ask)

    # --- what partitions have open

    async def open_in(self, topics: Iterable[TopicInfo]) -> list[OpenProducer]:
        """Every transaction that is open in a partition of these topics, by its leader's word; oldest offset first."""
        by_leader: dict[int, dict[str, list[int]]] = defaultdict(lambda: defaultdict(list))
        for topic in topics:
            for index, info in topic.partitions.items():
                if info.leader >= 0:
                    by_leader[info.leader][topic.name].append(index)
        asked = [self._open_at(leader, partitions) for leader, partitions in sorted(by_leader.items())]
        found = [one for some in await asyncio.gather(*asked) for one in some]
        return sorted(found, key=lambda one: (one.partition, one.first_offset))

    async def _open_at(self, leader: int, partitions: Mapping[str, list[int]]) -> list[OpenProducer]:
        connection = await self._cluster.connection(leader)
        request = DescribeProducersRequest([TopicRequest(name, indexes) for name, indexes in partitions.items()])
        answer = await connection.call(DESCRIBE_PRODUCERS, request)
        found = []
        for topic in answer.topics:
            for one in topic.partitions:
                place = TopicPartition(topic.name, one.partition_index)
                check(one.error_code, one.error_message, f"the producers of {place} were not described")
                found += [
                    OpenProducer(
                        place,
                        producer.producer_id,
                        producer.producer_epoch,
                        producer.coordinator_epoch,
                        producer.current_txn_start_offset,
                        producer.last_timestamp,
                    )
                    for producer in one.active_producers
                    if producer.current_txn_start_offset > _NONE_OPEN
                ]
        return found

    async def hanging(self, topics: Iterable[TopicInfo], *, older_than_ms: int, now_ms: int) -> list[OpenProducer]:
        """Those without a coordinator that would end them; one that was written to since is not looked at."""
        found = [one for one in await self.open_in(topics) if now_ms - one.last_write_at_ms >= older_than_ms]
        known: set[tuple[int, TopicPartition]] = set()
        ids = sorted({one.producer_id for one in found})
        for start in range(0, len(ids), _IDS_AT_ONCE):
            for listing in await self.listings(producer_ids=ids[start : start + _IDS_AT_ONCE]):
                description = await self.describe(listing.transactional_id)
                if description.is_open:
                    known.update((description.producer_id, partition) for partition in description.partitions)
        return [one for one in found if (one.producer_id, one.partition) not in known]

    # --- aborts

    async def abort(self, transactional_id: str) -> TransactionDescription:
        """Have the coordinator abort the open transaction; what was open. ApiError INVALID_TXN_STATE if nothing is.

        Its producer notices at its next request, and may begin another one.
        """
        found = await self.describe(transactional_id)
        if found.state != "Ongoing":
            detail = f"{transactional_id!r} has no open transaction: it is {found.state}"
            raise ApiError(ErrorCode.INVALID_TXN_STATE, detail)
        request = EndTxnRequest(transactional_id, found.producer_id, found.producer_epoch, committed=False)
        what = f"the transaction of {transactional_id!r} was not aborted"

        async def ask(connection: Connection) -> None:
            answer = await connection.call(END_TRANSACTION, request)
            if answer.error_code == ErrorCode.PRODUCER_FENCED:
                # A prepared transaction that was taken over is ended under another pair than its data have; a new
                # producer of the id aborts it whatever its pair is.
                begin = InitProducerIdRequest(transactional_id, _NEW_PRODUCER_TIMEOUT_MS)
                check((await connection.call(INIT_TRANSACTIONS, begin)).error_code, None, what)
                return
            check(answer.error_code, None, what)

        await self._coordinators.call(transactional_id, ask)
        return found

    async def abort_hanging(self, hanging: OpenProducer) -> None:
        """End a transaction that no coordinator knows in one partition."""
        topic, index = hanging.partition
        marker = WritableTxnMarker(
            hanging.producer_id,
            hanging.producer_epoch,
            transaction_result=False,
            topics=[WritableTxnMarkerTopic(topic, [index])],
            coordinator_epoch=max(hanging.coordinator_epoch, 0),
        )
        leader = await self._cluster.leader(hanging.partition)
        connection = await self._cluster.connection(leader.broker_id)
        answer = only((await connection.call(WRITE_TXN_MARKERS, WriteTxnMarkersRequest([marker]))).markers)
        for topic_answer in answer.topics:
            for one in topic_answer.partitions:
                check(one.error_code, None, f"the transaction of producer {hanging.producer_id} was not aborted")
