"""Asks the coordinator of a transaction, here or on another broker, whether partitions of this broker are in it.

A client of the second generation has them added by this very question; for one of the first they must be in it already.

Proved by: tests/unit/broker/coordinators/test_transaction_coordinator.py, tests/cluster/test_transactions.py
"""

import asyncio
from collections.abc import Coroutine
from typing import Any

from martlet.base.errors import ApiError, ErrorCode, error_code
from martlet.base.ids import BrokerId, TopicPartition, by_topic
from martlet.broker.coordinators.transactions import TransactionCoordinator
from martlet.broker.routing.peers import Peers
from martlet.client.apis import ADD_PARTITIONS_TO_TXN
from martlet.transactions.requests import OfTransaction
from martlet.transactions.transitions import Generation
from martlet.wire.messages.add_partitions_to_txn import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnTopic,
    AddPartitionsToTxnTransaction,
)


class TransactionQuestions:
    """Each call is one question; work that waits for answers can be left here until the broker stops."""

    def __init__(self, me: BrokerId, coordinator: TransactionCoordinator, peers: Peers) -> None:
        self._me = me
        self._coordinator = coordinator
        self._peers = peers
        self._tasks: set[asyncio.Task[None]] = set()

    def run(self, work: Coroutine[Any, Any, None]) -> None:
        """Go on with what waits for an answer."""
        task = asyncio.create_task(work, name="martlet-transaction-question")
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def aclose(self) -> None:
        """Leave off with what waits."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def ask(
        self, of: OfTransaction, partitions: frozenset[TopicPartition], *, adds: bool
    ) -> dict[TopicPartition, ErrorCode]:
        """The answer for each partition; NONE where it is in the transaction now."""
        try:
            leader = await self._coordinator.coordinator_of(of.transactional_id)
            if leader != self._me:
                return await self._ask_remote(leader, of, partitions, adds)
        except ApiError as error:
            return dict.fromkeys(partitions, error.code)
        return await (self.add(of, partitions, Generation.SECOND) if adds else self.verify(of, partitions))

    async def add(
        self, of: OfTransaction, partitions: frozenset[TopicPartition], generation: Generation
    ) -> dict[TopicPartition, ErrorCode]:
        """What this broker answers as the coordinator when the partitions are to be added."""
        try:
            await self._coordinator.add(of, partitions, generation)
        except ApiError as error:
            return dict.fromkeys(partitions, error.code)
        return dict.fromkeys(partitions, ErrorCode.NONE)

    async def verify(self, of: OfTransaction, partitions: frozenset[TopicPartition]) -> dict[TopicPartition, ErrorCode]:
        """The same when they must be in the transaction already."""
        try:
            missing = await self._coordinator.missing(of, partitions)
        except ApiError as error:
            return dict.fromkeys(partitions, error.code)
        outside = ErrorCode.TRANSACTION_ABORTABLE
        return {partition: outside if partition in missing else ErrorCode.NONE for partition in partitions}

    async def _ask_remote(
        self, leader: BrokerId, of: OfTransaction, partitions: frozenset[TopicPartition], adds: bool
    ) -> dict[TopicPartition, ErrorCode]:
        topics = [AddPartitionsToTxnTopic(topic, indexes) for topic, indexes in by_topic(partitions).items()]
        transaction = AddPartitionsToTxnTransaction(of.transactional_id, *of.pair, not adds, topics)
        response = await self._peers.call(leader, ADD_PARTITIONS_TO_TXN, AddPartitionsToTxnRequest([transaction]))
        answers = {
            TopicPartition(topic.name, one.partition_index): error_code(one.partition_error_code)
            for result in response.results_by_transaction
            for topic in result.topic_results
            for one in topic.results_by_partition
        }
        whole = error_code(response.error_code) if response.error_code else ErrorCode.UNKNOWN_SERVER_ERROR
        return {partition: answers.get(partition, whole) for partition in partitions}
