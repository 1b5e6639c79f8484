"""Metadata 0–13: brokers, topics, leaders; topics are created on first mention where that is allowed.

- v0: an empty list asks for all topics; v1+: null does, and an empty list asks for none. v7 leader epochs, v10 topic
  ids in answers, v12 topics by id, v13 a top-level error.
- v0–3 cannot say whether a topic may be created, so the broker's setting alone decides there.
- A topic asked for by id and unknown gets UNKNOWN_TOPIC_ID; by name UNKNOWN_TOPIC_OR_PARTITION.
- A topic named several times is described once.
- v8+: the operations that the client is allowed, of topics and (up to v10) of the cluster, are named on request; as in
  Kafka also for a name that no topic has.
- Creating waits until the topic is visible, so the first answer already carries its leader. Only for a
  deleted one the answer is UNKNOWN_TOPIC_OR_PARTITION at first, as Kafka's is for each name it creates (decision 0022).
- Only brokers that are alive are listed, and for a moment, to clients that knew them, those that were
  (`routing/departures.py`). A partition whose leader is not alive has LEADER_NOT_AVAILABLE. So have those led by this
  broker once it has lost touch with its cluster: the client is to ask another broker.
"""

from typing import Final

from martlet.base.errors import ApiError, ErrorCode
from martlet.base.ids import NO_BROKER, NO_TOPIC_ID, TopicId
from martlet.broker.ground.request import Link, RequestContext
from martlet.broker.routing.cluster_view import Present, leader_of
from martlet.broker.services import BrokerServices
from martlet.broker.serving.turns import in_turns
from martlet.cluster.records import PartitionRecord, TopicRecord
from martlet.cluster.topic_names import check_topic_name
from martlet.wire.api_keys import ApiKey
from martlet.wire.messages.authorized_operations import CLUSTER_OPERATIONS, TOPIC_OPERATIONS
from martlet.wire.messages.metadata import (
    MetadataRequest,
    MetadataRequestTopic,
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)

KEY: Final = ApiKey.METADATA
VERSIONS: Final = (0, 13)
REQUEST: Final = MetadataRequest

_FIRST_VERSION_BY_ID: Final = 12


async def handle(broker: BrokerServices, request: MetadataRequest, context: RequestContext) -> MetadataResponse:
    """Describe the brokers and the topics asked for."""
    asks_for_all = request.topics is None or (context.version == 0 and not request.topics)
    if asks_for_all:
        present = broker.cluster.possible_leaders(context.link)
        topics = [describe_topic(broker, topic, present) async for topic in in_turns(broker.image.topics())]
    else:
        may_create = broker.settings.auto_create_topics and request.allow_auto_topic_creation
        unique = {(asked.topic_id, asked.name): asked for asked in request.topics or ()}
        topics = [
            _describe_by_id(broker, asked, context)
            if asked.topic_id != NO_TOPIC_ID
            else await _describe_by_name(broker, asked.name or "", context.link, may_create=may_create)
            async for asked in in_turns(unique.values())
        ]
    response = MetadataResponse(
        brokers=[
            MetadataResponseBroker(node_id=node.id, host=node.address.host, port=node.address.port, rack=node.rack)
            for node in broker.cluster.nodes(context.link, besides=broker.departures.recent(context.link.made_at_ms))
        ],
        cluster_id=broker.cluster_id,
        controller_id=broker.cluster.controller(context.link),
        topics=topics,
    )
    if request.include_cluster_authorized_operations:
        response.cluster_authorized_operations = CLUSTER_OPERATIONS
    if request.include_topic_authorized_operations:
        for described in topics:
            if described.error_code != ErrorCode.UNKNOWN_TOPIC_ID:
                described.topic_authorized_operations = TOPIC_OPERATIONS
    return response


def describe_topic(broker: BrokerServices, topic: TopicRecord, present: Present) -> MetadataResponseTopic:
    """One topic with the state of its partitions, as of these brokers being there."""
    partitions = [describe_partition(record, present) for record in broker.image.partitions(topic.name)]
    return MetadataResponseTopic(name=topic.name, topic_id=topic.id, is_internal=topic.internal, partitions=partitions)


def describe_partition(record: PartitionRecord, present: Present) -> MetadataResponsePartition:
    """The leader, the replicas, and those of them that cannot be reached now."""
    leader = leader_of(record, present)
    return MetadataResponsePartition(
        error_code=ErrorCode.LEADER_NOT_AVAILABLE if leader is None else ErrorCode.NONE,
        partition_index=record.partition,
        leader_id=NO_BROKER if leader is None else leader,
        leader_epoch=record.leader_epoch,
        replica_nodes=list(record.replicas),
        isr_nodes=record.isr_ids(),
        offline_replicas=[broker for broker in record.replicas if broker not in present],
    )


def _describe_by_id(
    broker: BrokerServices, asked: MetadataRequestTopic, context: RequestContext
) -> MetadataResponseTopic:
    version = context.version
    topic = broker.image.topic_by_id(TopicId(asked.topic_id))
    if topic is not None and version >= _FIRST_VERSION_BY_ID:
        return describe_topic(broker, topic, broker.cluster.possible_leaders(context.link))
    # Older versions carry an id but can neither ask by it nor leave the name out.
    name = None if version >= _FIRST_VERSION_BY_ID else asked.name or ""
    return MetadataResponseTopic(error_code=ErrorCode.UNKNOWN_TOPIC_ID, name=name, topic_id=asked.topic_id)


async def _describe_by_name(
    broker: BrokerServices, name: str, link: Link, *, may_create: bool
) -> MetadataResponseTopic:
    try:
        topic = broker.image.topic(name)
        if topic is None:
            check_topic_name(name)
            topic = await _create(broker, name) if may_create and broker.departures.lets_return(name) else None
        if topic is None:
            raise ApiError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    except ApiError as error:
        return MetadataResponseTopic(error_code=error.code, name=name)
    return describe_topic(broker, topic, broker.cluster.possible_leaders(link))


async def _create(broker: BrokerServices, name: str) -> TopicRecord | None:
    try:
        await broker.topic_admin.create_topic(name)
    except ApiError as error:
        if error.code is not ErrorCode.TOPIC_ALREADY_EXISTS:
            raise
    return broker.image.topic(name)
