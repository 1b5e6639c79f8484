"""DeleteShareGroupOffsets 0: forget where a share group without members stands in some topics.

Each topic has an answer of its own. When the group comes back to one it begins where its setting says.
"""

from typing import Final

from martlet.base.errors import ApiError, ErrorCode
from martlet.broker.ground.request import RequestContext
from martlet.broker.services import BrokerServices
from martlet.groups.share.standing import check_movable, forget_topics
from martlet.wire.api_keys import ApiKey
from martlet.wire.messages.delete_share_group_offsets import (
    DeleteShareGroupOffsetsRequest,
    DeleteShareGroupOffsetsResponse,
    DeleteShareGroupOffsetsResponseTopic,
)

KEY: Final = ApiKey.DELETE_SHARE_GROUP_OFFSETS
VERSIONS: Final = (0, 0)
REQUEST: Final = DeleteShareGroupOffsetsRequest


async def handle(
    broker: BrokerServices, request: DeleteShareGroupOffsetsRequest, context: RequestContext
) -> DeleteShareGroupOffsetsResponse:
    """Of one group."""
    group_id = request.group_id
    topics = {
        name: record for topic in request.topics if (record := broker.image.topic(name := topic.topic_name)) is not None
    }
    try:
        known = await broker.groups.call(group_id, lambda machine, now_ms: check_movable(machine.share, group_id))
        gone = [record for record in topics.values() if record.id in known]
        if gone:
            await broker.queues.admin.remove_topics(group_id, [record.name for record in gone])
            ids = frozenset(record.id for record in gone)
            await broker.groups.call(group_id, lambda machine, now_ms: forget_topics(machine.share, group_id, ids))
    except ApiError as error:
        return DeleteShareGroupOffsetsResponse(error_code=error.code, error_message=error.detail)
    answers = []
    for name in dict.fromkeys(topic.topic_name for topic in request.topics):
        if name in topics:
            answers.append(DeleteShareGroupOffsetsResponseTopic(name, topics[name].id))
        else:
            code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            answers.append(DeleteShareGroupOffsetsResponseTopic(name, error_code=code))
    return DeleteShareGroupOffsetsResponse(responses=answers)
