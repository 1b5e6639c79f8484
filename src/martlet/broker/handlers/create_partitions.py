"""CreatePartitions 0–3: give topics more partitions, never fewer, because keys would move; each topic on its own."""

from typing import Final

from martlet.broker.services import BrokerServices
from martlet.broker.serving.request import RequestContext, outcome_of
from martlet.wire.api_keys import ApiKey
from martlet.wire.messages.create_partitions import (
    CreatePartitionsRequest,
    CreatePartitionsResponse,
    CreatePartitionsTopicResult,
)

KEY: Final = ApiKey.CREATE_PARTITIONS
VERSIONS: Final = (0, 3)
REQUEST: Final = CreatePartitionsRequest


async def handle(
    broker: BrokerServices, request: CreatePartitionsRequest, context: RequestContext
) -> CreatePartitionsResponse:
    """Grow the topics one after another."""
    results = []
    for topic in request.topics:
        result = CreatePartitionsTopicResult(name=topic.name)
        growth = broker.admin.create_partitions(
            topic.name,
            topic.count,
            assignments=[assignment.broker_ids for assignment in topic.assignments or ()],
            validate_only=request.validate_only,
        )
        result.error_code, result.error_message = await outcome_of(growth)
        results.append(result)
    return CreatePartitionsResponse(results=results)
