"""ListTransactions 0–2: the transactional ids that this broker coordinates.

- Filters: states by their names (those that do not exist are listed back), producer ids, v1+ the age of an open
  transaction, v2+ a regular expression that the whole id must match (RE2's syntax).
- COORDINATOR_LOAD_IN_PROGRESS while a partition of the state topic led here is not loaded: the list would lack ids.
"""

from typing import Final

from martlet.base.errors import ApiError
from martlet.broker.ground.request import RequestContext
from martlet.broker.services import BrokerServices
from martlet.groups.consumer.topic_regex import check_regex, matching_topics
from martlet.transactions.requests import TransactionFilter
from martlet.transactions.states import state_of_label
from martlet.wire.api_keys import ApiKey
from martlet.wire.messages.list_transactions import (
    ListTransactionsRequest,
    ListTransactionsResponse,
    TransactionState,
)

KEY: Final = ApiKey.LIST_TRANSACTIONS
VERSIONS: Final = (0, 2)
REQUEST: Final = ListTransactionsRequest


async def handle(
    broker: BrokerServices, request: ListTransactionsRequest, context: RequestContext
) -> ListTransactionsResponse:
    """Those that pass all filters."""
    states = {label: state_of_label(label) for label in request.state_filters}
    known = frozenset(state for state in states.values() if state is not None)
    unknown = [label for label, state in states.items() if state is None]
    wanted = TransactionFilter(
        known if states else None,
        frozenset(request.producer_id_filters) if request.producer_id_filters else None,
        request.duration_filter,
    )
    try:
        if request.transactional_id_pattern:
            check_regex(request.transactional_id_pattern)
        found = await broker.transactions.coordinator.list_all(wanted)
    except ApiError as error:
        return ListTransactionsResponse(error_code=error.code, unknown_state_filters=unknown)
    if request.transactional_id_pattern:
        ids = (stored.transactional_id for stored in found)
        matching = frozenset(matching_topics(request.transactional_id_pattern, ids))
        found = [stored for stored in found if stored.transactional_id in matching]
    return ListTransactionsResponse(
        unknown_state_filters=unknown,
        transaction_states=[
            TransactionState(stored.transactional_id, stored.producer_id, stored.state.label) for stored in found
        ],
    )
