"""What the machine is asked, answers and wants done, apart from the form in which it comes over the wire."""

from dataclasses import dataclass
from typing import Final, NamedTuple

from martlet.base.ids import TopicPartition
from martlet.transactions.records import NO_PAIR, ProducerPair
from martlet.transactions.states import TransactionState

TIMEOUT_NEVER: Final = 2**31 - 1
"""The time-out of producers whose transactions are ended from outside, however long that takes."""


@dataclass(frozen=True, slots=True)
class TransactionsOptions:
    """The broker's settings for transactions."""

    max_timeout_ms: int = 900_000
    id_expiration_ms: int = 7 * 86_400_000
    """How long an id without a transaction is remembered."""
    owner_expiration_ms: int = 30 * 86_400_000
    """The same for the owner of a group."""
    partitions_max: int = 10_000
    """Of one transaction."""
    children_max: int = 10_000
    """Open ones, of one group."""
    two_phase: bool = False
    """Whether a transaction may outlive its client without a time-out, and be ended from elsewhere."""


class InitWish(NamedTuple):
    """A producer asks for its id and epoch."""

    transactional_id: str
    timeout_ms: int
    expected: ProducerPair | None = None
    """The pair that it says it has."""
    two_phase: bool = False
    keep_prepared: bool = False


class InitialisedProducer(NamedTuple):
    """With what the producer goes on, and the pair of the prepared transaction that was kept."""

    pair: ProducerPair
    prepared: ProducerPair = NO_PAIR


class OfTransaction(NamedTuple):
    """Which transaction is meant, and by whom."""

    transactional_id: str
    pair: ProducerPair


@dataclass(frozen=True, slots=True)
class WriteMarkers:
    """An effect: write the markers of a decided transaction to all its partitions. Its outcome is None.

    A partition that does not exist any more needs no marker. The executor goes on until every other one has
    its marker, so the outcome says that all have.
    """

    transactional_id: str
    pair: ProducerPair
    is_commit: bool
    partitions: frozenset[TopicPartition]
    transaction_version: int


class TransactionFilter(NamedTuple):
    """Which transactions a list is to show; None lets all pass."""

    states: frozenset[TransactionState] | None = None
    producer_ids: frozenset[int] | None = None
    older_than_ms: int = -1
