"""AlterPartitionReassignments 0–1: move partitions to other brokers, or cancel moves; each on its own.

- A list of replicas begins a move, in place of one under way; the first is the preferred leader. Null cancels.
- v1 may forbid that the number of replicas changes; such a wish then gets INVALID_REPLICATION_FACTOR.
- Errors: INVALID_REPLICA_ASSIGNMENT (unknown, doubled or drained broker, none at all), NO_REASSIGNMENT_IN_PROGRESS,
  UNKNOWN_TOPIC_OR_PARTITION. A partition named twice is refused for both.
- The answer comes when the move has begun; ListPartitionReassignments tells when it has ended. What has not begun in
  the request's time gets REQUEST_TIMED_OUT, and begins later all the same.
- Any broker carries it out, not only the controller.
"""

from typing import Final

from martlet.base.errors import ApiError
from martlet.base.ids import TopicPartition
from martlet.broker.administration.partition_admin import Outcomes
from martlet.broker.ground.request import RequestContext
from martlet.broker.services import BrokerServices
from martlet.broker.serving.timed_work import NOT_IN_TIME, TimedAnswer
from martlet.broker.serving.turns import Repeats
from martlet.wire.api_keys import ApiKey
from martlet.wire.messages.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    AlterPartitionReassignmentsResponse,
    ReassignablePartitionResponse,
    ReassignableTopicResponse,
)

KEY: Final = ApiKey.ALTER_PARTITION_REASSIGNMENTS
VERSIONS: Final = (0, 1)
REQUEST: Final = AlterPartitionReassignmentsRequest


def handle(broker: BrokerServices, request: AlterPartitionReassignmentsRequest, context: RequestContext) -> TimedAnswer:
    """Begin and cancel moves."""
    wishes = [
        (TopicPartition(topic.name, partition.partition_index), partition.replicas)
        for topic in request.topics
        for partition in topic.partitions
    ]
    repeats = Repeats(partition for partition, _ in wishes)
    outcomes: Outcomes = {}
    for partition, _ in wishes:
        try:
            repeats.check(partition)
        except ApiError as refusal:
            outcomes[partition] = refusal
    wanted = {partition: replicas for partition, replicas in wishes if partition not in outcomes}
    may_change = request.allow_replication_factor_change
    work = broker.partition_admin.reassign(wanted, factor_may_change=may_change, outcomes=outcomes)

    def read() -> AlterPartitionReassignmentsResponse:
        results = _results({partition: outcomes.get(partition, NOT_IN_TIME) for partition, _ in wishes})
        return AlterPartitionReassignmentsResponse(allow_replication_factor_change=may_change, responses=results)

    return TimedAnswer(work, request.timeout_ms, read)


def _results(outcomes: Outcomes) -> list[ReassignableTopicResponse]:
    topics: dict[str, ReassignableTopicResponse] = {}
    for (topic_name, index), error in outcomes.items():
        result = ReassignablePartitionResponse(partition_index=index)
        if error is not None:
            result.error_code, result.error_message = error.code, error.detail
        topics.setdefault(topic_name, ReassignableTopicResponse(name=topic_name)).partitions.append(result)
    return list(topics.values())
