"""FindCoordinator 0–6: who coordinates a group, a transaction or a queue.

v4+ asks for several keys at once. Deviation: this broker has no coordinators yet, so every key is answered with
COORDINATOR_NOT_AVAILABLE and a sentence that says so; clients that assign partitions themselves are not affected.
"""

from typing import Final

from martlet.base.errors import ErrorCode
from martlet.base.ids import NO_BROKER
from martlet.broker.request import RequestContext
from martlet.broker.services import BrokerServices
from martlet.wire.api_keys import ApiKey
from martlet.wire.messages.find_coordinator import Coordinator, FindCoordinatorRequest, FindCoordinatorResponse

KEY: Final = ApiKey.FIND_COORDINATOR
VERSIONS: Final = (0, 6)
REQUEST: Final = FindCoordinatorRequest

_FIRST_BATCHED_VERSION: Final = 4
_KINDS: Final = {0: "group", 1: "transaction", 2: "share"}


def handle(broker: BrokerServices, request: FindCoordinatorRequest, context: RequestContext) -> FindCoordinatorResponse:
    """One answer for each key."""
    kind = _KINDS.get(request.key_type)
    if kind is None:
        code, text = ErrorCode.INVALID_REQUEST, f"key type {request.key_type} is not one of 0, 1, 2"
    else:
        code, text = ErrorCode.COORDINATOR_NOT_AVAILABLE, f"this broker has no {kind} coordinator"
    if context.version >= _FIRST_BATCHED_VERSION:
        return FindCoordinatorResponse(
            coordinators=[
                Coordinator(key=key, node_id=NO_BROKER, host="", port=-1, error_code=code, error_message=text)
                for key in request.coordinator_keys
            ]
        )
    return FindCoordinatorResponse(error_code=code, error_message=text, node_id=NO_BROKER, host="", port=-1)
