"""ConsumerGroupHeartbeat 0–1: a member of a KIP-848 group joins, stays, confirms what it owns, and leaves.

v1 wants the member's id to be made by the client and allows a regular expression as subscription. Never parked: the
answer says what the member may own now.
"""

from typing import Final

from martlet.broker.coordinators.group_requests import call_group, caller_of
from martlet.broker.ground.request import RequestContext
from martlet.broker.services import BrokerServices
from martlet.wire.api_keys import ApiKey
from martlet.wire.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest, ConsumerGroupHeartbeatResponse

KEY: Final = ApiKey.CONSUMER_GROUP_HEARTBEAT
VERSIONS: Final = (0, 1)
REQUEST: Final = ConsumerGroupHeartbeatRequest


async def handle(
    broker: BrokerServices, request: ConsumerGroupHeartbeatRequest, context: RequestContext
) -> ConsumerGroupHeartbeatResponse:
    """One heartbeat."""
    caller = caller_of(context)
    return await call_group(
        broker.groups,
        request.group_id,
        lambda machine, now_ms: machine.consumer_group_heartbeat(request, caller, now_ms),
        lambda error: ConsumerGroupHeartbeatResponse(error_code=error.code, error_message=error.detail),
    )
