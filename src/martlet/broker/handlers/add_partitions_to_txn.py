"""AddPartitionsToTxn 0–5: partitions become part of a producer's transaction.

- v0–3 come from clients, with one transaction. If one of the partitions does not exist, it gets
  UNKNOWN_TOPIC_OR_PARTITION and all others OPERATION_NOT_ATTEMPTED: nothing is added.
- v4–5 come from brokers, on behalf of publishes, with several transactions. `verify_only` adds nothing and answers
  TRANSACTION_ABORTABLE for a partition that is not in the transaction.
- What meets the end of the last transaction waits for it up to 100 ms, then gets CONCURRENT_TRANSACTIONS.
- What is wrong with the transaction stands in every partition.
"""

from collections.abc import Iterable
from typing import Final

from martlet.base.errors import ErrorCode
from martlet.base.ids import TopicPartition
from martlet.broker.coordinators.transaction_errors import KnownErrors
from martlet.broker.ground.request import RequestContext
from martlet.broker.services import BrokerServices
from martlet.transactions.records import ProducerPair
from martlet.transactions.requests import OfTransaction
from martlet.transactions.transitions import Generation
from martlet.wire.api_keys import ApiKey
from martlet.wire.messages.add_partitions_to_txn import (
    AddPartitionsToTxnPartitionResult,
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnResult,
    AddPartitionsToTxnTopic,
    AddPartitionsToTxnTopicResult,
    AddPartitionsToTxnTransaction,
)

KEY: Final = ApiKey.ADD_PARTITIONS_TO_TXN
VERSIONS: Final = (0, 5)
REQUEST: Final = AddPartitionsToTxnRequest

_LAST_OF_CLIENTS: Final = 3
_ERRORS: Final = KnownErrors(fenced_since=2, abortable_since=4)

_Outcomes = dict[TopicPartition, ErrorCode]


async def handle(
    broker: BrokerServices, request: AddPartitionsToTxnRequest, context: RequestContext
) -> AddPartitionsToTxnResponse:
    """One transaction of a client, or several of a broker."""
    if context.version > _LAST_OF_CLIENTS:
        results = [await _of_broker(broker, transaction) for transaction in request.transactions]
        return AddPartitionsToTxnResponse(results_by_transaction=results)
    pair = ProducerPair(request.v3_and_below_producer_id, request.v3_and_below_producer_epoch)
    of = OfTransaction(request.v3_and_below_transactional_id, pair)
    topics = request.v3_and_below_topics
    outcomes = await _add(broker, of, topics, Generation.FIRST)
    known = {partition: _ERRORS.code(code, context.version) for partition, code in outcomes.items()}
    return AddPartitionsToTxnResponse(results_by_topic_v3_and_below=_results(topics, known))


async def _of_broker(broker: BrokerServices, asked: AddPartitionsToTxnTransaction) -> AddPartitionsToTxnResult:
    of = OfTransaction(asked.transactional_id, ProducerPair(asked.producer_id, asked.producer_epoch))
    if asked.verify_only:
        outcomes = await broker.transactions.questions.verify(of, frozenset(_partitions(asked.topics)))
    else:
        outcomes = await _add(broker, of, asked.topics, Generation.SECOND)
    return AddPartitionsToTxnResult(asked.transactional_id, _results(asked.topics, outcomes))


async def _add(
    broker: BrokerServices, of: OfTransaction, topics: list[AddPartitionsToTxnTopic], generation: Generation
) -> _Outcomes:
    partitions = frozenset(_partitions(topics))
    missing = {partition for partition in partitions if broker.image.partition(*partition) is None}
    if missing:
        return {
            partition: ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            if partition in missing
            else ErrorCode.OPERATION_NOT_ATTEMPTED
            for partition in partitions
        }
    return await broker.transactions.questions.add(of, partitions, generation)


def _partitions(topics: Iterable[AddPartitionsToTxnTopic]) -> Iterable[TopicPartition]:
    return (TopicPartition(topic.name, index) for topic in topics for index in topic.partitions)


def _results(topics: Iterable[AddPartitionsToTxnTopic], outcomes: _Outcomes) -> list[AddPartitionsToTxnTopicResult]:
    return [
        AddPartitionsToTxnTopicResult(
            topic.name,
            [
                AddPartitionsToTxnPartitionResult(index, outcomes[TopicPartition(topic.name, index)])
                for index in topic.partitions
            ],
        )
        for topic in topics
    ]
