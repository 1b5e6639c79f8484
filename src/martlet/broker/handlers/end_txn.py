"""EndTxn 0–5: a producer commits or aborts its transaction.

- Answered when the decision is stored; the markers follow. v5+ clients go on with the id and epoch in the answer.
- A request that comes a second time is answered as the first was. One of a transaction that is over is refused, and
  never touches the next one: v5+ by its epoch, before that as far as Kafka's protocol allows.
- What meets the end of the last transaction waits for it up to 100 ms, then gets CONCURRENT_TRANSACTIONS.
"""

from typing import Final

from martlet.base.errors import ApiError
from martlet.broker.coordinators.transaction_errors import KnownErrors
from martlet.broker.ground.request import RequestContext
from martlet.broker.services import BrokerServices
from martlet.transactions.records import ProducerPair
from martlet.transactions.requests import OfTransaction
from martlet.transactions.transitions import Generation
from martlet.wire.api_keys import ApiKey
from martlet.wire.messages.end_txn import EndTxnRequest, EndTxnResponse

KEY: Final = ApiKey.END_TXN
VERSIONS: Final = (0, 5)
REQUEST: Final = EndTxnRequest

_FIRST_OF_SECOND_GENERATION: Final = 5
_ERRORS: Final = KnownErrors(fenced_since=2, abortable_since=4)


async def handle(broker: BrokerServices, request: EndTxnRequest, context: RequestContext) -> EndTxnResponse:
    """Decide how the transaction ends."""
    of = OfTransaction(request.transactional_id, ProducerPair(request.producer_id, request.producer_epoch))
    is_second = context.version >= _FIRST_OF_SECOND_GENERATION
    generation = Generation.SECOND if is_second else Generation.FIRST
    try:
        pair = await broker.transactions.coordinator.end(of, is_commit=request.committed, generation=generation)
    except ApiError as error:
        return EndTxnResponse(error_code=_ERRORS.code(error.code, context.version))
    return EndTxnResponse(producer_id=pair.id, producer_epoch=pair.epoch)
