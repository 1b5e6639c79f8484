"""AlterShareGroupOffsets 0: move a share group without members to other offsets.

Each partition has an answer of its own, given when the move is committed at the partition's leader. An offset that the
log does not have is OFFSET_OUT_OF_RANGE.
"""

from typing import Final

from martlet.base.errors import ApiError, ErrorCode
from martlet.broker.ground.request import RequestContext
from martlet.broker.services import BrokerServices
from martlet.groups.share.standing import check_movable, know_partitions
from martlet.queues.share.sessions import SharePartition
from martlet.wire.api_keys import ApiKey
from martlet.wire.messages.alter_share_group_offsets import (
    AlterShareGroupOffsetsRequest,
    AlterShareGroupOffsetsRequestTopic,
    AlterShareGroupOffsetsResponse,
    AlterShareGroupOffsetsResponsePartition,
    AlterShareGroupOffsetsResponseTopic,
)

KEY: Final = ApiKey.ALTER_SHARE_GROUP_OFFSETS
VERSIONS: Final = (0, 0)
REQUEST: Final = AlterShareGroupOffsetsRequest


async def handle(
    broker: BrokerServices, request: AlterShareGroupOffsetsRequest, context: RequestContext
) -> AlterShareGroupOffsetsResponse:
    """Of one group."""
    from martlet.groups.share.records import TopicPartitions

    group_id = request.group_id
    wanted: list[TopicPartitions] = []
    starts: dict[SharePartition, int] = {}
    for topic in request.topics:
        record = broker.image.topic(topic.topic_name)
        if record is not None:
            indexes = {
                part.partition_index for part in topic.partitions if part.partition_index < record.partition_count
            }
            wanted.append(TopicPartitions(record.id, record.name, tuple(sorted(indexes))))
            starts.update(
                (SharePartition(record.id, part.partition_index), part.start_offset) for part in topic.partitions
            )
    try:
        await broker.groups.call(group_id, lambda machine, now_ms: check_movable(machine.share, group_id))
        await broker.queues.ensure(group_id, [topic.topic_id for topic in wanted])
        outcome = await broker.share.standings.move(group_id, starts)
        await broker.groups.call(group_id, lambda machine, now_ms: know_partitions(machine.share, group_id, wanted))
    except ApiError as error:
        return AlterShareGroupOffsetsResponse(error_code=error.code, error_message=error.detail)
    return AlterShareGroupOffsetsResponse(responses=[_answer(broker, topic, outcome) for topic in request.topics])


def _answer(
    broker: BrokerServices,
    asked: AlterShareGroupOffsetsRequestTopic,
    outcome: dict[SharePartition, ApiError | None],
) -> AlterShareGroupOffsetsResponseTopic:
    record = broker.image.topic(asked.topic_name)
    partitions = []
    for part in asked.partitions:
        index = part.partition_index
        error: ApiError | None = ApiError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        if record is not None:
            error = outcome.get(SharePartition(record.id, index), error)
        code, detail = (ErrorCode.NONE, None) if error is None else (error.code, error.detail)
        partitions.append(AlterShareGroupOffsetsResponsePartition(index, code, detail))
    return AlterShareGroupOffsetsResponseTopic(
        asked.topic_name, record.id if record is not None else bytes(16), partitions
    )
