"""FindCoordinator 0–6: who coordinates a group, a transaction or a queue.

v4+ asks for several keys at once; a key named several times is answered once. Asking for a group makes the offsets
topic when there is none yet, so the first answer already names the coordinator; the same holds for transactions and
their topic. As in Kafka the empty group id has a coordinator too: consumers of old commit offsets under it. An empty
transactional id is INVALID_REQUEST. Key type 2 needs v6: its keys are group:topic id:partition, and the state of a
share group in a partition is where the partition is led.
"""

from typing import Final

from martlet.base.errors import ApiError, ErrorCode
from martlet.base.ids import NO_BROKER, BrokerId, parse_topic_id
from martlet.broker.ground.request import RequestContext
from martlet.broker.services import BrokerServices
from martlet.broker.serving.turns import in_turns
from martlet.wire.api_keys import ApiKey
from martlet.wire.messages.find_coordinator import Coordinator, FindCoordinatorRequest, FindCoordinatorResponse

KEY: Final = ApiKey.FIND_COORDINATOR
VERSIONS: Final = (0, 6)
REQUEST: Final = FindCoordinatorRequest

_FIRST_BATCHED_VERSION: Final = 4
_FIRST_VERSION_OF_SHARES: Final = 6
_GROUP: Final = 0
_TRANSACTION: Final = 1
_SHARE: Final = 2
_KINDS: Final = (_GROUP, _TRANSACTION, _SHARE)


async def handle(
    broker: BrokerServices, request: FindCoordinatorRequest, context: RequestContext
) -> FindCoordinatorResponse:
    """One answer for each key."""
    if context.version >= _FIRST_BATCHED_VERSION:
        keys = dict.fromkeys(request.coordinator_keys)
        found = [await _find(broker, request.key_type, key, context) async for key in in_turns(keys)]
        return FindCoordinatorResponse(coordinators=found)
    one = await _find(broker, request.key_type, request.key, context)
    # As Kafka words it where the answer has one message; a list of answers leaves it empty.
    message = one.error_message if one.error_code else ErrorCode.NONE.name
    return FindCoordinatorResponse(
        error_code=one.error_code,
        error_message=message,
        node_id=one.node_id,
        host=one.host,
        port=one.port,
    )


async def _find(broker: BrokerServices, key_type: int, key: str, context: RequestContext) -> Coordinator:
    try:
        _check_kind(key_type, context.version)
        if key_type == _TRANSACTION:
            node_id = await broker.transactions.coordinator.coordinator_of(_checked(key))
        elif key_type == _SHARE:
            node_id = _leader_of_state(broker, key)
        else:
            node_id = await broker.groups.coordinator_of(key)
        address = broker.cluster.address_of(node_id, context.link)
        if address is None:
            detail = f"broker {node_id}, which leads the partition of {key[:100]!r}, is not running"
            raise ApiError(ErrorCode.COORDINATOR_NOT_AVAILABLE, detail)
    except ApiError as error:
        return _refused(key, error)
    return Coordinator(key=key, node_id=node_id, host=address.host, port=address.port, error_message="")


def _check_kind(key_type: int, version: int) -> None:
    if key_type not in _KINDS or (key_type == _SHARE and version < _FIRST_VERSION_OF_SHARES):
        raise ApiError(ErrorCode.INVALID_REQUEST, f"key type {key_type} cannot be asked for with version {version}")


def _leader_of_state(broker: BrokerServices, key: str) -> BrokerId:
    """The leader of the partition that a key names as group:topic id:partition."""
    group_id, _, rest = key.partition(":")
    topic_id, _, index = rest.rpartition(":")
    try:
        if not (group_id and index.isascii() and index.isdigit()):
            raise ValueError("a part of the key is missing")
        topic = broker.image.topic_by_id(parse_topic_id(topic_id))
    except ValueError as error:
        reason = f"{key[:249]!r} names no partition of a group as group:topic id:partition"
        raise ApiError(ErrorCode.INVALID_REQUEST, reason) from error
    partition = broker.image.partition(topic.name, int(index)) if topic is not None else None
    if partition is None or partition.leader is None:
        raise ApiError(ErrorCode.COORDINATOR_NOT_AVAILABLE, f"the partition of {key[:249]!r} has no leader now")
    return partition.leader


def _checked(transactional_id: str) -> str:
    if not transactional_id:
        raise ApiError(ErrorCode.INVALID_REQUEST, "a transactional id is not empty")
    return transactional_id


def _refused(key: str, error: ApiError) -> Coordinator:
    return Coordinator(key=key, node_id=NO_BROKER, host="", port=-1, error_code=error.code, error_message=error.detail)
