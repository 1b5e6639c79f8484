"""CreatePartitions 0–3: give topics more partitions, never fewer, because keys would move; each topic on its own.

What has not grown in the request's time gets REQUEST_TIMED_OUT, and grows later all the same.
"""

from typing import Final

from martlet.broker.ground.request import RequestContext, outcome_of
from martlet.broker.services import BrokerServices
from martlet.broker.serving.timed_work import NOT_IN_TIME, TimedAnswer
from martlet.wire.api_keys import ApiKey
from martlet.wire.messages.create_partitions import (
    CreatePartitionsRequest,
    CreatePartitionsResponse,
    CreatePartitionsTopicResult,
)

KEY: Final = ApiKey.CREATE_PARTITIONS
VERSIONS: Final = (0, 3)
REQUEST: Final = CreatePartitionsRequest


def handle(broker: BrokerServices, request: CreatePartitionsRequest, context: RequestContext) -> TimedAnswer:
    """Grow the topics one after another."""
    results = [
        CreatePartitionsTopicResult(name=topic.name, error_code=NOT_IN_TIME.code, error_message=NOT_IN_TIME.detail)
        for topic in request.topics
    ]
    work = _grow(broker, request, results)
    return TimedAnswer(work, request.timeout_ms, lambda: CreatePartitionsResponse(results=results))


async def _grow(
    broker: BrokerServices, request: CreatePartitionsRequest, results: list[CreatePartitionsTopicResult]
) -> None:
    for topic, result in zip(request.topics, results, strict=True):
        growth = broker.topic_admin.create_partitions(
            topic.name,
            topic.count,
            assignments=[assignment.broker_ids for assignment in topic.assignments or ()],
            validate_only=request.validate_only,
        )
        result.error_code, result.error_message = await outcome_of(growth)
