"""ListOffsets 1–11: offsets by timestamp and by the special timestamps.

-1 latest (high watermark, or last stable offset for isolation level 1) · -2 earliest · -3 the record with the largest
timestamp (v7) · -4 earliest on this disk (v8; the same as -2 here) · -5 last moved to tiered storage (v9; none here) ·
-6 earliest not yet moved (v11; none here) · ≥ 0 the first record at or after that time, or offset -1 without an error
when there is none. v2 isolation level: what is at or above the last stable offset is not found by a reader of committed
data; v4 leader epochs, v10 a timeout, which never matters because nothing here waits.
A leader that was just elected may not know yet how much its predecessor has committed; until it does, all but the
earliest offsets are refused with OFFSET_NOT_AVAILABLE (v5) or LEADER_NOT_AVAILABLE.
"""

from typing import Final

from martlet.base.errors import ApiError, ErrorCode, StorageFailure
from martlet.base.ids import NO_LEADER_EPOCH, NO_OFFSET
from martlet.broker.ground.request import RequestContext
from martlet.broker.partitions.partition import Partition
from martlet.broker.services import BrokerServices
from martlet.broker.serving.turns import Repeats, in_turns
from martlet.wire.api_keys import ApiKey
from martlet.wire.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsPartitionResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopicResponse,
)

KEY: Final = ApiKey.LIST_OFFSETS
VERSIONS: Final = (1, 11)
REQUEST: Final = ListOffsetsRequest

LATEST: Final = -1
EARLIEST: Final = -2
MAX_TIMESTAMP: Final = -3
EARLIEST_LOCAL: Final = -4
LATEST_TIERED: Final = -5
EARLIEST_PENDING_UPLOAD: Final = -6

_FIRST_WITH_NOT_AVAILABLE: Final = 5
_FIRST_VERSION: Final = {MAX_TIMESTAMP: 7, EARLIEST_LOCAL: 8, LATEST_TIERED: 9, EARLIEST_PENDING_UPLOAD: 11}


async def handle(broker: BrokerServices, request: ListOffsetsRequest, context: RequestContext) -> ListOffsetsResponse:
    """Answer for every partition; one that fails does not harm the others."""
    repeats = Repeats((topic.name, asked.partition_index) for topic in request.topics for asked in topic.partitions)
    topics = []
    for topic in request.topics:
        found = [
            _answer(broker, topic.name, asked, request.isolation_level, context.version, repeats)
            async for asked in in_turns(topic.partitions)
        ]
        topics.append(ListOffsetsTopicResponse(name=topic.name, partitions=found))
    return ListOffsetsResponse(topics=topics)


def _answer(
    broker: BrokerServices, topic: str, asked: ListOffsetsPartition, isolation: int, version: int, repeats: Repeats
) -> ListOffsetsPartitionResponse:
    try:
        repeats.check((topic, asked.partition_index))
        broker.partitions.check_acting()
        partition = broker.partitions.get(topic, asked.partition_index)
        partition.check_online()
        partition.check_leader_epoch(asked.current_leader_epoch)
        timestamp, offset, epoch = _look_up(broker, partition, asked.timestamp, isolation, version)
    except ApiError as error:
        return ListOffsetsPartitionResponse(partition_index=asked.partition_index, error_code=error.code)
    return ListOffsetsPartitionResponse(
        partition_index=asked.partition_index, timestamp=timestamp, offset=offset, leader_epoch=epoch
    )


def _look_up(
    broker: BrokerServices, partition: Partition, timestamp: int, isolation: int, version: int
) -> tuple[int, int, int]:
    try:
        return look_up(partition, timestamp, isolation, version)
    except StorageFailure as failure:
        raise ApiError(broker.partitions.damage.read_failed(partition, failure), str(failure)) from failure


def look_up(partition: Partition, timestamp: int, isolation: int, version: int) -> tuple[int, int, int]:
    """(timestamp, offset, leader epoch) for one question."""
    log = partition.log
    end = partition.watermarks.readable_end(isolation)
    if timestamp < 0 and version < _FIRST_VERSION.get(timestamp, 0):
        raise ApiError(ErrorCode.UNSUPPORTED_VERSION)
    if timestamp == LATEST:
        check_knows_latest(partition, version)
        return -1, end, partition.leader_epoch
    if timestamp in (EARLIEST, EARLIEST_LOCAL):
        start = log.log_start_offset
        return -1, start, log.epochs.epoch_at(start)
    if timestamp in (LATEST_TIERED, EARLIEST_PENDING_UPLOAD):
        return -1, NO_OFFSET, NO_LEADER_EPOCH
    check_knows_latest(partition, version)
    if timestamp == MAX_TIMESTAMP:
        found = log.times_below(end).latest()
    elif timestamp >= 0:
        found = log.times_below(end).first_at(timestamp)
    else:
        raise ApiError(ErrorCode.INVALID_REQUEST, f"timestamp {timestamp} has no meaning")
    if found is None:
        return -1, NO_OFFSET, NO_LEADER_EPOCH
    return found.timestamp_ms, found.offset, found.leader_epoch


def check_knows_latest(partition: Partition, version: int) -> None:
    """Raise while the high watermark may be older than that of the leader before."""
    leader = partition.leader
    if leader is not None and not leader.high_watermark_is_current:
        is_known = version >= _FIRST_WITH_NOT_AVAILABLE
        raise ApiError(ErrorCode.OFFSET_NOT_AVAILABLE if is_known else ErrorCode.LEADER_NOT_AVAILABLE)
