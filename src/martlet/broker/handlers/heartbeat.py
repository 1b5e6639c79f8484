"""Heartbeat 0–4: a member of a classic group says that it lives, and learns whether it must join again.

- While its group is being loaded a member gets no error, as in Kafka: aiokafka gives up for good otherwise.
"""

from typing import Final

from martlet.base.errors import ApiError, ErrorCode
from martlet.broker.coordinators.group_requests import call_group, caller_of
from martlet.broker.ground.request import RequestContext
from martlet.broker.services import BrokerServices
from martlet.wire.api_keys import ApiKey
from martlet.wire.messages.heartbeat import HeartbeatRequest, HeartbeatResponse

KEY: Final = ApiKey.HEARTBEAT
VERSIONS: Final = (0, 4)
REQUEST: Final = HeartbeatRequest


async def handle(broker: BrokerServices, request: HeartbeatRequest, context: RequestContext) -> HeartbeatResponse:
    """Keep the member's session alive."""
    caller = caller_of(context)
    return await call_group(
        broker.groups,
        request.group_id,
        lambda machine, now_ms: machine.heartbeat(request, caller, now_ms),
        _refused,
    )


def _refused(error: ApiError) -> HeartbeatResponse:
    is_loading = error.code is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    return HeartbeatResponse(error_code=ErrorCode.NONE if is_loading else error.code)
