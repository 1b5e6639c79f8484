"""What is of transactions in their coordinator: the topic, the machine's options, and its operations for the handlers.

A request that meets the end of the last transaction of the same id would be refused with CONCURRENT_TRANSACTIONS, and
most clients then sleep for longer than that end takes. So it waits for a moment instead. A producer that begins never
waits: it may have to fence another one, and its client expects the error.

Rule: the machine and its records are imported with the first shard: a broker without transactions starts sooner so.

Proved by: tests/unit/broker/coordinators/test_transaction_coordinator.py
"""

import asyncio
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any, Final, TypeAlias, TypeVar

from martlet.base.clock import Clock
from martlet.base.errors import ApiError, ErrorCode
from martlet.base.ids import BrokerId, TopicPartition
from martlet.broker.administration.producer_ids import ProducerIdPool
from martlet.broker.administration.topic_admin import TopicAdmin
from martlet.broker.coordinators.coordinator_host import CoordinatorHost, MachineKind
from martlet.broker.coordinators.internal_topic import InternalTopic, InternalTopicSpec, partition_of_key
from martlet.broker.ground.settings import BrokerSettings
from martlet.cluster.image import MetadataImage
from martlet.cluster.topic_names import TRANSACTION_STATE_TOPIC
from martlet.coordinator.ports import EffectExecutor
from martlet.coordinator.result import RecordCodec, Result
from martlet.coordinator.snapshots import DEFAULT_SNAPSHOTS, SnapshotRule
from martlet.observe.metrics import BrokerMetrics
from martlet.transactions.names import owner_id, shard_key
from martlet.transactions.records import ProducerPair, TransactionStored
from martlet.transactions.requests import (
    InitialisedProducer,
    InitWish,
    OfTransaction,
    TransactionFilter,
    TransactionsOptions,
)
from martlet.transactions.transaction_groups import EndGroupWish, GroupEnded, GroupOpened, OpenGroupWish
from martlet.transactions.transitions import Generation

if TYPE_CHECKING:
    from martlet.transactions.machine import TransactionsMachine

TransactionHost: TypeAlias = "CoordinatorHost[TransactionsMachine]"

S = TypeVar("S")

PATIENCE_SECONDS: Final = 0.1
"""How long a request waits for the end of the last transaction before its client is asked to come again."""


def transaction_kind(
    options: TransactionsOptions,
    ids: ProducerIdPool,
    completions: "Completions",
    effects: EffectExecutor,
    snapshots: SnapshotRule = DEFAULT_SNAPSHOTS,
) -> "MachineKind[TransactionsMachine]":
    """What a coordinator host must know of transactions."""

    def make_machine() -> "TransactionsMachine":
        from martlet.transactions.machine import TransactionsMachine

        return TransactionsMachine(options, ids.take_at_once)

    def make_codec() -> RecordCodec[Any]:
        from martlet.transactions.record_codec import TransactionRecordCodec

        return TransactionRecordCodec()

    return MachineKind("transactions", make_machine, make_codec, completions.stored, effects, snapshots)


def transactions_topic(settings: BrokerSettings, image: MetadataImage, admin: TopicAdmin) -> InternalTopic:
    """`__transaction_state`, which holds everything about transactions."""
    count, factor = settings.transactions_topic_partitions, settings.transactions_topic_replication_factor
    spec = InternalTopicSpec(TRANSACTION_STATE_TOPIC, count, factor, partition_rule=partition_of_id)
    return InternalTopic(spec, image, admin)


def transaction_options(settings: BrokerSettings) -> TransactionsOptions:
    """What the settings say about transactions."""
    return TransactionsOptions(
        max_timeout_ms=settings.transaction_max_timeout_ms,
        id_expiration_ms=settings.transactional_id_expiration_ms,
        partitions_max=settings.transaction_partitions_max,
        two_phase=settings.transaction_two_phase_commit,
    )


def partition_of_id(transactional_id: str, partition_count: int) -> int:
    """The partition of `__transaction_state` that holds an id."""
    return partition_of_key(shard_key(transactional_id), partition_count)


class Completions:
    """Who waits for the end of which id's transaction."""

    def __init__(self) -> None:
        self._waiters: dict[str, list[asyncio.Future[None]]] = {}

    def stored(self, records: Sequence[Any]) -> None:
        """Wake those whose transaction is complete."""
        if self._waiters:
            for record in records:
                if not (isinstance(record, TransactionStored) and record.state.is_prepared):
                    for future in self._waiters.pop(record.transactional_id, ()):
                        if not future.done():
                            future.set_result(None)

    async def wait(self, transactional_id: str, seconds: float) -> bool:
        """Whether it was completed in time."""
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        waiters = self._waiters.setdefault(transactional_id, [])
        waiters.append(future)
        try:
            async with asyncio.timeout(seconds):
                await future
        except TimeoutError:
            return False
        finally:
            if future in waiters:
                waiters.remove(future)
            if not waiters and self._waiters.get(transactional_id) is waiters:
                del self._waiters[transactional_id]
        return True


class TransactionCoordinator:
    """The operations of the transactions whose ids this broker coordinates; all raise ApiError."""

    def __init__(self, host: TransactionHost, ids: ProducerIdPool, completions: Completions) -> None:
        self.host = host
        self._ids = ids
        self._completions = completions

    def reason_not_ready(self) -> str:
        """Why some ids cannot be served, for people; empty when all can."""
        return self.host.reason_not_ready()

    async def coordinator_of(self, transactional_id: str) -> BrokerId:
        """Which broker coordinates an id."""
        return await self.host.coordinator_of(transactional_id)

    async def init_producer_id(self, wish: InitWish) -> InitialisedProducer:
        """Give a producer its id and epoch."""
        await self._ids.reserve()
        return await self.host.call(
            wish.transactional_id, lambda machine, now_ms: machine.init_producer_id(wish, now_ms)
        )

    async def add(self, of: OfTransaction, partitions: frozenset[TopicPartition], generation: Generation) -> None:
        """Have the partitions in the transaction."""
        await self._patiently(
            of.transactional_id, lambda machine, now_ms: machine.add_partitions(of, partitions, generation, now_ms)
        )

    async def missing(self, of: OfTransaction, partitions: frozenset[TopicPartition]) -> frozenset[TopicPartition]:
        """Those of the partitions that are not in the open transaction."""
        return await self.host.call(
            of.transactional_id, lambda machine, now_ms: machine.verify_partitions(of, partitions, now_ms)
        )

    async def end(self, of: OfTransaction, *, is_commit: bool, generation: Generation) -> ProducerPair:
        """Decide how it ends; the pair with which the producer goes on."""
        await self._ids.reserve()
        return await self._patiently(
            of.transactional_id, lambda machine, now_ms: machine.end_transaction(of, is_commit, generation, now_ms)
        )

    async def open_group(self, wish: OpenGroupWish) -> GroupOpened:
        """A run takes its group over."""
        await self._ids.reserve()
        return await self.host.call(owner_id(wish.group), lambda machine, now_ms: machine.open_group(wish, now_ms))

    async def end_group(self, wish: EndGroupWish) -> GroupEnded:
        """Decide a step of a group."""
        await self._ids.reserve()
        return await self.host.call(owner_id(wish.group), lambda machine, now_ms: machine.end_group(wish, now_ms))

    async def describe(self, transactional_id: str) -> TransactionStored:
        """What stands of an id."""
        return await self.host.call(
            transactional_id, lambda machine, now_ms: machine.describe(transactional_id, now_ms)
        )

    async def list_all(self, wanted: TransactionFilter) -> list[TransactionStored]:
        """The ids of this broker that pass."""
        shards = await self.host.call_all(lambda machine, now_ms: machine.list_transactions(wanted, now_ms))
        return [stored for shard in shards for stored in shard]

    async def _patiently(
        self, transactional_id: str, operation: "Callable[[TransactionsMachine, int], Result[Any, S]]"
    ) -> S:
        loop = asyncio.get_running_loop()
        until = loop.time() + PATIENCE_SECONDS
        while True:
            try:
                return await self.host.call(transactional_id, operation)
            except ApiError as error:
                if error.code is not ErrorCode.CONCURRENT_TRANSACTIONS:
                    raise
                is_ended = not self._is_ending(transactional_id)
                if not is_ended and not await self._completions.wait(transactional_id, until - loop.time()):
                    raise
                if loop.time() >= until:
                    raise

    def _is_ending(self, transactional_id: str) -> bool:
        """Whether a decision is still being carried out; it may have been completed since the request was answered."""
        machine = self.host.machine_of(transactional_id)
        stored = machine.table.get(transactional_id) if machine is not None else None
        return stored is not None and stored.state.is_prepared


def watch_transactions(host: TransactionHost, metrics: BrokerMetrics, clock: Clock) -> None:
    """Export how many transactional ids there are, how old the oldest transaction is, and what is not served."""

    def by_state() -> Iterable[tuple[tuple[str, ...], float]]:
        counts: Counter[str] = Counter()
        for machine in host.machines():
            counts.update({state.label: count for state, count in machine.statistics().items() if count})
        return sorted(((label,), float(count)) for label, count in counts.items())

    def oldest_seconds() -> float:
        now_ms = clock.now_ms()
        return max((machine.oldest_age_ms(now_ms) for machine in host.machines()), default=0) / 1_000

    metrics.watch(
        "martlet_oldest_transaction_seconds",
        "How long the oldest transaction coordinated here has been without an end.",
        oldest_seconds,
    )
    metrics.watch_table("martlet_transactions", "Transactional ids coordinated here.", ("state",), by_state)
    metrics.watch(
        "martlet_unserved_transaction_partitions",
        "Partitions of the transactions topic led here whose transactions are not served.",
        lambda: len(host.unserved()),
    )
