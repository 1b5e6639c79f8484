"""ElectLeaders 0–2: give partitions another leader; each succeeds or fails on its own.

- Type 0 (and v0): the preferred leader, the first of the replicas, if it is alive and in sync. Type 1 (v1+): where
  no broker leads, any replica that is alive, although acknowledged messages may be lost by it; logged as critical.
- ELECTION_NOT_NEEDED: it is so already. PREFERRED_LEADER_NOT_AVAILABLE, ELIGIBLE_LEADERS_NOT_AVAILABLE: no broker can.
- A null list asks for all partitions, and those that need no election are left out of the answer, as in Kafka.
- Any broker carries it out, not only the controller. The answer comes when this broker knows the new leaders. What
  is not decided in the request's time gets REQUEST_TIMED_OUT, and is decided later all the same.
"""

from typing import Final

from martlet.base.errors import ErrorCode
from martlet.base.ids import TopicPartition
from martlet.broker.administration.partition_admin import Outcomes
from martlet.broker.ground.request import RequestContext
from martlet.broker.services import BrokerServices
from martlet.broker.serving.timed_work import NOT_IN_TIME, TimedAnswer
from martlet.wire.api_keys import ApiKey
from martlet.wire.messages.elect_leaders import (
    ElectLeadersRequest,
    ElectLeadersResponse,
    PartitionResult,
    ReplicaElectionResult,
)

KEY: Final = ApiKey.ELECT_LEADERS
VERSIONS: Final = (0, 2)
REQUEST: Final = ElectLeadersRequest

_PREFERRED: Final = 0
_UNCLEAN: Final = 1


def handle(
    broker: BrokerServices, request: ElectLeadersRequest, context: RequestContext
) -> ElectLeadersResponse | TimedAnswer:
    """Elect as asked."""
    if request.election_type not in (_PREFERRED, _UNCLEAN):
        return ElectLeadersResponse(error_code=ErrorCode.INVALID_REQUEST)
    asked = request.topic_partitions
    if asked is None:
        wanted = [
            TopicPartition(topic.name, index)
            for topic in broker.image.topics()
            for index in range(topic.partition_count)
        ]
    else:
        wanted = [TopicPartition(topic.topic, index) for topic in asked for index in topic.partitions]
    outcomes: Outcomes = {}
    work = broker.partition_admin.elect_leaders(wanted, unclean=request.election_type == _UNCLEAN, outcomes=outcomes)

    def read() -> ElectLeadersResponse:
        found = {partition: outcomes.get(partition, NOT_IN_TIME) for partition in wanted}
        return ElectLeadersResponse(replica_election_results=_results(found, leave_out_unneeded=asked is None))

    return TimedAnswer(work, request.timeout_ms, read)


def _results(outcomes: Outcomes, *, leave_out_unneeded: bool) -> list[ReplicaElectionResult]:
    topics: dict[str, ReplicaElectionResult] = {}
    for (topic, index), error in outcomes.items():
        if leave_out_unneeded and error is not None and error.code is ErrorCode.ELECTION_NOT_NEEDED:
            continue
        result = PartitionResult(partition_id=index)
        if error is not None:
            result.error_code, result.error_message = error.code, error.detail
        topics.setdefault(topic, ReplicaElectionResult(topic=topic)).partition_result.append(result)
    return list(topics.values())
