"""InitProducerId 0–5: a fresh producer id, so that retries of publishes can be recognised.

- Without a transactional id: a new id, epoch 0, every time; ids never repeat, over restarts and brokers.
- v3+ may pass the old id and epoch to ask for a higher epoch; for a producer without transactional id a fresh id serves
  the same end, and that is what Kafka answers too.
- A broker that has lost touch with its cluster refuses at once: the client is to ask another one.
Deviation: with a transactional id the answer is TRANSACTIONAL_ID_AUTHORIZATION_FAILED until transactions are served, so
that all clients give up at once, see `find_coordinator.py`.
"""

from typing import Final

from martlet.base.errors import ApiError, ErrorCode
from martlet.broker.ground.request import RequestContext
from martlet.broker.services import BrokerServices
from martlet.wire.api_keys import ApiKey
from martlet.wire.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse

KEY: Final = ApiKey.INIT_PRODUCER_ID
VERSIONS: Final = (0, 5)
REQUEST: Final = InitProducerIdRequest


async def handle(
    broker: BrokerServices, request: InitProducerIdRequest, context: RequestContext
) -> InitProducerIdResponse:
    """Hand out an id."""
    if request.transactional_id is not None:
        empty = request.transactional_id == ""
        code = ErrorCode.INVALID_REQUEST if empty else ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
        return InitProducerIdResponse(error_code=code, producer_epoch=-1)
    if not broker.partitions.may_act():
        return InitProducerIdResponse(error_code=ErrorCode.COORDINATOR_NOT_AVAILABLE, producer_epoch=-1)
    try:
        producer_id = await broker.producer_ids.take()
    except ApiError as error:
        return InitProducerIdResponse(error_code=error.code, producer_epoch=-1)
    return InitProducerIdResponse(producer_id=producer_id, producer_epoch=0)
