"""DescribeLogDirs 1–5: the data directory, its space, and the size of every partition asked for (null: all).

v4 adds the size of the volume and what is free; v5 cordoning, which does not exist here.
"""

import shutil
from typing import Final

from martlet.base.errors import ErrorCode
from martlet.base.ids import TopicPartition
from martlet.broker.services import BrokerServices
from martlet.broker.serving.request import RequestContext
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


def handle(broker: BrokerServices, request: DescribeLogDirsRequest, context: RequestContext) -> DescribeLogDirsResponse:
    """Sizes as the logs know them; no file is read."""
    wanted: set[TopicPartition] | None = None
    if request.topics is not None:
        wanted = {TopicPartition(topic.topic, index) for topic in request.topics for index in topic.partitions}
    by_topic: dict[str, DescribeLogDirsTopic] = {}
    for log in sorted(broker.logs, key=lambda log: log.partition):
        name = log.partition
        if wanted is not None and name not in wanted:
            continue
        topic = by_topic.setdefault(name.topic, DescribeLogDirsTopic(name=name.topic))
        topic.partitions.append(
            DescribeLogDirsPartition(partition_index=name.partition, partition_size=log.size_bytes, offset_lag=0)
        )
    result = DescribeLogDirsResult(log_dir=broker.logs.path, topics=list(by_topic.values()))
    try:
        usage = shutil.disk_usage(broker.logs.path)
        result.total_bytes, result.usable_bytes = usage.total, usage.free
    except OSError:
        result.error_code = ErrorCode.KAFKA_STORAGE_ERROR
    return DescribeLogDirsResponse(results=[result])
