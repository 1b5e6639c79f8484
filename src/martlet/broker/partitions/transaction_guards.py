"""What a leader asks of batches and markers of transactions before it appends them, and who has leave to open one.

A transaction's first batch on a partition is taken only after its coordinator has said that the partition is in the
transaction: otherwise a batch that was late on its way would open a transaction that is never ended. The leave is
asked for under a guard, an object of its own, and holds only while the same guard is still there: an append or a marker
that came in between takes it away, and so does the end of the leadership.

Rules: looks at the partition's memory of producers and changes nothing there. The order of the checks is Kafka's, as
clients end at some codes and go on at others: a batch that is in the log already is answered as such, an old epoch is
INVALID_PRODUCER_EPOCH, and only then is a missing leave INVALID_TXN_STATE.

Proved by: tests/unit/broker/partitions/test_transaction_guards.py
"""

from typing import NamedTuple

from martlet.base.errors import ApiError, ErrorCode
from martlet.base.ids import NO_OFFSET
from martlet.log.producer_state import ProducerEntry, ProducerStates
from martlet.wire.batch import BatchHeader

SECOND_GENERATION = 2
"""From this `transaction.version` on every end of a transaction raises the epoch."""


class Guard:
    """One question under way, or answered; two are the same only if they are one object."""

    __slots__ = ("epoch",)

    def __init__(self, epoch: int) -> None:
        self.epoch = epoch


class TransactionGuards:
    """Of one partition at one leadership, by producer id."""

    __slots__ = ("_guards",)

    def __init__(self) -> None:
        self._guards: dict[int, Guard] = {}

    def __len__(self) -> int:
        return len(self._guards)

    def ask(self, producer_id: int, epoch: int) -> Guard:
        """The guard of a question that is to be asked; raises for an epoch older than one that is asked about."""
        known = self._guards.get(producer_id)
        if known is not None and known.epoch == epoch:
            return known
        if known is not None and known.epoch > epoch:
            raise _old_epoch(producer_id, known.epoch, epoch)
        guard = self._guards[producer_id] = Guard(epoch)
        return guard

    def holds(self, producer_id: int, guard: Guard | None) -> bool:
        """Whether nothing has happened since this guard was given."""
        return guard is not None and self._guards.get(producer_id) is guard

    def drop(self, producer_id: int, guard: Guard | None = None) -> None:
        """The question is settled; with a guard only if it is still that one."""
        if guard is None or self._guards.get(producer_id) is guard:
            self._guards.pop(producer_id, None)

    def marker_written(self, producer_id: int, epoch: int, version: int) -> None:
        """A transaction has ended; only the next one of the second generation may be waiting already."""
        known = self._guards.get(producer_id)
        if known is not None and not (version >= SECOND_GENERATION and known.epoch == epoch):
            del self._guards[producer_id]

    def clear(self) -> None:
        """The leadership is over."""
        self._guards.clear()


class MarkerOf(NamedTuple):
    """Whose transaction a marker ends, which way, and which coordinator says so."""

    producer_id: int
    producer_epoch: int
    is_commit: bool
    coordinator_epoch: int
    version: int
    """The generation of the transaction."""


def may_append_unasked(producers: ProducerStates, header: BatchHeader) -> bool:
    """Whether a transactional batch is in an open transaction here, or in the log already; raises for an old epoch."""
    entry = producers.get(header.producer_id)
    if entry is None or header.producer_epoch > entry.epoch:
        return False
    if header.producer_epoch < entry.epoch:
        raise _old_epoch(header.producer_id, entry.epoch, header.producer_epoch)
    return entry.current_txn_first_offset != NO_OFFSET or _is_repeat(entry, header)


def check_leave(
    producers: ProducerStates, guards: TransactionGuards, header: BatchHeader, guard: Guard | None, *, adds: bool
) -> None:
    """Raise when a transactional batch may not be appended now; `adds`: it is of the second generation."""
    if may_append_unasked(producers, header):
        return
    if not guards.holds(header.producer_id, guard) or (guard is not None and guard.epoch != header.producer_epoch):
        detail = f"producer {header.producer_id} has no open transaction on this partition"
        raise ApiError(ErrorCode.INVALID_TXN_STATE, detail)
    if adds and producers.get(header.producer_id) is None and header.base_sequence > 0:
        detail = f"producer {header.producer_id} is not known here and begins at {header.base_sequence}, not 0"
        raise ApiError(ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, detail)


def check_outside(producers: ProducerStates, header: BatchHeader) -> None:
    """Raise when a batch without a transaction comes from a producer that has one open here."""
    entry = producers.get(header.producer_id)
    if entry is not None and entry.current_txn_first_offset != NO_OFFSET and not _is_repeat(entry, header):
        detail = f"producer {header.producer_id} has an open transaction, and the batch is not in it"
        raise ApiError(ErrorCode.INVALID_TXN_STATE, detail)


def check_marker(producers: ProducerStates, marker: MarkerOf) -> None:
    """Raise for a marker of an older transaction than the partition knows of, or of a coordinator that was replaced.

    One that comes a second time is accepted: the first answer may have been lost.
    """
    entry = producers.get(marker.producer_id)
    if entry is None:
        return
    is_open = entry.current_txn_first_offset != NO_OFFSET
    is_raised = marker.version < SECOND_GENERATION or marker.producer_epoch > entry.epoch or not is_open
    if marker.producer_epoch < entry.epoch or not is_raised:
        raise _old_epoch(marker.producer_id, entry.epoch, marker.producer_epoch)
    if marker.coordinator_epoch < entry.coordinator_epoch:
        detail = f"coordinator epoch {marker.coordinator_epoch} is older than {entry.coordinator_epoch}"
        raise ApiError(ErrorCode.TRANSACTION_COORDINATOR_FENCED, detail)


def _is_repeat(entry: ProducerEntry, header: BatchHeader) -> bool:
    if header.base_sequence < 0 or header.producer_epoch != entry.epoch:
        return False
    first, last = header.base_sequence, header.last_sequence
    return any(batch.first_sequence == first and batch.last_sequence == last for batch in entry.batches)


def _old_epoch(producer_id: int, known: int, epoch: int) -> ApiError:
    return ApiError(
        ErrorCode.INVALID_PRODUCER_EPOCH, f"producer {producer_id} is at epoch {known}, the request at {epoch}"
    )
