"""ReadShareGroupStateSummary 0-1: another broker asks where a share group stands in partitions led here."""

from typing import Final

from martlet.base.errors import ApiError
from martlet.base.ids import TopicId
from martlet.broker.ground.request import RequestContext
from martlet.broker.services import BrokerServices
from martlet.queues.share.sessions import SharePartition
from martlet.wire.api_keys import ApiKey
from martlet.wire.messages.read_share_group_state_summary import (
    PartitionResult,
    ReadShareGroupStateSummaryRequest,
    ReadShareGroupStateSummaryResponse,
    ReadStateSummaryResult,
)

KEY: Final = ApiKey.READ_SHARE_GROUP_STATE_SUMMARY
VERSIONS: Final = (0, 1)
REQUEST: Final = ReadShareGroupStateSummaryRequest

_INT32_MAX: Final = (1 << 31) - 1


def handle(
    broker: BrokerServices, request: ReadShareGroupStateSummaryRequest, context: RequestContext
) -> ReadShareGroupStateSummaryResponse:
    """Of every partition asked for."""
    return ReadShareGroupStateSummaryResponse(
        [
            ReadStateSummaryResult(
                topic.topic_id,
                [
                    _read(broker, request.group_id, SharePartition(TopicId(topic.topic_id), one.partition))
                    for one in topic.partitions
                ],
            )
            for topic in request.topics
        ]
    )


def _read(broker: BrokerServices, group_id: str, partition: SharePartition) -> PartitionResult:
    standing = broker.share.standings.read_here(group_id, partition)
    if isinstance(standing, ApiError):
        return PartitionResult(partition.partition, standing.code, standing.detail, start_offset=-1)
    return PartitionResult(
        partition.partition,
        leader_epoch=standing.leader_epoch,
        start_offset=standing.start,
        delivery_complete_count=min(standing.finished, _INT32_MAX),
    )
