"""OpenTransactionGroup 0 (our own): a run of a program takes over the group of transactions that it writes by.

What older runs of the group left open is aborted, and they can decide nothing any more. A run that asks again gets the
same token again, one that has been superseded PRODUCER_FENCED. The group keeps the place where its runs keep their
books: another place is refused (INVALID_REQUEST) unless the run says that it takes over, and so is a run in the middle
of its work when the group is unknown (TRANSACTIONAL_ID_NOT_FOUND), unless it says that it starts over.
"""

from typing import Final

from martlet.base.errors import ApiError
from martlet.broker.ground.request import RequestContext
from martlet.broker.services import BrokerServices
from martlet.transactions.transaction_groups import OpenGroupWish
from martlet.wire.api_keys import ApiKey
from martlet.wire.messages.open_transaction_group import OpenTransactionGroupRequest, OpenTransactionGroupResponse

KEY: Final = ApiKey.OPEN_TRANSACTION_GROUP
VERSIONS: Final = (0, 0)
REQUEST: Final = OpenTransactionGroupRequest


async def handle(
    broker: BrokerServices, request: OpenTransactionGroupRequest, context: RequestContext
) -> OpenTransactionGroupResponse:
    """Have the run take over."""
    wish = OpenGroupWish(
        request.group, request.run_id, request.place, request.next_sequence, request.start_over, request.take_over
    )
    try:
        opened = await broker.transactions.coordinator.open_group(wish)
    except ApiError as error:
        return OpenTransactionGroupResponse(error_code=error.code, error_message=error.detail)
    return OpenTransactionGroupResponse(
        producer_id=opened.token.id,
        producer_epoch=opened.token.epoch,
        last_sequence=opened.progress.last_sequence,
        decided_by=opened.progress.decided_by,
        note=opened.progress.note,
    )
