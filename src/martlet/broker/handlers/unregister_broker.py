"""UnregisterBroker 0: forget a broker that has left for good.

Unlike Kafka it is refused (INVALID_REQUEST, with the reason) while the broker runs, holds partitions or is not marked
for draining: nothing is lost by a slip of the finger. An id that no broker has is BROKER_ID_NOT_REGISTERED.
"""

from typing import Final

from martlet.base.errors import ApiError, ErrorCode
from martlet.base.ids import BrokerId
from martlet.broker.ground.request import RequestContext
from martlet.broker.services import BrokerServices
from martlet.wire.api_keys import ApiKey
from martlet.wire.messages.unregister_broker import UnregisterBrokerRequest, UnregisterBrokerResponse

KEY: Final = ApiKey.UNREGISTER_BROKER
VERSIONS: Final = (0, 0)
REQUEST: Final = UnregisterBrokerRequest


async def handle(
    broker: BrokerServices, request: UnregisterBrokerRequest, context: RequestContext
) -> UnregisterBrokerResponse:
    """Remove the broker, or say why not."""
    try:
        await broker.partition_admin.remove_broker(BrokerId(request.broker_id))
    except ApiError as error:
        unknown = error.code is ErrorCode.RESOURCE_NOT_FOUND
        return UnregisterBrokerResponse(
            error_code=ErrorCode.BROKER_ID_NOT_REGISTERED if unknown else error.code, error_message=error.detail
        )
    return UnregisterBrokerResponse()
