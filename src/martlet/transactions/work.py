"""What a handler collects while it ends transactions: records, timers and effects, for one transaction or many.

A transaction without partitions needs no marker: its decision and its completion are one append. A child of a group is
forgotten when it is complete, so that groups that run for years leave nothing behind.
"""

from typing import Final, TypeVar

from martlet.coordinator.result import CancelTimer, Result, SetTimer, TimerKey
from martlet.transactions.names import shard_key
from martlet.transactions.records import ProducerPair, TransactionRecord, TransactionRemoved, TransactionStored
from martlet.transactions.requests import WriteMarkers
from martlet.transactions.states import TransactionState
from martlet.transactions.transitions import FreshId, Generation, completed, decided

S = TypeVar("S")

_TIMEOUT: Final = "timeout"


def timeout_key(stored: TransactionStored) -> TimerKey:
    """The timer of the open transaction."""
    return (_TIMEOUT, stored.transactional_id)


class TransactionWork:
    """One handler's work."""

    __slots__ = ("_fresh_id", "effects", "now_ms", "records", "timers")

    def __init__(self, fresh_id: FreshId, now_ms: int) -> None:
        self._fresh_id = fresh_id
        self.now_ms = now_ms
        self.records: list[TransactionRecord] = []
        self.timers: list[SetTimer | CancelTimer] = []
        self.effects: list[object] = []

    def decide(
        self, stored: TransactionStored, *, is_commit: bool, generation: Generation, by_client: bool
    ) -> TransactionStored:
        """Note the decision and what follows from it; returns the decision's record."""
        prepared = decided(
            stored,
            is_commit=is_commit,
            generation=generation,
            by_client=by_client,
            fresh_id=self._fresh_id,
            now_ms=self.now_ms,
        )
        self.records.append(prepared)
        self.timers.append(CancelTimer(timeout_key(stored)))
        self.carry_out(prepared)
        return prepared

    def carry_out(self, prepared: TransactionStored) -> None:
        """Have the markers written; without partitions it is complete."""
        if not prepared.partitions:
            self.complete(prepared)
            return
        pair = ProducerPair(prepared.producer_id, prepared.producer_epoch)
        is_commit = prepared.state is TransactionState.PREPARE_COMMIT
        version = prepared.client_version
        self.effects.append(WriteMarkers(prepared.transactional_id, pair, is_commit, prepared.partitions, version))

    def complete(self, prepared: TransactionStored) -> None:
        """Every marker is written."""
        is_child = shard_key(prepared.transactional_id) != prepared.transactional_id
        if is_child:
            self.records.append(TransactionRemoved(prepared.transactional_id))
        else:
            self.records.append(completed(prepared, self.now_ms))

    def result(self, response: S | None = None) -> Result[TransactionRecord, S]:
        return Result(response, self.records, self.timers, (), self.effects)
