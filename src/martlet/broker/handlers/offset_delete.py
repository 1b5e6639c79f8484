"""OffsetDelete 0: forget what a group has committed for some partitions.

Refused for topics that members of the group are subscribed to (GROUP_SUBSCRIBED_TO_TOPIC). What is wrong with the group
stands for the whole answer.
"""

from typing import Final

from martlet.base.errors import ApiError
from martlet.broker.coordinators.group_requests import caller_of
from martlet.broker.ground.request import RequestContext
from martlet.broker.services import BrokerServices
from martlet.wire.api_keys import ApiKey
from martlet.wire.messages.offset_delete import OffsetDeleteRequest, OffsetDeleteResponse

KEY: Final = ApiKey.OFFSET_DELETE
VERSIONS: Final = (0, 0)
REQUEST: Final = OffsetDeleteRequest


async def handle(broker: BrokerServices, request: OffsetDeleteRequest, context: RequestContext) -> object:
    """Forget the offsets."""
    caller = caller_of(context)
    try:
        return await broker.groups.call(
            request.group_id, lambda machine, now_ms: machine.offset_delete(request, caller, now_ms)
        )
    except ApiError as error:
        return _refused(error)


def _refused(error: ApiError) -> OffsetDeleteResponse:
    return OffsetDeleteResponse(error_code=error.code)
