"""SeekQueue 0 (our own): a queue goes on at another offset of its partition.

Every lease, count and stray is forgotten, and what a holder still says of them is refused. Answered when committed.
"""

from typing import Final

from martlet.base.errors import ApiError
from martlet.base.ids import TopicId
from martlet.broker.ground.request import RequestContext
from martlet.broker.services import BrokerServices
from martlet.wire.api_keys import ApiKey
from martlet.wire.messages.seek_queue import SeekQueueRequest, SeekQueueResponse

KEY: Final = ApiKey.SEEK_QUEUE
VERSIONS: Final = (0, 0)
REQUEST: Final = SeekQueueRequest


async def handle(broker: BrokerServices, request: SeekQueueRequest, context: RequestContext) -> SeekQueueResponse:
    """At the partition's leader."""
    try:
        queue = broker.queues.find(TopicId(request.topic_id), request.partition, request.subscription)
        await queue.seek(request.offset)
    except ApiError as error:
        return SeekQueueResponse(error_code=error.code, error_message=error.detail)
    return SeekQueueResponse()
