"""A commit of offsets in a transaction: the transaction's coordinator is asked, then the group's shard stores it.

As with a publish, the first one of a transaction on a partition of `__consumer_offsets` needs the coordinator's leave,
and the guard under which it was asked must still hold when the offsets are appended.
"""

from typing import TYPE_CHECKING, Final

from martlet.base.errors import ERROR_TABLE, ApiError, ErrorCode
from martlet.base.ids import TopicPartition
from martlet.broker.partitions.partition import Partition
from martlet.broker.partitions.transaction_guards import Guard, check_leave, may_append_unasked
from martlet.broker.services import BrokerServices
from martlet.cluster.topic_names import CONSUMER_OFFSETS_TOPIC
from martlet.coordinator.result import Result
from martlet.groups.ports import Caller
from martlet.transactions.records import ProducerPair
from martlet.transactions.requests import OfTransaction
from martlet.wire.batch import MAGIC, TRANSACTIONAL_BIT, BatchHeader
from martlet.wire.messages.txn_offset_commit import TxnOffsetCommitRequest, TxnOffsetCommitResponse

if TYPE_CHECKING:
    from martlet.groups.machine import GroupsMachine

_PASSING: Final = frozenset(
    {
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.NOT_COORDINATOR,
        ErrorCode.CONCURRENT_TRANSACTIONS,
        ErrorCode.UNKNOWN_SERVER_ERROR,
    }
)
"""Of the transaction's coordinator: the client, which asks the group's, is to send the same again."""


async def commit_in_transaction(
    broker: BrokerServices, request: TxnOffsetCommitRequest, caller: Caller, *, adds: bool
) -> TxnOffsetCommitResponse:
    """Store the offsets in the producer's transaction; raises ApiError."""
    partition, index = await _partition_of(broker, request.group_id)
    pair = ProducerPair(request.producer_id, request.producer_epoch)
    header = _header(pair)
    guard: Guard | None = None
    if not may_append_unasked(partition.log.producers, header):
        guard = partition.guards.ask(*pair)
        await _ask(broker, OfTransaction(request.transactional_id, pair), partition, guard, adds=adds)

    def commit(machine: "GroupsMachine", now_ms: int) -> Result[object, TxnOffsetCommitResponse]:
        check_leave(partition.log.producers, partition.guards, header, guard, adds=adds)
        return machine.txn_offset_commit(request, caller, now_ms)

    response = await broker.groups.call_shard(index, commit)
    if guard is not None:
        partition.guards.drop(pair.id, guard)
    return response


async def _partition_of(broker: BrokerServices, group_id: str) -> tuple[Partition, int]:
    leader = await broker.groups.coordinator_of(group_id)
    index = broker.groups.topic.partition_of(group_id)
    if leader != broker.broker_id:
        raise ApiError(ErrorCode.NOT_COORDINATOR, f"broker {leader} coordinates the group")
    try:
        return broker.partitions.get(CONSUMER_OFFSETS_TOPIC, index), index
    except ApiError as error:
        raise ApiError(ErrorCode.NOT_COORDINATOR, error.detail) from error


async def _ask(broker: BrokerServices, of: OfTransaction, partition: Partition, guard: Guard, *, adds: bool) -> None:
    name = TopicPartition(*partition.name)
    outcomes = await broker.transactions.questions.ask(of, frozenset((name,)), adds=adds)
    code = outcomes[name]
    if code is ErrorCode.NONE:
        return
    partition.guards.drop(of.pair.id, guard)
    detail = f"the transaction's coordinator says: {ERROR_TABLE[code].text}"
    if code in _PASSING:
        code = ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    raise ApiError(code, detail)


def _header(pair: ProducerPair) -> BatchHeader:
    """What of the batch to come is known before it is built."""
    return BatchHeader(0, 0, -1, MAGIC, 0, TRANSACTIONAL_BIT, 0, 0, 0, pair.id, pair.epoch, -1, 1)
