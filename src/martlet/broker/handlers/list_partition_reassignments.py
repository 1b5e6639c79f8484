"""ListPartitionReassignments 0: the moves of partitions under way, all or those of the partitions asked for.

What does not move, or does not exist, is not in the answer.
"""

from typing import Final

from martlet.broker.ground.request import RequestContext
from martlet.broker.services import BrokerServices
from martlet.cluster.reassignment import list_reassignments
from martlet.wire.api_keys import ApiKey
from martlet.wire.messages.list_partition_reassignments import (
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsResponse,
    OngoingPartitionReassignment,
    OngoingTopicReassignment,
)

KEY: Final = ApiKey.LIST_PARTITION_REASSIGNMENTS
VERSIONS: Final = (0, 0)
REQUEST: Final = ListPartitionReassignmentsRequest


def handle(
    broker: BrokerServices, request: ListPartitionReassignmentsRequest, context: RequestContext
) -> ListPartitionReassignmentsResponse:
    """List the moves."""
    wanted: dict[str, set[int]] | None = None
    if request.topics is not None:
        wanted = {}
        for asked in request.topics:
            wanted.setdefault(asked.name, set()).update(asked.partition_indexes)
    topics: dict[str, OngoingTopicReassignment] = {}
    for move in list_reassignments(broker.image, wanted):
        topics.setdefault(move.topic, OngoingTopicReassignment(name=move.topic)).partitions.append(
            OngoingPartitionReassignment(
                partition_index=move.partition,
                replicas=list(move.replicas),
                adding_replicas=list(move.adding),
                removing_replicas=list(move.removing),
            )
        )
    return ListPartitionReassignmentsResponse(topics=list(topics.values()))
