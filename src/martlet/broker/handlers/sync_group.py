"""SyncGroup 0–5: the leader of a classic group hands in the assignments, every member waits for its own."""

from typing import Final

from martlet.broker.coordinators.group_requests import call_group, caller_of
from martlet.broker.ground.request import RequestContext
from martlet.broker.services import BrokerServices
from martlet.wire.api_keys import ApiKey
from martlet.wire.messages.sync_group import SyncGroupRequest, SyncGroupResponse

KEY: Final = ApiKey.SYNC_GROUP
VERSIONS: Final = (0, 5)
REQUEST: Final = SyncGroupRequest


async def handle(broker: BrokerServices, request: SyncGroupRequest, context: RequestContext) -> SyncGroupResponse:
    """Give the member its assignment."""
    caller = caller_of(context)
    return await call_group(
        broker.groups,
        request.group_id,
        lambda machine, now_ms: machine.sync_group(request, caller, now_ms),
        lambda error: SyncGroupResponse(error_code=error.code),
    )
