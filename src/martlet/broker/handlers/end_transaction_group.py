"""EndTransactionGroup 0 (our own): one step of a group of transactions is decided, all or nothing.

The winners are committed and every other open child of the step is aborted, in one append with the step itself. Asked
again, with any caller, a step that is decided is answered "already done" with what was noted then. A winner that is not
open at its pair any more refuses the whole (TRANSACTION_ABORTABLE, the sentence names it) and changes nothing. Answered
when the decision is stored; the markers follow.
"""

from typing import Final

from martlet.base.errors import ApiError
from martlet.broker.ground.request import RequestContext
from martlet.broker.services import BrokerServices
from martlet.transactions.records import ProducerPair
from martlet.transactions.requests import OfTransaction
from martlet.transactions.transaction_groups import EndGroupWish
from martlet.wire.api_keys import ApiKey
from martlet.wire.messages.end_transaction_group import EndTransactionGroupRequest, EndTransactionGroupResponse

KEY: Final = ApiKey.END_TRANSACTION_GROUP
VERSIONS: Final = (0, 0)
REQUEST: Final = EndTransactionGroupRequest


async def handle(
    broker: BrokerServices, request: EndTransactionGroupRequest, context: RequestContext
) -> EndTransactionGroupResponse:
    """Decide the step."""
    winners = tuple(
        OfTransaction(winner.transactional_id, ProducerPair(winner.producer_id, winner.producer_epoch))
        for winner in request.winners
    )
    token = ProducerPair(request.producer_id, request.producer_epoch)
    wish = EndGroupWish(request.group, token, request.sequence, winners, request.note)
    try:
        ended = await broker.transactions.coordinator.end_group(wish)
    except ApiError as error:
        return EndTransactionGroupResponse(error_code=error.code, error_message=error.detail)
    return EndTransactionGroupResponse(
        already_done=ended.already_done,
        last_sequence=ended.progress.last_sequence,
        decided_by=ended.progress.decided_by,
        note=ended.progress.note,
    )
