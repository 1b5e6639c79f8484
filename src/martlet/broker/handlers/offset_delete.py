"""OffsetDelete 0: forget what a group has committed for some partitions.

Refused for topics that members of the group are subscribed to (GROUP_SUBSCRIBED_TO_TOPIC). What is wrong with the group
stands for the whole answer.
"""

from typing import Final

from martlet.broker.coordinators.group_requests import call_group, caller_of
from martlet.broker.ground.request import RequestContext
from martlet.broker.services import BrokerServices
from martlet.wire.api_keys import ApiKey
from martlet.wire.messages.offset_delete import OffsetDeleteRequest, OffsetDeleteResponse

KEY: Final = ApiKey.OFFSET_DELETE
VERSIONS: Final = (0, 0)
REQUEST: Final = OffsetDeleteRequest


async def handle(broker: BrokerServices, request: OffsetDeleteRequest, context: RequestContext) -> OffsetDeleteResponse:
    """Forget the offsets."""
    caller = caller_of(context)
    return await call_group(
        broker.groups,
        request.group_id,
        lambda machine, now_ms: machine.offset_delete(request, caller, now_ms),
        lambda error: OffsetDeleteResponse(error_code=error.code),
    )
