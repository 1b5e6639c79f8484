"""ShareGroupDescribe 1: members, epochs and assignments of share groups.

Each group has an answer of its own, GROUP_ID_NOT_FOUND for one that does not exist or is of another kind; a group
named several times is described once. The operations that the client is allowed are named on
request, but not with an error.
"""

from typing import Final

from martlet.broker.coordinators.group_requests import call_group, caller_of
from martlet.broker.ground.request import RequestContext
from martlet.broker.services import BrokerServices
from martlet.broker.serving.turns import in_turns
from martlet.groups.ports import Caller
from martlet.wire.api_keys import ApiKey
from martlet.wire.messages.authorized_operations import GROUP_OPERATIONS
from martlet.wire.messages.share_group_describe import (
    DescribedGroup,
    ShareGroupDescribeRequest,
    ShareGroupDescribeResponse,
)

KEY: Final = ApiKey.SHARE_GROUP_DESCRIBE
VERSIONS: Final = (1, 1)
REQUEST: Final = ShareGroupDescribeRequest


async def handle(
    broker: BrokerServices, request: ShareGroupDescribeRequest, context: RequestContext
) -> ShareGroupDescribeResponse:
    """Describe every group asked for."""
    caller = caller_of(context)
    group_ids = dict.fromkeys(request.group_ids)
    groups = [
        await _describe(broker, group_id, caller, request.include_authorized_operations)
        async for group_id in in_turns(group_ids)
    ]
    return ShareGroupDescribeResponse(groups=groups)


async def _describe(broker: BrokerServices, group_id: str, caller: Caller, with_operations: bool) -> DescribedGroup:
    group = await call_group(
        broker.groups,
        group_id,
        lambda machine, now_ms: machine.describe_share_group(group_id, caller, now_ms),
        lambda error: DescribedGroup(error_code=error.code, error_message=error.detail, group_id=group_id),
    )
    if with_operations and not group.error_code:
        group.authorized_operations = GROUP_OPERATIONS
    return group
