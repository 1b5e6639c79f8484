"""The durable records of the transactions machine, as the machine sees them; `record_codec.py` knows their bytes.

One record holds all there is of one transactional id, so compaction cannot tear it. `TransactionRemoved` is its
tombstone. What a newer field of ours adds stands in tagged fields from 10,000 on, which Kafka's tools skip.
"""

from dataclasses import dataclass
from typing import Final, NamedTuple, TypeAlias

from martlet.base.ids import NO_PRODUCER_ID, TopicPartition
from martlet.transactions.states import TransactionState

NO_EPOCH = -1
RUN_BYTES: Final = 16
"""Of the id of a run."""
NO_PARTITIONS: frozenset[TopicPartition] = frozenset()


class ProducerPair(NamedTuple):
    """What a producer names itself by in every request and batch."""

    id: int
    epoch: int


NO_PAIR = ProducerPair(NO_PRODUCER_ID, NO_EPOCH)


@dataclass(frozen=True, slots=True)
class GroupProgress:
    """Of the owner of a group of transactions: what is decided, and who may decide."""

    last_sequence: int = -1
    """Of the last decision; -1 before the first."""
    runs: tuple[bytes, ...] = ()
    """The run that may decide comes last, before it those that it has superseded."""
    note: bytes = b""
    """What the deciding run wants to find again."""
    place: str = ""
    """Where the runs keep their own progress; two places are two programs."""
    decided_by: bytes = b""
    """The run of the last decision."""


@dataclass(frozen=True, slots=True)
class TransactionStored:
    """All there is of one transactional id."""

    transactional_id: str
    producer_id: int
    producer_epoch: int
    timeout_ms: int
    state: TransactionState = TransactionState.EMPTY
    partitions: frozenset[TopicPartition] = NO_PARTITIONS
    updated_at_ms: int = -1
    started_at_ms: int = -1
    """When the transaction was opened; -1 before the first."""
    previous_producer_id: int = NO_PRODUCER_ID
    """The id that ran out of epochs before this one."""
    next_producer_id: int = NO_PRODUCER_ID
    """While a decision is being carried out: the id with which the producer goes on, if that is another one. While a
    prepared transaction is kept: the id of who may end it."""
    next_producer_epoch: int = NO_EPOCH
    """Belongs to `next_producer_id`; -1 stands for the first epoch of a new id."""
    client_version: int = 0
    """2 when the transaction is of the second generation: its end raises the epoch."""
    last_producer_epoch: int = NO_EPOCH
    """The epoch before this one, when its holder asked for the change: it may ask again."""
    group: GroupProgress | None = None


@dataclass(frozen=True, slots=True)
class TransactionRemoved:
    """Nothing is known of the id any more."""

    transactional_id: str


TransactionRecord: TypeAlias = TransactionStored | TransactionRemoved
