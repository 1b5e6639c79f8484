"""SettleMessages 0 (our own): messages are acknowledged, given back, rejected, or kept for longer.

- From any connection. What names a holder counts for that holder's messages, what names an attempt for that attempt
  only; without either, what is said ends the current lease of the subscription, whose ever it is.
- Every settlement is applied or refused for itself, and answered when all of the request is committed.
- A message that no holder has can be cancelled: it is never delivered by this subscription.
- A settlement in another lease epoch than the one named is refused (INVALID_RECORD_STATE): those leases have ended.
"""

import asyncio
from collections.abc import Awaitable
from typing import Final

from martlet.base.errors import ApiError, ErrorCode
from martlet.base.ids import TopicId
from martlet.broker.ground.request import RequestContext
from martlet.broker.queueing.doors import PartitionQueue
from martlet.broker.services import BrokerServices
from martlet.queues.engine import Settlement, Verdict
from martlet.wire.api_keys import ApiKey
from martlet.wire.messages.settle_messages import (
    CANCEL,
    Settled,
    SettledPartition,
    SettledPartitionResult,
    SettledResult,
    SettleMessagesRequest,
    SettleMessagesResponse,
)

KEY: Final = ApiKey.SETTLE_MESSAGES
VERSIONS: Final = (0, 0)
REQUEST: Final = SettleMessagesRequest

_VERDICTS: Final = frozenset((Verdict.ACCEPT, Verdict.RELEASE, Verdict.REJECT, Verdict.RENEW, CANCEL))
_TIME_MS_MAX: Final = 7 * 24 * 3_600_000
_ANSWERED = SettledResult()

_Pending = ApiError | Awaitable[None]


async def handle(
    broker: BrokerServices, request: SettleMessagesRequest, context: RequestContext
) -> SettleMessagesResponse:
    """Apply all at once, then wait for what was applied."""
    pending = [_apply_all(broker, request.subscription, one) for one in request.partitions]
    return SettleMessagesResponse(
        partitions=[
            SettledPartitionResult(asked.topic_id, asked.partition, [await _result(one) for one in applied])
            for asked, applied in zip(request.partitions, pending, strict=True)
        ]
    )


def _apply_all(broker: BrokerServices, subscription: str, asked: SettledPartition) -> list[_Pending]:
    try:
        queue = broker.queues.find(TopicId(asked.topic_id), asked.partition, subscription)
        if asked.lease_epoch not in (-1, queue.lease_epoch):
            detail = f"handed out in lease epoch {asked.lease_epoch}, and it is {queue.lease_epoch} now"
            raise ApiError(ErrorCode.INVALID_RECORD_STATE, detail)
    except ApiError as error:
        return [error] * len(asked.settlements)
    return [_apply(queue, one) for one in asked.settlements]


async def _cancel(queue: PartitionQueue, one: Settled) -> None:
    """What no holder has is taken out of the queue."""
    if one.last != one.first:
        raise ApiError(ErrorCode.INVALID_REQUEST, "messages are cancelled one by one")
    await queue.cancel(one.first)


def _apply(queue: PartitionQueue, one: Settled) -> _Pending:
    try:
        if one.verdict not in _VERDICTS:
            raise ApiError(ErrorCode.INVALID_REQUEST, f"there is no verdict {one.verdict}")
        if one.verdict == CANCEL:
            return asyncio.ensure_future(_cancel(queue, one))
        if max(one.delay_ms, one.lease_ms) > _TIME_MS_MAX:
            raise ApiError(ErrorCode.INVALID_REQUEST, f"a delay or a lease is at most {_TIME_MS_MAX} ms long")
        return queue.settle(
            one.holder,
            [Settlement(one.first, one.last, Verdict(one.verdict))],
            attempt=None if one.attempt < 0 else one.attempt,
            lease_ms=None if one.lease_ms < 1 else one.lease_ms,
            delay_ms=None if one.delay_ms < 0 else one.delay_ms,
            reason=one.reason or "",
        )
    except ApiError as error:
        return error


async def _result(pending: _Pending) -> SettledResult:
    try:
        if isinstance(pending, ApiError):
            raise pending
        await asyncio.shield(pending)
    except ApiError as error:
        return SettledResult(error.code, error.detail)
    return _ANSWERED
