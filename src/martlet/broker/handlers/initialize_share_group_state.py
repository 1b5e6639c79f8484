"""InitializeShareGroupState 0: another broker has a share group go on at other offsets in partitions led here.

The group has no members: the broker that asks coordinates it and has made sure of that.
"""

from typing import Final

from martlet.base.errors import ErrorCode
from martlet.base.ids import TopicId
from martlet.broker.ground.request import RequestContext
from martlet.broker.services import BrokerServices
from martlet.queues.share.sessions import SharePartition
from martlet.wire.api_keys import ApiKey
from martlet.wire.messages.initialize_share_group_state import (
    InitializeShareGroupStateRequest,
    InitializeShareGroupStateResponse,
    InitializeStateResult,
    PartitionData,
    PartitionResult,
)

KEY: Final = ApiKey.INITIALIZE_SHARE_GROUP_STATE
VERSIONS: Final = (0, 0)
REQUEST: Final = InitializeShareGroupStateRequest


async def handle(
    broker: BrokerServices, request: InitializeShareGroupStateRequest, context: RequestContext
) -> InitializeShareGroupStateResponse:
    """One partition after the other."""
    return InitializeShareGroupStateResponse(
        [
            InitializeStateResult(
                topic.topic_id,
                [await _move(broker, request.group_id, TopicId(topic.topic_id), one) for one in topic.partitions],
            )
            for topic in request.topics
        ]
    )


async def _move(broker: BrokerServices, group_id: str, topic_id: TopicId, asked: PartitionData) -> PartitionResult:
    partition = SharePartition(topic_id, asked.partition)
    error = await broker.share.standings.move_here(group_id, partition, asked.start_offset)
    if error is None:
        return PartitionResult(asked.partition, ErrorCode.NONE)
    return PartitionResult(asked.partition, error.code, error.detail)
