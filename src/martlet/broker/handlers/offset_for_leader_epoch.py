"""OffsetForLeaderEpoch 2–4: where an epoch ended, so that a client can see whether what it has read was truncated.

Answers with the largest epoch not above the one asked for and its end offset; (-1, -1) when there is none.
"""

from typing import Final

from martlet.base.errors import ApiError
from martlet.broker.ground.request import RequestContext
from martlet.broker.services import BrokerServices
from martlet.wire.api_keys import ApiKey
from martlet.wire.messages.offset_for_leader_epoch import (
    EpochEndOffset,
    OffsetForLeaderEpochRequest,
    OffsetForLeaderEpochResponse,
    OffsetForLeaderPartition,
    OffsetForLeaderTopicResult,
)

KEY: Final = ApiKey.OFFSET_FOR_LEADER_EPOCH
VERSIONS: Final = (2, 4)
REQUEST: Final = OffsetForLeaderEpochRequest


def handle(
    broker: BrokerServices, request: OffsetForLeaderEpochRequest, context: RequestContext
) -> OffsetForLeaderEpochResponse:
    """Answer for every partition."""
    return OffsetForLeaderEpochResponse(
        topics=[
            OffsetForLeaderTopicResult(
                topic=topic.topic, partitions=[_answer(broker, topic.topic, asked) for asked in topic.partitions]
            )
            for topic in request.topics
        ]
    )


def _answer(broker: BrokerServices, topic: str, asked: OffsetForLeaderPartition) -> EpochEndOffset:
    try:
        broker.partitions.check_acting()
        partition = broker.partitions.get(topic, asked.partition)
        partition.check_online()
        partition.check_leader_epoch(asked.current_leader_epoch)
        partition.check_history()
    except ApiError as error:
        return EpochEndOffset(error_code=error.code, partition=asked.partition)
    epoch, end_offset = partition.log.epochs.end_offset_for(asked.leader_epoch, log_end_offset=partition.log.end_offset)
    return EpochEndOffset(partition=asked.partition, leader_epoch=epoch, end_offset=end_offset)
