"""Heartbeat 0–4: a member of a classic group says that it lives, and learns whether it must join again."""

from typing import Final

from martlet.base.errors import ApiError
from martlet.broker.coordinators.group_requests import caller_of
from martlet.broker.services import BrokerServices
from martlet.broker.serving.request import RequestContext
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
    return HeartbeatResponse(error_code=error.code)
