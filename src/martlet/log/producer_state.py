"""What idempotent producers have written to one partition: the memory that turns a retry into an answer.

Rules: pure; fed with batch headers, by the leader's appends (`check`, then `record`) and by replaying a log (`record`
alone). Nothing here comes from anywhere but the log, so every replica and every restart arrives at the same state.

How it works: per producer id the current epoch and the last five batches. A batch whose sequence numbers are those of
one of the five is a duplicate and gets the offset it got the first time. Otherwise its first number must follow the
last one, or be 0 in a newer epoch. Without any memory of a producer every number is accepted: the memory may have been
lost with deleted records or have expired.

Transactions. A transactional batch of a producer without an open transaction opens one, a marker closes it, also one
of a later epoch. Neither a marker nor a coordinator's batch has sequence numbers (-1), so none are judged or moved. A
batch that compaction has emptied opens nothing: what was compacted was decided. A leader refuses markers of old epochs
(`check_marker`); a replay applies every one.

Invariants: PROD-1 per producer and epoch every sequence number enters the log once and in order; PROD-2 checks change
nothing; PROD-3 numbers wrap from 2³¹−1 to 0; PROD-4 while a transaction is open its producer writes only inside it.
Proved by: tests/unit/log/test_producer_state.py, tests/properties/test_log_model.py
"""

from collections.abc import Iterator
from typing import Final, NamedTuple

from martlet.base.errors import ApiError, ErrorCode
from martlet.base.ids import NO_OFFSET
from martlet.log.aborted_index import AbortedTransaction
from martlet.log.open_transactions import OpenTransactions
from martlet.wire.batch import CONTROL_BIT, TRANSACTIONAL_BIT, BatchHeader, TransactionMarker

WINDOW: Final = 5
"""Clients have at most this many batches under way to a partition."""
_SEQUENCE_MODULUS: Final = 1 << 31
_TRANSACTION_BITS: Final = TRANSACTIONAL_BIT | CONTROL_BIT


class KnownBatch(NamedTuple):
    """A batch a producer has written; `timestamp_ms` is when it was appended."""

    first_sequence: int
    last_sequence: int
    last_offset: int
    offset_delta: int
    timestamp_ms: int

    @property
    def base_offset(self) -> int:
        return self.last_offset - self.offset_delta


class ProducerEntry:
    """One producer on this partition."""

    __slots__ = (
        "batches",
        "coordinator_epoch",
        "current_txn_first_offset",
        "epoch",
        "last_timestamp_ms",
        "next_sequence",
    )

    def __init__(self, epoch: int, timestamp_ms: int) -> None:
        self.epoch = epoch
        self.batches: list[KnownBatch] = []
        self.next_sequence = 0
        self.last_timestamp_ms = timestamp_ms
        self.coordinator_epoch = -1
        self.current_txn_first_offset: int = NO_OFFSET
        """Where its open transaction begins."""

    @property
    def last_sequence(self) -> int:
        """The last number written, -1 when this epoch has written none."""
        return self.batches[-1].last_sequence if self.batches else -1

    def add(self, batch: KnownBatch) -> None:
        batches = self.batches
        batches.append(batch)
        if len(batches) > WINDOW:
            del batches[0]
        self.next_sequence = (batch.last_sequence + 1) % _SEQUENCE_MODULUS
        self.last_timestamp_ms = batch.timestamp_ms


class ProducerStates:
    """The producers of one partition by id."""

    __slots__ = ("_entries", "transactions")

    def __init__(self) -> None:
        self._entries: dict[int, ProducerEntry] = {}
        self.transactions = OpenTransactions()

    def __len__(self) -> int:
        return len(self._entries)

    def items(self) -> Iterator[tuple[int, ProducerEntry]]:
        """Producer ids with their entries, in order of first appearance."""
        return iter(self._entries.items())

    def get(self, producer_id: int) -> ProducerEntry | None:
        return self._entries.get(producer_id)

    def check(self, header: BatchHeader) -> KnownBatch | None:
        """None when the batch may be appended, the original when it is a duplicate; raises ApiError otherwise."""
        entry = self._entries.get(header.producer_id)
        if entry is None:
            return None
        if header.producer_epoch == entry.epoch:
            if header.base_sequence == entry.next_sequence:
                if entry.current_txn_first_offset != NO_OFFSET:
                    _check_inside(header, entry)
                return None
            return None if _has_no_sequence(header) else _duplicate_or_gap(header, entry)
        if header.producer_epoch < entry.epoch:
            raise ApiError(
                ErrorCode.INVALID_PRODUCER_EPOCH,
                f"producer {header.producer_id} is at epoch {entry.epoch}, the batch at {header.producer_epoch}",
            )
        if header.base_sequence != 0 and not _has_no_sequence(header):
            raise ApiError(
                ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
                f"producer {header.producer_id} begins epoch {header.producer_epoch} at {header.base_sequence}, not 0",
            )
        if entry.current_txn_first_offset != NO_OFFSET:
            _check_inside(header, entry)
        return None

    def check_marker(self, header: BatchHeader, marker: TransactionMarker, *, transaction_version: int = 0) -> None:
        """Raise ApiError for a marker that a leader must not append: it would end another transaction than its own.

        From version 2 of transactions on every end has an epoch of its own, so an equal one is the repeat of a marker
        that is there, which is harmless, or belongs to a transaction that is not open any more.
        """
        entry = self._entries.get(header.producer_id)
        if entry is None:
            return
        is_open = entry.current_txn_first_offset != NO_OFFSET
        epoch = header.producer_epoch
        if epoch < entry.epoch or (transaction_version >= 2 and epoch == entry.epoch and is_open):
            raise ApiError(
                ErrorCode.INVALID_PRODUCER_EPOCH,
                f"producer {header.producer_id} is at epoch {entry.epoch}, the marker at {epoch}",
            )
        if marker.coordinator_epoch < entry.coordinator_epoch:
            raise ApiError(
                ErrorCode.TRANSACTION_COORDINATOR_FENCED,
                f"producer {header.producer_id} has a marker of coordinator epoch {entry.coordinator_epoch}, "
                f"this one is of {marker.coordinator_epoch}",
            )

    def record(
        self, header: BatchHeader, last_offset: int, timestamp_ms: int, marker: TransactionMarker | None = None
    ) -> AbortedTransaction | None:
        """Remember a batch that is in the log; of `header` all but the base offset counts.

        `marker` is what a control batch holds. Returns the transaction that it has aborted, if that has data.
        """
        entry = self._entries.get(header.producer_id)
        if entry is None or entry.epoch != header.producer_epoch:
            entry = self._begin_epoch(header, entry, timestamp_ms)
        sequence = header.base_sequence
        if header.attributes & _TRANSACTION_BITS:
            if header.is_control:
                entry.last_timestamp_ms = timestamp_ms
                return None if marker is None else self._end_transaction(header.producer_id, entry, marker, last_offset)
            if entry.current_txn_first_offset == NO_OFFSET and header.record_count:
                entry.current_txn_first_offset = last_offset - header.last_offset_delta
                self.transactions.begin(header.producer_id, entry.current_txn_first_offset)
            if sequence < 0:
                entry.last_timestamp_ms = timestamp_ms
                return None
        delta = header.last_offset_delta
        last_sequence = (sequence + delta) % _SEQUENCE_MODULUS
        entry.add(KnownBatch(sequence, last_sequence, last_offset, delta, timestamp_ms))
        return None

    def record_lost_abort(self, aborted: AbortedTransaction) -> None:
        """An abort marker is in the log but cannot be read any more."""
        entry = self._entries.get(aborted.producer_id)
        if entry is not None and entry.current_txn_first_offset != NO_OFFSET:
            entry.current_txn_first_offset = NO_OFFSET
            self.transactions.decide(aborted.producer_id, aborted.last_offset)

    def restore(self, producer_id: int, entry: ProducerEntry) -> None:
        """Take an entry over from a snapshot."""
        self._entries[producer_id] = entry

    def restore_transactions(self) -> None:
        """All entries of a snapshot have been taken over."""
        self.transactions.restore(
            (producer_id, entry.current_txn_first_offset)
            for producer_id, entry in self._entries.items()
            if entry.current_txn_first_offset != NO_OFFSET
        )

    def become(self, other: "ProducerStates") -> None:
        """Take over all that `other` holds, in place of what is here."""
        self._entries, self.transactions = dict(other.items()), other.transactions

    def expire(self, now_ms: int, expiration_ms: int) -> int:
        """Forget producers that have not written for that long; returns how many."""
        expired = [
            producer_id
            for producer_id, entry in self._entries.items()
            if now_ms - entry.last_timestamp_ms >= expiration_ms and entry.current_txn_first_offset == NO_OFFSET
        ]
        for producer_id in expired:
            del self._entries[producer_id]
        return len(expired)

    def _begin_epoch(self, header: BatchHeader, old: ProducerEntry | None, timestamp_ms: int) -> ProducerEntry:
        entry = ProducerEntry(header.producer_epoch, timestamp_ms)
        if old is not None:
            entry.coordinator_epoch = old.coordinator_epoch
            entry.current_txn_first_offset = old.current_txn_first_offset
        self._entries[header.producer_id] = entry
        return entry

    def _end_transaction(
        self, producer_id: int, entry: ProducerEntry, marker: TransactionMarker, marker_offset: int
    ) -> AbortedTransaction | None:
        entry.current_txn_first_offset = NO_OFFSET
        entry.coordinator_epoch = marker.coordinator_epoch
        decided = self.transactions.decide(producer_id, marker_offset)
        if decided is None or marker.is_commit:
            return None
        return AbortedTransaction(producer_id, decided.first_offset, marker_offset, decided.next_unstable)


def _has_no_sequence(header: BatchHeader) -> bool:
    """Whether it is a marker or a batch of a coordinator."""
    return header.base_sequence < 0 and header.attributes & _TRANSACTION_BITS != 0


def _check_inside(header: BatchHeader, entry: ProducerEntry) -> None:
    """Refuse a batch outside the transaction that its producer has open (PROD-4)."""
    if not header.is_transactional:
        raise ApiError(
            ErrorCode.INVALID_TXN_STATE,
            f"producer {header.producer_id} has a transaction open since offset {entry.current_txn_first_offset}, "
            "the batch is outside it",
        )


def _duplicate_or_gap(header: BatchHeader, entry: ProducerEntry) -> KnownBatch:
    first_sequence, last_sequence = header.base_sequence, header.last_sequence
    for batch in entry.batches:
        if batch.first_sequence == first_sequence and batch.last_sequence == last_sequence:
            return batch
    raise ApiError(
        ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
        f"producer {header.producer_id} sent {first_sequence} where {entry.next_sequence} was due",
    )
