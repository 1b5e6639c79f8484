"""InitProducerId 0–6: a producer id and epoch, so that retries of publishes can be recognised, and transactions fenced.

- Without a transactional id: a new id, epoch 0, every time; ids never repeat, over restarts and brokers. v3+ may pass
  the old id and epoch to ask for a higher epoch; a fresh id serves the same end, and that is what Kafka answers too.
- With a transactional id: a pair that fences every older producer of that id. If one of them has left a transaction
  open, it is aborted first, and the answer is CONCURRENT_TRANSACTIONS until that is done.
- v6 is the two-phase form: a transaction that outlives its client, and is kept for who takes it over. It is advertised
  only where `transaction_two_phase_commit` is set.
- A broker that has lost touch with its cluster refuses at once: the client is to ask another one.
"""

from typing import Final

from martlet.base.errors import ApiError, ErrorCode
from martlet.broker.coordinators.transaction_errors import KnownErrors
from martlet.broker.ground.request import RequestContext
from martlet.broker.services import BrokerServices
from martlet.transactions.records import ProducerPair
from martlet.transactions.requests import InitWish
from martlet.wire.api_keys import ApiKey
from martlet.wire.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse

KEY: Final = ApiKey.INIT_PRODUCER_ID
VERSIONS: Final = (0, 6)
ADVERTISED: Final = (0, 5)
REQUEST: Final = InitProducerIdRequest

_ERRORS: Final = KnownErrors(fenced_since=4, abortable_since=5)
_NONE: Final = -1


async def handle(
    broker: BrokerServices, request: InitProducerIdRequest, context: RequestContext
) -> InitProducerIdResponse:
    """Hand out an id and epoch."""
    try:
        if request.transactional_id is None:
            return await _idempotent(broker)
        return await _transactional(broker, request, request.transactional_id)
    except ApiError as error:
        code = _ERRORS.code(error.code, context.version)
        return InitProducerIdResponse(error_code=code, producer_epoch=_NONE)


async def _idempotent(broker: BrokerServices) -> InitProducerIdResponse:
    if not broker.partitions.may_act():
        raise ApiError(ErrorCode.COORDINATOR_NOT_AVAILABLE, "this broker has lost touch with its cluster")
    return InitProducerIdResponse(producer_id=await broker.transactions.producer_ids.take(), producer_epoch=0)


async def _transactional(
    broker: BrokerServices, request: InitProducerIdRequest, transactional_id: str
) -> InitProducerIdResponse:
    pair = ProducerPair(request.producer_id, request.producer_epoch)
    if _NONE in pair and pair != (_NONE, _NONE):
        detail = f"producer id {pair.id} with epoch {pair.epoch}: both are given, or neither"
        raise ApiError(ErrorCode.INVALID_REQUEST, detail)
    wish = InitWish(
        transactional_id,
        request.transaction_timeout_ms,
        None if pair.id == _NONE else pair,
        request.enable2_pc,
        request.keep_prepared_txn,
    )
    producer = await broker.transactions.coordinator.init_producer_id(wish)
    return InitProducerIdResponse(
        producer_id=producer.pair.id,
        producer_epoch=producer.pair.epoch,
        ongoing_txn_producer_id=producer.prepared.id,
        ongoing_txn_producer_epoch=producer.prepared.epoch,
    )
