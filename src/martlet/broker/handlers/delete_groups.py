"""DeleteGroups 0–2: forget groups without members, and their offsets. Each group has an answer of its own."""

from typing import Final

from martlet.base.errors import ApiError
from martlet.broker.ground.request import RequestContext
from martlet.broker.services import BrokerServices
from martlet.broker.serving.turns import in_turns
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
        result = await broker.groups.call(group_id, lambda machine, now_ms: machine.delete_group(group_id, now_ms))
    except ApiError as error:
        return _refused(group_id, error)
    return result


def _refused(group_id: str, error: ApiError) -> DeletableGroupResult:
    return DeletableGroupResult(group_id, error.code)
