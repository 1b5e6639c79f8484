"""LeaveGroup 0–5: members leave a classic group, or an administrator removes them.

Until v2 a request names one member, and its error is the answer's; from v3 on each member has an answer of its own.
"""

from typing import Final

from martlet.broker.coordinators.group_requests import call_group, caller_of
from martlet.broker.ground.request import RequestContext
from martlet.broker.services import BrokerServices
from martlet.wire.api_keys import ApiKey
from martlet.wire.messages.leave_group import LeaveGroupRequest, LeaveGroupResponse

KEY: Final = ApiKey.LEAVE_GROUP
VERSIONS: Final = (0, 5)
REQUEST: Final = LeaveGroupRequest


async def handle(broker: BrokerServices, request: LeaveGroupRequest, context: RequestContext) -> LeaveGroupResponse:
    """Let the members go."""
    caller = caller_of(context)
    return await call_group(
        broker.groups,
        request.group_id,
        lambda machine, now_ms: machine.leave_group(request, caller, now_ms),
        lambda error: LeaveGroupResponse(error_code=error.code),
    )
