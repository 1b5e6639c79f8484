"""DescribeShareGroupOffsets 0-1: where share groups stand in their partitions, and from v1 how much is left to do.

Each group has an answer of its own; without topics all partitions are meant in which the group may stand somewhere.
A partition in which it has not begun has start offset -1. The lag counts messages behind the start that are not
finished, leased ones included.
"""

from collections.abc import Mapping
from typing import Final

from martlet.base.errors import ApiError, ErrorCode
from martlet.base.ids import TopicId
from martlet.broker.ground.request import RequestContext
from martlet.broker.queueing.share_standings import Standing
from martlet.broker.services import BrokerServices
from martlet.groups.share.standing import known_partitions
from martlet.queues.share.sessions import SharePartition
from martlet.wire.api_keys import ApiKey
from martlet.wire.messages.describe_share_group_offsets import (
    DescribeShareGroupOffsetsRequest,
    DescribeShareGroupOffsetsRequestGroup,
    DescribeShareGroupOffsetsResponse,
    DescribeShareGroupOffsetsResponseGroup,
    DescribeShareGroupOffsetsResponsePartition,
    DescribeShareGroupOffsetsResponseTopic,
)

KEY: Final = ApiKey.DESCRIBE_SHARE_GROUP_OFFSETS
VERSIONS: Final = (0, 1)
REQUEST: Final = DescribeShareGroupOffsetsRequest


async def handle(
    broker: BrokerServices, request: DescribeShareGroupOffsetsRequest, context: RequestContext
) -> DescribeShareGroupOffsetsResponse:
    """Of every group asked for."""
    return DescribeShareGroupOffsetsResponse(groups=[await _describe(broker, group) for group in request.groups])


async def _describe(
    broker: BrokerServices, asked: DescribeShareGroupOffsetsRequestGroup
) -> DescribeShareGroupOffsetsResponseGroup:
    group_id = asked.group_id
    try:
        known = await broker.groups.call(group_id, lambda machine, now_ms: known_partitions(machine.share, group_id))
    except ApiError as error:
        return DescribeShareGroupOffsetsResponseGroup(group_id, [], error.code, error.detail)
    if asked.topics is None:
        wanted = [(entry.name, list(entry.partitions)) for entry in known.values()]
    else:
        wanted = [(topic.topic_name, topic.partitions) for topic in asked.topics]
    ids = {name: topic.id for name, _ in wanted if (topic := broker.image.topic(name)) is not None}
    begun = {SharePartition(entry.topic_id, index) for entry in known.values() for index in entry.partitions}
    named = [SharePartition(ids[name], index) for name, indexes in wanted if name in ids for index in indexes]
    found = await broker.share.standings.read(group_id, [one for one in named if one in begun])
    return DescribeShareGroupOffsetsResponseGroup(
        group_id, [_topic(name, ids.get(name), indexes, found) for name, indexes in wanted]
    )


def _topic(
    name: str, topic_id: TopicId | None, indexes: list[int], found: Mapping[SharePartition, Standing | ApiError]
) -> DescribeShareGroupOffsetsResponseTopic:
    partitions = []
    for index in indexes:
        standing: Standing | ApiError = Standing()
        if topic_id is None:
            standing = ApiError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"there is no topic {name[:249]!r}")
        else:
            standing = found.get(SharePartition(topic_id, index), standing)
        partitions.append(_partition(index, standing))
    return DescribeShareGroupOffsetsResponseTopic(name, topic_id or bytes(16), partitions)


def _partition(index: int, standing: Standing | ApiError) -> DescribeShareGroupOffsetsResponsePartition:
    if isinstance(standing, ApiError):
        return DescribeShareGroupOffsetsResponsePartition(
            index, -1, error_code=standing.code, error_message=standing.detail
        )
    return DescribeShareGroupOffsetsResponsePartition(index, standing.start, standing.leader_epoch, standing.lag)
