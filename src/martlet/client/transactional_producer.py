"""Publishes in transactions: what is sent from `begin` to `commit`, offsets of a group included, is seen whole or not.

How it works: a `Producer` of its own sends the batches; the brokers add partitions to the transaction as the first
batch of each arrives, and every end answers with the pair of the next transaction (the second generation, KIP-890).
That pair makes requests harmless that come late or twice, so it is asked for by version; older brokers are refused.

Invariants: (CLT-18) `commit` succeeds only if every message was acknowledged and the end was; (CLT-19) a transaction of
which anything failed can only be aborted; (CLT-20) after an end whose outcome is unknown, or a newer producer of the
same id, this one does nothing more: `start` of a new one settles what was left.

Proved by: tests/clients/test_transactions_martlet.py
"""

import asyncio
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import Final, Self

from martlet.base.clock import Clock
from martlet.base.errors import ApiError, ErrorCode
from martlet.base.ids import TopicPartition
from martlet.client.accumulator import Delivery, ProducerIdentity
from martlet.client.answers import check
from martlet.client.apis import END_TRANSACTION, INIT_TRANSACTIONS, TXN_OFFSET_COMMIT
from martlet.client.cluster import Cluster
from martlet.client.connection import Connection
from martlet.client.coordinators import Coordinated, Coordinators
from martlet.client.errors import ClientError, OutcomeUnknown
from martlet.client.producer import Producer, ProducerOptions
from martlet.client.retrying import is_worth_retrying
from martlet.client.transaction_state import NOBODY, TransactionState, WhenceOffsets, is_fenced
from martlet.wire.messages.end_txn import EndTxnRequest
from martlet.wire.messages.init_producer_id import InitProducerIdRequest
from martlet.wire.messages.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
)
from martlet.wire.records.encode import HeaderFields

_FIRST_TWO_PHASE: Final = 6


@dataclass(frozen=True, slots=True, kw_only=True)
class TransactionalOptions:
    """How to publish in transactions."""

    producing: ProducerOptions = field(default_factory=ProducerOptions)
    timeout_ms: int = 60_000
    """After this time without an end the coordinator aborts the transaction."""
    two_phase: bool = False
    """The transaction has no time-out and outlives this process; another process may end it (KIP-939)."""


class _Stage(Enum):
    NEW = "not started"
    READY = "between two transactions"
    OPEN = "in a transaction"
    OVER = "over"


class TransactionalProducer:
    """One transactional id, one transaction at a time; for one task, or for several that agree on begin and end."""

    def __init__(
        self,
        cluster: Cluster,
        transactional_id: str,
        options: TransactionalOptions | None = None,
        clock: Clock | None = None,
    ) -> None:
        self._options = options or TransactionalOptions()
        self._coordinators = Coordinators(cluster, Coordinated.TRANSACTION)
        self._groups = Coordinators(cluster, Coordinated.GROUP)
        self._state = TransactionState(transactional_id)
        self._producer = Producer(cluster, self._options.producing, clock, self._state)
        self._stage = _Stage.NEW

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(self, *exc_info: object) -> None:
        await self.aclose()

    @property
    def transactional_id(self) -> str:
        return self._state.transactional_id

    @property
    def identity(self) -> ProducerIdentity:
        """The id and epoch of the transaction that is open, or comes next."""
        return self._state.identity

    async def start(self, *, keep_prepared: bool = False) -> ProducerIdentity | None:
        """Fence every older producer of the id and abort what it left open, or keep it.

        With `keep_prepared` a transaction that was prepared is open again, to be committed or aborted; returns the pair
        under which its messages were written, None if there is none.
        """
        if self._stage is not _Stage.NEW:
            raise ClientError(f"this producer was started before: it is {self._stage.value}")
        options, name = self._options, self.transactional_id
        request = InitProducerIdRequest(
            name, options.timeout_ms, enable2_pc=options.two_phase, keep_prepared_txn=keep_prepared
        )
        is_two_phase = options.two_phase or keep_prepared

        async def ask(connection: Connection) -> tuple[ProducerIdentity, ProducerIdentity]:
            if is_two_phase and connection.version_of(INIT_TRANSACTIONS) < _FIRST_TWO_PHASE:
                detail = f"the broker at {connection.address} has two-phase commit turned off"
                raise ApiError(ErrorCode.UNSUPPORTED_VERSION, detail)
            answer = await connection.call(INIT_TRANSACTIONS, request)
            check(answer.error_code, None, f"the producer {name!r} was not started")
            prepared = ProducerIdentity(answer.ongoing_txn_producer_id, answer.ongoing_txn_producer_epoch)
            return ProducerIdentity(answer.producer_id, answer.producer_epoch), prepared

        identity, prepared = await self._coordinators.call(name, ask)
        await self._producer.start()
        self._state.next_transaction(identity)
        is_kept = prepared != NOBODY
        self._state.has_content = is_kept
        self._stage = _Stage.OPEN if is_kept else _Stage.READY
        return prepared if is_kept else None

    async def aclose(self) -> None:
        """Stop. A transaction that is open stays so: until its time-out, a newer producer, or the end of its group."""
        self._stage = _Stage.OVER
        await self._producer.aclose(deliver=False)

    # --- one transaction

    def begin(self) -> None:
        """What is sent from now on is in a transaction. Nothing is asked of the cluster yet."""
        if self._stage is not _Stage.READY:
            raise ClientError(
                f"no transaction can begin: the producer {self.transactional_id!r} is {self._stage.value}"
            )
        self._stage = _Stage.OPEN

    async def send(
        self,
        topic: str,
        value: bytes | None,
        *,
        key: bytes | None = None,
        headers: Sequence[HeaderFields] = (),
        partition: int | None = None,
        timestamp_ms: int | None = None,
    ) -> Delivery:
        """As `Producer.send`, in the transaction; raises what has failed before in it."""
        self._check_open()
        self._state.has_content = True
        return await self._producer.send(
            topic, value, key=key, headers=headers, partition=partition, timestamp_ms=timestamp_ms
        )

    async def send_offsets(self, offsets: Mapping[TopicPartition, int], whence: WhenceOffsets) -> None:
        """The group has read up to here, if the transaction is committed; counts as nothing before that."""
        self._check_open()
        if not offsets:
            return
        self._state.has_content = True
        by_topic: dict[str, list[TxnOffsetCommitRequestPartition]] = defaultdict(list)
        for partition, offset in offsets.items():
            by_topic[partition.topic].append(
                TxnOffsetCommitRequestPartition(partition.partition, offset, committed_metadata="")
            )
        request = TxnOffsetCommitRequest(
            self.transactional_id,
            whence.group_id,
            *self.identity,
            whence.generation,
            whence.member_id,
            whence.instance_id,
            [TxnOffsetCommitRequestTopic(name, entries) for name, entries in by_topic.items()],
        )

        async def ask(connection: Connection) -> None:
            answer = await connection.call(TXN_OFFSET_COMMIT, request)
            for topic in answer.topics:
                for entry in topic.partitions:
                    what = f"group {whence.group_id!r}: {topic.name}-{entry.partition_index} was not committed"
                    check(entry.error_code, None, what)

        try:
            await self._groups.call(whence.group_id, ask)
        except (ApiError, ClientError) as error:
            self._state.failed(error)
            raise

    async def prepare(self) -> ProducerIdentity:
        """Every message is acknowledged, and the transaction stays open for someone else to end it.

        Returns what that one has to name: a child of a group of transactions is ended with its step, a prepared
        transaction by its id.
        """
        self._check_open()
        await self._producer.flush()
        self._check_open()
        self._stage = _Stage.OVER
        return self.identity

    async def commit(self) -> None:
        """All of it counts. Raises what failed, and then the transaction can only be aborted.

        OutcomeUnknown: whether it was committed cannot be found out any more, and this producer is over.
        """
        self._check_open()
        await self._producer.flush()
        self._check_open()
        await self._end(is_commit=True)

    async def abort(self) -> None:
        """Nothing of it counts; also after a failure. Raises when a newer producer uses the id."""
        if self._stage is not _Stage.OPEN:
            raise ClientError(f"there is no transaction to abort: {self.transactional_id!r} is {self._stage.value}")
        self._state.failed(ClientError("the transaction is aborted"))
        await self._producer.discard()
        await self._end(is_commit=False)

    # --- inside

    def _check_open(self) -> None:
        if self._stage is not _Stage.OPEN:
            raise ClientError(f"no transaction is open: {self.transactional_id!r} is {self._stage.value}")
        if self._state.failure is not None:
            raise self._state.failure

    async def _end(self, *, is_commit: bool) -> None:
        identity = self.identity
        try:
            if self._state.has_content:
                identity = await self._ask_end(is_commit=is_commit)
        except asyncio.CancelledError:
            self._stage = _Stage.OVER
            raise
        except (ApiError, ClientError) as error:
            if isinstance(error, ApiError) and error.code is ErrorCode.TRANSACTION_ABORTABLE and is_commit:
                self._state.failed(error)
                raise
            self._stage = _Stage.OVER
            if is_commit and (is_worth_retrying(error) or is_fenced(error)):
                detail = f"whether the transaction of {self.transactional_id!r} was committed is unknown: {error}"
                raise OutcomeUnknown(detail) from error
            raise
        self._producer.next_epoch()
        self._state.next_transaction(identity)
        self._stage = _Stage.READY

    async def _ask_end(self, *, is_commit: bool) -> ProducerIdentity:
        name = self.transactional_id
        request = EndTxnRequest(name, *self.identity, is_commit)
        verb = "committed" if is_commit else "aborted"

        async def ask(connection: Connection) -> ProducerIdentity:
            answer = await connection.call(END_TRANSACTION, request)
            check(answer.error_code, None, f"the transaction of {name!r} was not {verb}")
            return ProducerIdentity(answer.producer_id, answer.producer_epoch)

        return await self._coordinators.call(name, ask)
