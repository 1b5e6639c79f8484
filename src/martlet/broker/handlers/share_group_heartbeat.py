"""ShareGroupHeartbeat 1: a member of a share group joins, stays and leaves.

What a member is assigned holds at once. Before it is told, the group's subscription covers those topics, so that their
leaders know of it.
"""

from typing import Final

from martlet.base.errors import ApiError
from martlet.base.ids import TopicId
from martlet.broker.coordinators.group_requests import caller_of
from martlet.broker.ground.request import RequestContext
from martlet.broker.services import BrokerServices
from martlet.wire.api_keys import ApiKey
from martlet.wire.messages.share_group_heartbeat import ShareGroupHeartbeatRequest, ShareGroupHeartbeatResponse

KEY: Final = ApiKey.SHARE_GROUP_HEARTBEAT
VERSIONS: Final = (1, 1)
REQUEST: Final = ShareGroupHeartbeatRequest


async def handle(
    broker: BrokerServices, request: ShareGroupHeartbeatRequest, context: RequestContext
) -> ShareGroupHeartbeatResponse:
    """One heartbeat."""
    caller = caller_of(context)
    try:
        response = await broker.groups.call(
            request.group_id, lambda machine, now_ms: machine.share_group_heartbeat(request, caller, now_ms)
        )
        if response.assignment is not None and response.assignment.topic_partitions:
            topics = [TopicId(topic.topic_id) for topic in response.assignment.topic_partitions]
            await broker.queues.ensure(request.group_id, topics)
    except ApiError as error:
        return ShareGroupHeartbeatResponse(error_code=error.code, error_message=error.detail)
    return response
