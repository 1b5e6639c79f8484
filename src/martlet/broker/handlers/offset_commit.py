"""OffsetCommit 2–10: a group remembers how far it has read.

- Answered when the offsets are as durable as the topic's flush mode says (with one replica: on the device).
- Topics and partitions that do not exist are refused each for itself (v10, by id: UNKNOWN_TOPIC_ID); what is wrong
  with the group or the member stands in every partition.
- A commit of more than 2,000 partitions is carried out in parts, each of which is stored whole or not at all.
"""

import asyncio
from functools import partial
from typing import Final

from martlet.base.errors import ApiError
from martlet.broker.coordinators.group_requests import call_group, caller_of, in_pieces
from martlet.broker.ground.request import RequestContext
from martlet.broker.services import BrokerServices
from martlet.groups.ports import Caller
from martlet.wire.api_keys import ApiKey
from martlet.wire.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
    OffsetCommitResponsePartition,
    OffsetCommitResponseTopic,
)

KEY: Final = ApiKey.OFFSET_COMMIT
VERSIONS: Final = (2, 10)
REQUEST: Final = OffsetCommitRequest


async def handle(broker: BrokerServices, request: OffsetCommitRequest, context: RequestContext) -> OffsetCommitResponse:
    """Commit, piece by piece where there is much."""
    caller = caller_of(context)
    answers: dict[int, OffsetCommitResponseTopic] = {}
    pieces = in_pieces([(number, topic.partitions) for number, topic in enumerate(request.topics)])
    for piece in pieces:
        part = [
            OffsetCommitRequestTopic(topic.name, topic.topic_id, topic.partitions[start:end])
            for topic, start, end in ((request.topics[number], start, end) for number, start, end in piece)
        ]
        if answers:
            await asyncio.sleep(0)
        response = await _commit(broker, request, part, caller)
        for (number, _, _), answer in zip(piece, response.topics, strict=True):
            if number in answers:
                answers[number].partitions += answer.partitions
            else:
                answers[number] = answer
    return OffsetCommitResponse(topics=list(answers.values()))


async def _commit(
    broker: BrokerServices, request: OffsetCommitRequest, topics: list[OffsetCommitRequestTopic], caller: Caller
) -> OffsetCommitResponse:
    part = OffsetCommitRequest(
        request.group_id,
        request.generation_id_or_member_epoch,
        request.member_id,
        request.group_instance_id,
        request.retention_time_ms,
        topics,
    )
    return await call_group(
        broker.groups,
        request.group_id,
        lambda machine, now_ms: machine.offset_commit(part, caller, now_ms),
        partial(_refused, topics),
    )


def _refused(topics: list[OffsetCommitRequestTopic], error: ApiError) -> OffsetCommitResponse:
    return OffsetCommitResponse(
        topics=[
            OffsetCommitResponseTopic(
                topic.name,
                topic.topic_id,
                [OffsetCommitResponsePartition(asked.partition_index, error.code) for asked in topic.partitions],
            )
            for topic in topics
        ]
    )
