"""DescribeTransactions 0: how far the transactions of some ids are, as their coordinator knows."""

from typing import Final

from martlet.base.errors import ApiError
from martlet.base.ids import by_topic
from martlet.broker.ground.request import RequestContext
from martlet.broker.services import BrokerServices
from martlet.broker.serving.turns import in_turns
from martlet.wire.api_keys import ApiKey
from martlet.wire.messages.describe_transactions import (
    DescribeTransactionsRequest,
    DescribeTransactionsResponse,
    TopicData,
    TransactionState,
)

KEY: Final = ApiKey.DESCRIBE_TRANSACTIONS
VERSIONS: Final = (0, 0)
REQUEST: Final = DescribeTransactionsRequest


async def handle(
    broker: BrokerServices, request: DescribeTransactionsRequest, context: RequestContext
) -> DescribeTransactionsResponse:
    """One answer for each id."""
    ids = dict.fromkeys(request.transactional_ids)
    return DescribeTransactionsResponse(transaction_states=[await _one(broker, name) async for name in in_turns(ids)])


async def _one(broker: BrokerServices, transactional_id: str) -> TransactionState:
    try:
        stored = await broker.transactions.coordinator.describe(transactional_id)
    except ApiError as error:
        return TransactionState(error_code=error.code, transactional_id=transactional_id)
    return TransactionState(
        transactional_id=transactional_id,
        transaction_state=stored.state.label,
        transaction_timeout_ms=stored.timeout_ms,
        transaction_start_time_ms=-1 if stored.state.is_idle else stored.started_at_ms,
        producer_id=stored.producer_id,
        producer_epoch=stored.producer_epoch,
        topics=[TopicData(topic, indexes) for topic, indexes in by_topic(stored.partitions).items()],
    )
