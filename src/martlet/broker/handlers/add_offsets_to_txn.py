"""AddOffsetsToTxn 0–4: the offsets of a group become part of a producer's transaction.

They are in it as the partition of `__consumer_offsets` that holds the group. Clients of the second generation do not
send this: TxnOffsetCommit adds the partition itself.
"""

from typing import Final

from martlet.base.errors import ApiError
from martlet.base.ids import TopicPartition
from martlet.broker.coordinators.transaction_errors import KnownErrors
from martlet.broker.ground.request import RequestContext
from martlet.broker.services import BrokerServices
from martlet.cluster.topic_names import CONSUMER_OFFSETS_TOPIC
from martlet.transactions.records import ProducerPair
from martlet.transactions.requests import OfTransaction
from martlet.transactions.transitions import Generation
from martlet.wire.api_keys import ApiKey
from martlet.wire.messages.add_offsets_to_txn import AddOffsetsToTxnRequest, AddOffsetsToTxnResponse

KEY: Final = ApiKey.ADD_OFFSETS_TO_TXN
VERSIONS: Final = (0, 4)
REQUEST: Final = AddOffsetsToTxnRequest

_ERRORS: Final = KnownErrors(fenced_since=2, abortable_since=4)


async def handle(
    broker: BrokerServices, request: AddOffsetsToTxnRequest, context: RequestContext
) -> AddOffsetsToTxnResponse:
    """Add the group's partition."""
    of = OfTransaction(request.transactional_id, ProducerPair(request.producer_id, request.producer_epoch))
    try:
        await broker.groups.coordinator_of(request.group_id)  # makes the topic when there is none yet
        index = broker.groups.topic.partition_of(request.group_id)
        partitions = frozenset((TopicPartition(CONSUMER_OFFSETS_TOPIC, index),))
        await broker.transactions.coordinator.add(of, partitions, Generation.FIRST)
    except ApiError as error:
        return AddOffsetsToTxnResponse(error_code=_ERRORS.code(error.code, context.version))
    return AddOffsetsToTxnResponse()
