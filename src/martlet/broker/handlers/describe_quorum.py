"""DescribeQuorum 0–2: who decides about the cluster's metadata, and how far every broker has followed them.

Kafka's metadata are a log that its controllers vote on; ours are in a store that has its own members, if any (decision
0021). In Kafka's form that is:

- The log is the store: the high watermark is its revision now, the end of a broker's log the revision that its image
  has reached; -1 for one that is alive and does not say so in time.
- The leader is the broker with the controller's role, its epoch the revision at which it took the role. While no broker
  has it, the answer is LEADER_NOT_AVAILABLE; while the store cannot be reached, its error. Both can be tried again.
- The voters are the brokers that are alive, because each may take the role; there are no observers. They do not vote:
  one living broker is enough, and whether the store has its majority only the store can say.
- v2 names where the voters listen, which is where clients reach them. Directory ids are zero.

Anything but partition 0 of `__cluster_metadata` is UNKNOWN_TOPIC_OR_PARTITION. What is named twice is answered once.
"""

from collections.abc import Collection
from typing import Final

from martlet.base.errors import ApiError, ErrorCode
from martlet.base.ids import BrokerId
from martlet.broker.administration.metadata_reach import UNKNOWN, ask_reach
from martlet.broker.ground.request import RequestContext
from martlet.broker.services import BrokerServices
from martlet.broker.serving.turns import in_turns
from martlet.cluster.liveness import read_states
from martlet.wire.api_keys import ApiKey
from martlet.wire.messages.describe_quorum import (
    DescribeQuorumRequest,
    DescribeQuorumResponse,
    Listener,
    Node,
    PartitionData,
    ReplicaState,
    TopicData,
)

KEY: Final = ApiKey.DESCRIBE_QUORUM
VERSIONS: Final = (0, 2)
REQUEST: Final = DescribeQuorumRequest

_METADATA: Final = ("__cluster_metadata", 0)
_EPOCHS: Final = 1 << 31
_LISTENER: Final = "KAFKA"


async def handle(
    broker: BrokerServices, request: DescribeQuorumRequest, context: RequestContext
) -> DescribeQuorumResponse:
    """Describe the metadata, and say that there is no other quorum."""
    response = DescribeQuorumResponse()
    topics: dict[str, TopicData] = {}
    asked = dict.fromkeys(
        (topic.topic_name, one.partition_index) for topic in request.topics for one in topic.partitions
    )
    async for name, index in in_turns(asked):
        partition = PartitionData(partition_index=index)
        try:
            if (name, index) != _METADATA:
                raise ApiError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
            partition = await _describe(broker)
            response.nodes = _listeners(broker, context, {voter.replica_id for voter in partition.current_voters})
        except ApiError as error:
            partition.error_code, partition.error_message = error.code, error.detail
        topics.setdefault(name, TopicData(name)).partitions.append(partition)
    response.topics = list(topics.values())
    return response


async def _describe(broker: BrokerServices) -> PartitionData:
    role, alive = broker.image.controller, read_states(broker.image).alive
    if role is None or role.holder.broker not in alive:
        detail = "no broker has the controller's role at the moment"
        raise ApiError(ErrorCode.LEADER_NOT_AVAILABLE, detail)
    revision, reached = await ask_reach(broker.metadata, broker.broker_id, alive, broker.access.connect_to_broker)
    now_ms = broker.clock.now_ms()
    return PartitionData(
        leader_id=role.holder.broker,
        leader_epoch=role.mod_revision % _EPOCHS,
        high_watermark=revision,
        current_voters=[_voter(number, found, revision, now_ms) for number, found in sorted(reached.items())],
    )


def _voter(number: BrokerId, reached: int, revision: int, now_ms: int) -> ReplicaState:
    return ReplicaState(
        replica_id=number,
        log_end_offset=reached,
        last_fetch_timestamp=UNKNOWN if reached == UNKNOWN else now_ms,
        last_caught_up_timestamp=now_ms if reached == revision else UNKNOWN,
    )


def _listeners(broker: BrokerServices, context: RequestContext, voters: Collection[int]) -> list[Node]:
    return [
        Node(node.id, [Listener(_LISTENER, node.address.host, node.address.port)])
        for node in broker.cluster.nodes(context.link)
        if node.id in voters
    ]
