"""OffsetCommit 2–10: a group remembers how far it has read.

- Answered when the offsets are as durable as the topic's flush mode says (with one replica: on the device).
- Topics and partitions that do not exist are refused each for itself (v10, by id: UNKNOWN_TOPIC_ID); what is wrong
  with the group or the member stands in every partition.
- A commit of more than 2,000 partitions is carried out in parts, each of which is stored whole or not at all.
"""

from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import Final

from martlet.base.errors import ApiError
from martlet.broker.coordinators.group_requests import call_group, caller_of, carried_out_in_pieces
from martlet.broker.ground.request import RequestContext
from martlet.broker.services import BrokerServices
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

    async def commit(topics: list[OffsetCommitRequestTopic]) -> Sequence[OffsetCommitResponseTopic]:
        part = replace(request, topics=topics)
        response = await call_group(
            broker.groups,
            request.group_id,
            lambda machine, now_ms: machine.offset_commit(part, caller, now_ms),
            partial(_refused, topics),
        )
        return response.topics

    return OffsetCommitResponse(topics=await carried_out_in_pieces(request.topics, commit))


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
