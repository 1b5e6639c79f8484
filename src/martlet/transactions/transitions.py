"""How one transactional id goes from state to state: from the record that stands to the record that is to be written.

Every function here returns a new record and changes nothing; whether the caller may ask for it was checked before.

Epochs. A client uses 0 to 32,766; 32,767 is for a marker alone. A producer that has used up its epochs goes on with a
fresh producer id. In the second generation every end raises the epoch, and the marker carries the raised one, so that
no batch of the ended transaction is taken afterwards. In the first generation only a change of the producer does.

A prepared transaction that is kept has two pairs until its end: the record's own, which its data carry, and the
client's (`next_…`), which alone may end it and is raised by everyone who takes it over.
"""

from collections.abc import Callable
from dataclasses import replace
from enum import IntEnum
from typing import Final, TypeAlias

from martlet.base.errors import ApiError, ErrorCode
from martlet.base.ids import NO_PRODUCER_ID, TopicPartition
from martlet.transactions.records import (
    NO_EPOCH,
    NO_PAIR,
    NO_PARTITIONS,
    ProducerPair,
    TransactionStored,
)
from martlet.transactions.states import TransactionState, check_transition

LAST_CLIENT_EPOCH: Final = 32_766

FreshId: TypeAlias = Callable[[], int]
"""A producer id that has never been given; raises ApiError while there is none at hand."""


class Generation(IntEnum):
    """Which of the two protocols the client of a transaction speaks."""

    FIRST = 0
    SECOND = 2


def holds_two_pairs(stored: TransactionStored) -> bool:
    """Whether it is a prepared transaction that was taken over."""
    return stored.state is TransactionState.ONGOING and stored.next_producer_epoch != NO_EPOCH


def client_pair(stored: TransactionStored) -> ProducerPair:
    """What the producer has to name itself by now."""
    if holds_two_pairs(stored):
        return ProducerPair(stored.next_producer_id, stored.next_producer_epoch)
    return ProducerPair(stored.producer_id, stored.producer_epoch)


def raised(pair: ProducerPair, fresh_id: FreshId) -> ProducerPair:
    """The next pair of the same producer."""
    if pair.epoch >= LAST_CLIENT_EPOCH:
        return ProducerPair(fresh_id(), 0)
    return ProducerPair(pair.id, pair.epoch + 1)


# --- a producer begins


def newcomer(transactional_id: str, producer_id: int, timeout_ms: int) -> TransactionStored:
    """An id that has never been seen, before its first `initialised`."""
    return TransactionStored(transactional_id, producer_id, NO_EPOCH, timeout_ms)


def initialised(
    stored: TransactionStored, expected: ProducerPair | None, timeout_ms: int, fresh_id: FreshId, now_ms: int
) -> TransactionStored:
    """The producer gets a pair that fences every older one; `expected` is the pair it says it has.

    One that asks again, because the answer was lost, gets what it got. Raises PRODUCER_FENCED.
    """
    last = expected.epoch if expected is not None and stored.producer_epoch != NO_EPOCH else NO_EPOCH
    pair = ProducerPair(stored.producer_id, stored.producer_epoch)
    if expected is None or stored.producer_epoch in (NO_EPOCH, expected.epoch):
        pair = raised(pair, fresh_id)
    elif expected.epoch != stored.last_producer_epoch:
        raise fenced(stored)
    changed = pair.id != stored.producer_id
    check_transition(stored.state, TransactionState.EMPTY)
    return replace(
        stored,
        producer_id=pair.id,
        producer_epoch=pair.epoch,
        timeout_ms=timeout_ms,
        state=TransactionState.EMPTY,
        partitions=NO_PARTITIONS,
        updated_at_ms=now_ms,
        started_at_ms=-1,
        previous_producer_id=stored.producer_id if changed else stored.previous_producer_id,
        last_producer_epoch=last,
    )


def check_expected_id(stored: TransactionStored, expected: ProducerPair) -> None:
    """Raise PRODUCER_FENCED unless the producer id is, or before its epochs ran out was, the one that stands."""
    is_rotated = expected.id == stored.previous_producer_id and expected.epoch >= LAST_CLIENT_EPOCH
    is_current = expected.id == client_pair(stored).id or stored.producer_epoch == NO_EPOCH
    if not (is_current or is_rotated):
        raise fenced(stored)


def fenced(stored: TransactionStored) -> ApiError:
    """Another producer has taken the id over."""
    name = stored.transactional_id[:100]
    return ApiError(ErrorCode.PRODUCER_FENCED, f"a newer producer uses the transactional id {name!r}")


# --- a transaction grows


def with_partitions(
    stored: TransactionStored, partitions: frozenset[TopicPartition], generation: Generation, now_ms: int
) -> TransactionStored:
    """The transaction, opened now if it was not, has these partitions too."""
    check_transition(stored.state, TransactionState.ONGOING)
    is_open = stored.state is TransactionState.ONGOING
    return replace(
        stored,
        state=TransactionState.ONGOING,
        partitions=stored.partitions | partitions if is_open else partitions,
        updated_at_ms=now_ms,
        started_at_ms=stored.started_at_ms if is_open else now_ms,
        client_version=generation.value,
    )


def kept(stored: TransactionStored, timeout_ms: int, fresh_id: FreshId, now_ms: int) -> TransactionStored:
    """A prepared transaction is taken over by a new client, which alone may end it."""
    pair = raised(client_pair(stored), fresh_id)
    return replace(
        stored,
        timeout_ms=timeout_ms,
        updated_at_ms=now_ms,
        next_producer_id=pair.id,
        next_producer_epoch=pair.epoch,
    )


# --- a transaction ends


def decided(
    stored: TransactionStored,
    *,
    is_commit: bool,
    generation: Generation,
    by_client: bool,
    fresh_id: FreshId,
    now_ms: int,
) -> TransactionStored:
    """The end is decided; an end that the client did not ask for raises the epoch and leaves it no way back."""
    state = TransactionState.PREPARE_COMMIT if is_commit else TransactionState.PREPARE_ABORT
    check_transition(stored.state, state)
    started_at_ms = stored.started_at_ms if stored.state is TransactionState.ONGOING else now_ms
    partitions = stored.partitions if stored.state is TransactionState.ONGOING else NO_PARTITIONS
    ended = replace(stored, state=state, partitions=partitions, updated_at_ms=now_ms, started_at_ms=started_at_ms)
    if generation is Generation.FIRST and by_client and not holds_two_pairs(stored):
        return replace(ended, client_version=generation.value)
    next_pair = NO_PAIR
    if holds_two_pairs(stored):
        next_pair = raised(client_pair(stored), fresh_id)
    elif stored.producer_epoch >= LAST_CLIENT_EPOCH:
        next_pair = ProducerPair(fresh_id(), NO_EPOCH)
    return replace(
        ended,
        producer_epoch=stored.producer_epoch + 1,
        next_producer_id=next_pair.id,
        next_producer_epoch=next_pair.epoch,
        client_version=Generation.SECOND.value,
        last_producer_epoch=stored.producer_epoch if by_client else NO_EPOCH,
    )


def pair_after(prepared: TransactionStored) -> ProducerPair:
    """With what the producer goes on after a decision."""
    if prepared.next_producer_id != NO_PRODUCER_ID:
        return ProducerPair(prepared.next_producer_id, max(prepared.next_producer_epoch, 0))
    return ProducerPair(prepared.producer_id, prepared.producer_epoch)


def completed(prepared: TransactionStored, now_ms: int) -> TransactionStored:
    """Every marker is written."""
    state = prepared.state.completed
    check_transition(prepared.state, state)
    pair = pair_after(prepared)
    changed = pair.id != prepared.producer_id
    return replace(
        prepared,
        producer_id=pair.id,
        producer_epoch=pair.epoch,
        state=state,
        partitions=NO_PARTITIONS,
        updated_at_ms=now_ms,
        previous_producer_id=prepared.producer_id if changed else prepared.previous_producer_id,
        next_producer_id=NO_PRODUCER_ID,
        next_producer_epoch=NO_EPOCH,
    )
