"""DescribeTopicPartitions 0: topics page by page, sorted by name; an empty list asks for all.

The page ends after the number of partitions asked for (at most 2,000) and says where to go on. Eligible-leader
replicas are those that are not in sync and yet hold everything acknowledged (KIP-966). The operations that the client
is allowed are always named.
"""

from typing import Final

from martlet.base.errors import ErrorCode
from martlet.broker.ground.request import RequestContext
from martlet.broker.handlers.metadata import describe_partition
from martlet.broker.routing.cluster_view import Present
from martlet.broker.services import BrokerServices
from martlet.cluster.records import PartitionRecord
from martlet.wire.api_keys import ApiKey
from martlet.wire.messages.authorized_operations import TOPIC_OPERATIONS
from martlet.wire.messages.describe_topic_partitions import (
    Cursor,
    DescribeTopicPartitionsRequest,
    DescribeTopicPartitionsResponse,
    DescribeTopicPartitionsResponsePartition,
    DescribeTopicPartitionsResponseTopic,
)

KEY: Final = ApiKey.DESCRIBE_TOPIC_PARTITIONS
VERSIONS: Final = (0, 0)
REQUEST: Final = DescribeTopicPartitionsRequest

_PARTITIONS_MAX: Final = 2000


def handle(
    broker: BrokerServices, request: DescribeTopicPartitionsRequest, context: RequestContext
) -> DescribeTopicPartitionsResponse:
    """One page of topics."""
    names = sorted({topic.name for topic in request.topics} or {topic.name for topic in broker.image.topics()})
    first_partition = 0
    if request.cursor is not None:
        start = request.cursor.topic_name
        names = [name for name in names if name >= start]
        first_partition = max(0, request.cursor.partition_index) if names and names[0] == start else 0
    allowed = min(max(1, request.response_partition_limit), _PARTITIONS_MAX)
    response = DescribeTopicPartitionsResponse()
    present = broker.cluster.possible_leaders(context.link)
    for name in names:
        if not allowed:
            response.next_cursor = Cursor(topic_name=name, partition_index=first_partition)
            break
        topic, left = _describe(broker, name, range(first_partition, first_partition + allowed), present)
        response.topics.append(topic)
        if left:
            response.next_cursor = Cursor(topic_name=name, partition_index=first_partition + len(topic.partitions))
            break
        allowed -= len(topic.partitions)
        first_partition = 0
    return response


def _describe(
    broker: BrokerServices, name: str, page: range, present: Present
) -> tuple[DescribeTopicPartitionsResponseTopic, bool]:
    """The topic with the partitions of this page, and whether some are left."""
    record = broker.image.topic(name)
    if record is None:
        unknown = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        topic = DescribeTopicPartitionsResponseTopic(
            error_code=unknown, name=name, topic_authorized_operations=TOPIC_OPERATIONS
        )
        return topic, False
    partitions = broker.image.partitions(name)
    topic = DescribeTopicPartitionsResponseTopic(
        name=name,
        topic_id=record.id,
        is_internal=record.internal,
        partitions=[_convert(partition, present) for partition in partitions[page.start : page.stop]],
        topic_authorized_operations=TOPIC_OPERATIONS,
    )
    return topic, page.stop < len(partitions)


def _convert(record: PartitionRecord, present: Present) -> DescribeTopicPartitionsResponsePartition:
    partition = describe_partition(record, present)
    return DescribeTopicPartitionsResponsePartition(
        error_code=partition.error_code,
        partition_index=partition.partition_index,
        leader_id=partition.leader_id,
        leader_epoch=partition.leader_epoch,
        replica_nodes=partition.replica_nodes,
        isr_nodes=partition.isr_nodes,
        eligible_leader_replicas=[member.broker for member in record.elr],
        # While there is a leader, no operator has to find out which replica holds what is left.
        last_known_elr=[member.broker for member in record.last_in_sync] if record.leader is None else [],
        offline_replicas=partition.offline_replicas,
    )
