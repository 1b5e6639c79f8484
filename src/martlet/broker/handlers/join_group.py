"""JoinGroup 0–9: a member enters a classic group, or comes back for the next generation.

The answer may take as long as the group's rebalance; until then the connection answers nothing else, as with Kafka.
"""

from typing import Final

from martlet.broker.coordinators.group_requests import call_group, caller_of
from martlet.broker.ground.request import RequestContext
from martlet.broker.services import BrokerServices
from martlet.wire.api_keys import ApiKey
from martlet.wire.messages.join_group import JoinGroupRequest, JoinGroupResponse

KEY: Final = ApiKey.JOIN_GROUP
VERSIONS: Final = (0, 9)
REQUEST: Final = JoinGroupRequest

_FIRST_VERSION_WITHOUT_PROTOCOL: Final = 7


async def handle(broker: BrokerServices, request: JoinGroupRequest, context: RequestContext) -> JoinGroupResponse:
    """Ask the group to take the member in."""
    caller = caller_of(context)
    protocol_name = None if context.version >= _FIRST_VERSION_WITHOUT_PROTOCOL else ""
    return await call_group(
        broker.groups,
        request.group_id,
        lambda machine, now_ms: machine.join_group(request, caller, now_ms),
        lambda error: JoinGroupResponse(
            error_code=error.code, protocol_name=protocol_name, member_id=request.member_id
        ),
    )
