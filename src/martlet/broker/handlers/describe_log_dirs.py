"""DescribeLogDirs 1–5: the data directory, its space, and every replica in it that was asked for (null: all).

- A partition with one replica has no log before it is first used; it lies here all the same, with size 0. One whose log
  cannot be opened is left out: nothing true can be said of it.
- The lag of a follower is how many committed messages its replica lacks; a leader has none.
- v4 adds the size of the volume and what is free; v5 cordoning, which does not exist here.
"""

import shutil
from collections.abc import AsyncIterator
from typing import Final

from martlet.base.errors import ErrorCode
from martlet.base.ids import TopicPartition
from martlet.broker.ground.request import RequestContext
from martlet.broker.partitions.partition import Partition
from martlet.broker.services import BrokerServices
from martlet.broker.serving.turns import in_turns
from martlet.wire.api_keys import ApiKey
from martlet.wire.messages.describe_log_dirs import (
    DescribeLogDirsPartition,
    DescribeLogDirsRequest,
    DescribeLogDirsResponse,
    DescribeLogDirsResult,
    DescribeLogDirsTopic,
)

KEY: Final = ApiKey.DESCRIBE_LOG_DIRS
VERSIONS: Final = (1, 5)
REQUEST: Final = DescribeLogDirsRequest


async def handle(
    broker: BrokerServices, request: DescribeLogDirsRequest, context: RequestContext
) -> DescribeLogDirsResponse:
    """Sizes as the logs know them; no file is read."""
    topics: dict[str, DescribeLogDirsTopic] = {}
    async for name in _replicas(broker, request):
        partition = _describe(broker, name)
        topics.setdefault(name.topic, DescribeLogDirsTopic(name=name.topic)).partitions.append(partition)
    result = DescribeLogDirsResult(log_dir=broker.logs.path, topics=list(topics.values()))
    try:
        usage = shutil.disk_usage(broker.logs.path)
        result.total_bytes, result.usable_bytes = usage.total, usage.free
    except OSError:
        result.error_code = ErrorCode.KAFKA_STORAGE_ERROR
    return DescribeLogDirsResponse(results=[result])


async def _replicas(broker: BrokerServices, request: DescribeLogDirsRequest) -> AsyncIterator[TopicPartition]:
    """The partitions asked for that have a usable replica on this broker, in order."""
    if request.topics is None:
        names = [
            TopicPartition(topic.name, index)
            for topic in broker.image.topics()
            for index in range(topic.partition_count)
        ]
    else:
        names = sorted({TopicPartition(topic.topic, index) for topic in request.topics for index in topic.partitions})
    async for name in in_turns(names):
        record = broker.image.partition(*name)
        if record is not None and broker.broker_id in record.replicas and not broker.partitions.log_failed(*name):
            yield name


def _describe(broker: BrokerServices, name: TopicPartition) -> DescribeLogDirsPartition:
    log, replica = broker.logs.get(name), broker.partitions.hosted(*name)
    return DescribeLogDirsPartition(
        partition_index=name.partition,
        partition_size=log.segments.size_bytes() if log is not None else 0,
        offset_lag=_lag(replica),
    )


def _lag(replica: Partition | None) -> int:
    """How many committed messages a replica lacks, while it follows."""
    follower = replica.follower if replica is not None else None
    return follower.lag(replica.followed_log) if replica is not None and follower is not None else 0
