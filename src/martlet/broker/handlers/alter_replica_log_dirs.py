"""AlterReplicaLogDirs 1–2: keep replicas of this broker in another of its log directories; each broker has one.

What shall lie in that one does already. Any other directory is LOG_DIR_NOT_FOUND, whatever shall lie there; as in Kafka
its name must be written as DescribeLogDirs gives it, and for a partition named twice the last directory counts. In the
right directory a partition that is held by other brokers only is REPLICA_NOT_AVAILABLE.
"""

from typing import Final

from martlet.base.errors import ErrorCode
from martlet.base.ids import TopicPartition
from martlet.broker.ground.request import RequestContext
from martlet.broker.services import BrokerServices
from martlet.broker.serving.turns import in_turns
from martlet.wire.api_keys import ApiKey
from martlet.wire.messages.alter_replica_log_dirs import (
    AlterReplicaLogDirPartitionResult,
    AlterReplicaLogDirsRequest,
    AlterReplicaLogDirsResponse,
    AlterReplicaLogDirTopicResult,
)

KEY: Final = ApiKey.ALTER_REPLICA_LOG_DIRS
VERSIONS: Final = (1, 2)
REQUEST: Final = AlterReplicaLogDirsRequest


async def handle(
    broker: BrokerServices, request: AlterReplicaLogDirsRequest, context: RequestContext
) -> AlterReplicaLogDirsResponse:
    """Say of each partition whether it lies where it should."""
    wishes = {
        TopicPartition(topic.name, index): directory.path
        for directory in request.dirs
        for topic in directory.topics
        for index in topic.partitions
    }
    topics: dict[str, AlterReplicaLogDirTopicResult] = {}
    async for name, path in in_turns(wishes.items()):
        result = AlterReplicaLogDirPartitionResult(
            partition_index=name.partition, error_code=_check(broker, name, path)
        )
        topics.setdefault(name.topic, AlterReplicaLogDirTopicResult(topic_name=name.topic)).partitions.append(result)
    return AlterReplicaLogDirsResponse(results=list(topics.values()))


def _check(broker: BrokerServices, name: TopicPartition, path: str) -> ErrorCode:
    if path != broker.logs.path:
        return ErrorCode.LOG_DIR_NOT_FOUND
    record = broker.image.partition(*name)
    if record is None:
        return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    if broker.broker_id not in record.replicas:
        return ErrorCode.REPLICA_NOT_AVAILABLE
    return ErrorCode.KAFKA_STORAGE_ERROR if broker.partitions.log_failed(*name) else ErrorCode.NONE
