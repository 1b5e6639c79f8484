"""TxnOffsetCommit 0–5: a transaction stores how far a group has read; it counts when the transaction is committed.

- The group's partition must be in the transaction: v5+ adds it, older clients have sent AddOffsetsToTxn before.
- A member is checked only if one is named (v3+), and a rebalance does not stop a transaction.
- What is wrong with the group, the member or the transaction stands in every partition. Errors of the transaction's
  coordinator that pass are COORDINATOR_LOAD_IN_PROGRESS, on which clients send the same again; v0–1 knows
  COORDINATOR_NOT_AVAILABLE for it.
- A commit of more than 2,000 partitions is carried out in parts, all in the same transaction.
"""

from collections.abc import Sequence
from dataclasses import replace
from typing import Final

from martlet.base.errors import ApiError, ErrorCode
from martlet.broker.coordinators.group_requests import caller_of, carried_out_in_pieces
from martlet.broker.coordinators.transaction_errors import NEVER, KnownErrors
from martlet.broker.ground.request import RequestContext
from martlet.broker.parked.transactional_offsets import commit_in_transaction
from martlet.broker.services import BrokerServices
from martlet.wire.api_keys import ApiKey
from martlet.wire.messages.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestTopic,
    TxnOffsetCommitResponse,
    TxnOffsetCommitResponsePartition,
    TxnOffsetCommitResponseTopic,
)

KEY: Final = ApiKey.TXN_OFFSET_COMMIT
VERSIONS: Final = (0, 5)
REQUEST: Final = TxnOffsetCommitRequest

_FIRST_THAT_WAITS_FOR_LOADING: Final = 2
_FIRST_THAT_ADDS: Final = 5
_ERRORS: Final = KnownErrors(fenced_since=NEVER, abortable_since=4)


async def handle(
    broker: BrokerServices, request: TxnOffsetCommitRequest, context: RequestContext
) -> TxnOffsetCommitResponse:
    """Commit, piece by piece where there is much."""
    caller = caller_of(context)

    async def commit(topics: list[TxnOffsetCommitRequestTopic]) -> Sequence[TxnOffsetCommitResponseTopic]:
        part = replace(request, topics=topics)
        try:
            response = await commit_in_transaction(broker, part, caller, adds=context.version >= _FIRST_THAT_ADDS)
        except ApiError as error:
            response = _refused(topics, _code(error.code, context.version))
        return response.topics

    return TxnOffsetCommitResponse(topics=await carried_out_in_pieces(request.topics, commit))


def _code(code: ErrorCode, version: int) -> ErrorCode:
    if code is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS and version < _FIRST_THAT_WAITS_FOR_LOADING:
        return ErrorCode.COORDINATOR_NOT_AVAILABLE
    return _ERRORS.code(code, version)


def _refused(topics: list[TxnOffsetCommitRequestTopic], code: ErrorCode) -> TxnOffsetCommitResponse:
    return TxnOffsetCommitResponse(
        topics=[
            TxnOffsetCommitResponseTopic(
                topic.name,
                [TxnOffsetCommitResponsePartition(asked.partition_index, code) for asked in topic.partitions],
            )
            for topic in topics
        ]
    )
