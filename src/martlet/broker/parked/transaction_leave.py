"""A publish whose batches begin transactions here waits until the coordinator says that they may; see `guards`.

Versions from 12 on are of the second generation: the question adds the partitions to the transaction. Older ones must
have added them before. Answers that say nothing against the batch become errors after which every client sends the
same batch again.
"""

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Final, NamedTuple

from martlet.base.errors import ERROR_TABLE, ApiError, ErrorCode
from martlet.base.ids import TopicPartition
from martlet.broker.coordinators.transaction_errors import NEVER, KnownErrors
from martlet.broker.partitions.partition import Partition
from martlet.broker.partitions.transaction_guards import Guard, check_leave, check_outside
from martlet.broker.services import BrokerServices
from martlet.transactions.records import ProducerPair
from martlet.transactions.requests import OfTransaction
from martlet.wire.batch import BatchHeader

FIRST_VERSION_THAT_ADDS: Final = 12
_ERRORS: Final = KnownErrors(fenced_since=NEVER, abortable_since=11)

_COORDINATOR_ELSEWHERE: Final = frozenset(
    {
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.NOT_COORDINATOR,
        ErrorCode.UNKNOWN_SERVER_ERROR,
    }
)


class Leave(NamedTuple):
    """What the coordinator has said about the batches of one publish."""

    guards: Mapping[Partition, Guard]
    refusals: Mapping[Partition, ApiError]

    def check(self, partition: Partition, header: BatchHeader, transactional_id: str | None, version: int) -> None:
        """Raise when a batch may not be appended because of transactions."""
        if not header.is_transactional:
            if header.producer_id >= 0 and len(partition.log.producers.transactions):
                check_outside(partition.log.producers, header)
            return
        if transactional_id is None:
            detail = "a batch in a transaction, and the request names no transactional id"
            raise ApiError(ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED, detail)
        if partition in self.refusals:
            raise self.refusals[partition]
        adds = version >= FIRST_VERSION_THAT_ADDS
        check_leave(partition.log.producers, partition.guards, header, self.guards.get(partition), adds=adds)


NO_LEAVE: Final = Leave(MappingProxyType({}), MappingProxyType({}))


class LeaveQuestion:
    """Asks for all batches of one publish that begin transactions; the guards are those of now."""

    def __init__(self, transactional_id: str, version: int, batches: Sequence[tuple[Partition, BatchHeader]]) -> None:
        self._transactional_id = transactional_id
        self._version = version
        self._guards: dict[Partition, Guard] = {}
        self._given: dict[tuple[ProducerPair, Partition], Guard] = {}
        """The same by producer too: a request that makes no sense may name several for one partition."""
        self._refusals: dict[Partition, ApiError] = {}
        self._by_pair: dict[ProducerPair, dict[TopicPartition, Partition]] = {}
        for partition, header in batches:
            pair = ProducerPair(header.producer_id, header.producer_epoch)
            try:
                self._guards[partition] = self._given[pair, partition] = partition.guards.ask(*pair)
            except ApiError as error:
                self._refusals[partition] = error
                continue
            self._by_pair.setdefault(pair, {})[partition.name] = partition

    async def ask(self, broker: BrokerServices) -> Leave:
        """The coordinator's answers; a question that it refuses leaves no guard behind."""
        adds = self._version >= FIRST_VERSION_THAT_ADDS
        for pair, partitions in self._by_pair.items():
            of = OfTransaction(self._transactional_id, pair)
            outcomes = await broker.transactions.questions.ask(of, frozenset(partitions), adds=adds)
            for name, code in outcomes.items():
                if code is not ErrorCode.NONE:
                    partition = partitions[name]
                    partition.guards.drop(pair.id, self._given[pair, partition])
                    self._guards.pop(partition, None)
                    known = code_for(code, self._version)
                    detail = f"the transaction's coordinator says: {ERROR_TABLE[code].text}"
                    self._refusals[partition] = ApiError(known, detail)
        return Leave(self._guards, self._refusals)


def code_for(code: ErrorCode, version: int) -> ErrorCode:
    """The coordinator's error as a publisher that speaks this version understands it."""
    if code in _COORDINATOR_ELSEWHERE:
        return ErrorCode.NOT_ENOUGH_REPLICAS
    if code is ErrorCode.CONCURRENT_TRANSACTIONS and version < FIRST_VERSION_THAT_ADDS:
        return ErrorCode.NOT_ENOUGH_REPLICAS
    return _ERRORS.code(code, version)
