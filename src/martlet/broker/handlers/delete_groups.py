"""DeleteGroups 0–2: forget groups without members, and their offsets. Each group has an answer of its own.

With a share group goes its subscription, and with that what is known of its messages.
"""

from typing import Final

from martlet.base.errors import ApiError, ErrorCode
from martlet.broker.coordinators.group_requests import call_group
from martlet.broker.ground.request import RequestContext
from martlet.broker.services import BrokerServices
from martlet.broker.serving.turns import in_turns
from martlet.groups.share.standing import is_deletable
from martlet.wire.api_keys import ApiKey
from martlet.wire.messages.delete_groups import DeletableGroupResult, DeleteGroupsRequest, DeleteGroupsResponse

KEY: Final = ApiKey.DELETE_GROUPS
VERSIONS: Final = (0, 2)
REQUEST: Final = DeleteGroupsRequest


async def handle(broker: BrokerServices, request: DeleteGroupsRequest, context: RequestContext) -> DeleteGroupsResponse:
    """Delete every group asked for; one named several times is deleted once."""
    group_ids = dict.fromkeys(request.groups_names)
    return DeleteGroupsResponse(results=[await _delete(broker, group_id) async for group_id in in_turns(group_ids)])


async def _delete(broker: BrokerServices, group_id: str) -> DeletableGroupResult:
    try:
        if await broker.groups.call(group_id, lambda machine, now_ms: is_deletable(machine.share, group_id)):
            await broker.queues.admin.delete(group_id)
    except ApiError as error:
        if error.code is not ErrorCode.GROUP_ID_NOT_FOUND:
            return DeletableGroupResult(group_id, error.code)
    return await call_group(
        broker.groups,
        group_id,
        lambda machine, now_ms: machine.delete_group(group_id, now_ms),
        lambda error: DeletableGroupResult(group_id, error.code),
    )
