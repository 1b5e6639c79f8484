"""WriteDeadLetters 0 (our own): another broker publishes copies of messages that its queues gave up.

Answered when they are committed here. The batch is checked like that of any publisher.
"""

from typing import Final

from martlet.base.errors import ApiError
from martlet.base.ids import TopicPartition
from martlet.broker.ground.request import RequestContext
from martlet.broker.services import BrokerServices
from martlet.wire.api_keys import ApiKey
from martlet.wire.messages.write_dead_letters import WriteDeadLettersRequest, WriteDeadLettersResponse

KEY: Final = ApiKey.WRITE_DEAD_LETTERS
VERSIONS: Final = (0, 0)
REQUEST: Final = WriteDeadLettersRequest


async def handle(
    broker: BrokerServices, request: WriteDeadLettersRequest, context: RequestContext
) -> WriteDeadLettersResponse:
    """Append them."""
    try:
        await broker.queues.office.writer.append(TopicPartition(request.topic, request.partition), request.records)
    except ApiError as error:
        return WriteDeadLettersResponse(error_code=error.code, error_message=error.detail)
    return WriteDeadLettersResponse()
