"""Heartbeat 0–4: a member of a classic group says that it lives, and learns whether it must join again.

- While its group is being loaded a member is answered that all is well, as in Kafka: aiokafka gives up for good
otherwise.
"""

from typing import Final

from martlet.base.errors import ApiError, ErrorCode
from martlet.broker.coordinators.group_requests import caller_of
from martlet.broker.ground.request import RequestContext
from martlet.broker.services import BrokerServices
from martlet.wire.api_keys import ApiKey
from martlet.wire.messages.heartbeat import HeartbeatRequest, HeartbeatResponse

KEY: Final = ApiKey.HEARTBEAT
VERSIONS: Final = (0, 4)
REQUEST: Final = HeartbeatRequest


async def handle(broker: BrokerServices, request: HeartbeatRequest, context: RequestContext) -> object:
    """Keep the member's session alive."""
    caller = caller_of(context)
    try:
        return await broker.groups.call(
            request.group_id, lambda machine, now_ms: machine.heartbeat(request, caller, now_ms)
        )
    except ApiError as error:
        return _refused(error)


def _refused(error: ApiError) -> HeartbeatResponse:
    is_loading = error.code is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    return HeartbeatResponse(error_code=ErrorCode.NONE if is_loading else error.code)
