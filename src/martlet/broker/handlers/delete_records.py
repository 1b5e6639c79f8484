"""DeleteRecords 0–2: forget everything before an offset; -1 means everything committed so far.

The new start is durable before the answer, so that a restart does not bring deleted records back. The followers in sync
learn of it with their fetches and are waited for, within the request's timeout, so that a new leader does not either.
"""

import asyncio
from typing import Final

from martlet.base.errors import ApiError, ErrorCode
from martlet.broker.ground.request import RequestContext
from martlet.broker.services import BrokerServices
from martlet.broker.serving.turns import Repeats, in_turns
from martlet.wire.api_keys import ApiKey
from martlet.wire.messages.delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsPartitionResult,
    DeleteRecordsRequest,
    DeleteRecordsResponse,
    DeleteRecordsTopicResult,
)

KEY: Final = ApiKey.DELETE_RECORDS
VERSIONS: Final = (0, 2)
REQUEST: Final = DeleteRecordsRequest

_UP_TO_HIGH_WATERMARK: Final = -1


async def handle(
    broker: BrokerServices, request: DeleteRecordsRequest, context: RequestContext
) -> DeleteRecordsResponse:
    """Advance every partition's start, then make the starts durable once."""
    deadline = asyncio.get_running_loop().time() + max(request.timeout_ms, 0) / 1000
    repeats = Repeats((topic.name, asked.partition_index) for topic in request.topics for asked in topic.partitions)
    topics = []
    for topic in request.topics:
        results = [_delete(broker, topic.name, asked, repeats) async for asked in in_turns(topic.partitions)]
        topics.append(DeleteRecordsTopicResult(name=topic.name, partitions=results))
    done = [(topic.name, one.partition_index) for topic in topics for one in topic.partitions if not one.error_code]
    await broker.partitions.flusher.flush_all([broker.partitions.get(*name) for name in done])
    await broker.checkpoint()
    for answered in topics:
        for result in answered.partitions:
            if not result.error_code:
                await _wait_for_followers(broker, answered.name, result, deadline)
    return DeleteRecordsResponse(topics=topics)


async def _wait_for_followers(
    broker: BrokerServices, topic: str, result: DeleteRecordsPartitionResult, deadline: float
) -> None:
    """Return when every follower in sync has the new start too, with an error in the result if that takes too long."""
    try:
        partition = broker.partitions.get(topic, result.partition_index)
        if partition.check_leading().all_start_at(result.low_watermark):
            return
        changed = asyncio.Event()
        partition.watermarks.readers.add(changed.set)
        try:
            async with asyncio.timeout_at(deadline):
                while not partition.check_leading().all_start_at(result.low_watermark):
                    changed.clear()
                    await changed.wait()
        finally:
            partition.watermarks.readers.remove(changed.set)
    except TimeoutError:
        result.error_code = ErrorCode.REQUEST_TIMED_OUT
    except ApiError as error:
        result.error_code = error.code


def _delete(
    broker: BrokerServices, topic: str, asked: DeleteRecordsPartition, repeats: Repeats
) -> DeleteRecordsPartitionResult:
    index = asked.partition_index
    try:
        repeats.check((topic, index))
        record = broker.image.topic(topic)
        if record is not None and record.internal:
            raise ApiError(ErrorCode.INVALID_TOPIC_EXCEPTION, f"{topic} is internal")
        broker.partitions.check_acting()
        partition = broker.partitions.get(topic, index)
        partition.check_online()
        if not partition.log.options.delete:
            raise ApiError(ErrorCode.POLICY_VIOLATION, f"{topic} is only compacted; its records are not deleted")
        offset = partition.high_watermark if asked.offset == _UP_TO_HIGH_WATERMARK else asked.offset
        if not 0 <= offset <= partition.high_watermark:
            raise ApiError(ErrorCode.OFFSET_OUT_OF_RANGE)
        partition.log.advance_log_start(offset)
        partition.watermarks.wake()
    except ApiError as error:
        return DeleteRecordsPartitionResult(partition_index=index, low_watermark=-1, error_code=error.code)
    return DeleteRecordsPartitionResult(partition_index=index, low_watermark=partition.log.log_start_offset)
