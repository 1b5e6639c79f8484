"""The states of a transactional id and which may follow which; the numbers and names are Kafka's.

`DEAD` and `PREPARE_EPOCH_FENCE` exist for the numbers' sake: they are read, never written.
"""

from collections.abc import Mapping
from enum import IntEnum
from typing import Final

from martlet.base.invariant import invariant


class TransactionState(IntEnum):
    """Where a transactional id stands."""

    EMPTY = 0
    """Its producer has an id and epoch and has not opened a transaction with them."""
    ONGOING = 1
    PREPARE_COMMIT = 2
    """Decided; the markers are being written."""
    PREPARE_ABORT = 3
    COMPLETE_COMMIT = 4
    """Every marker is written."""
    COMPLETE_ABORT = 5
    DEAD = 6
    PREPARE_EPOCH_FENCE = 7

    @property
    def label(self) -> str:
        """As tools print it, and as filters name it."""
        return self.name.title().replace("_", "")

    @property
    def is_prepared(self) -> bool:
        """Whether the end is decided and not everywhere known yet."""
        return self in (TransactionState.PREPARE_COMMIT, TransactionState.PREPARE_ABORT)

    @property
    def is_idle(self) -> bool:
        """Whether there is no transaction."""
        return self in _IDLE

    @property
    def completed(self) -> "TransactionState":
        """What a decided transaction becomes."""
        is_commit = self is TransactionState.PREPARE_COMMIT
        return TransactionState.COMPLETE_COMMIT if is_commit else TransactionState.COMPLETE_ABORT


_IDLE: Final = frozenset((TransactionState.EMPTY, TransactionState.COMPLETE_COMMIT, TransactionState.COMPLETE_ABORT))

_LEGAL_BEFORE: Final[Mapping[TransactionState, frozenset[TransactionState]]] = {
    TransactionState.EMPTY: _IDLE,
    TransactionState.ONGOING: _IDLE | {TransactionState.ONGOING},
    TransactionState.PREPARE_COMMIT: frozenset((TransactionState.ONGOING,)),
    TransactionState.PREPARE_ABORT: _IDLE | {TransactionState.ONGOING},
    TransactionState.COMPLETE_COMMIT: frozenset((TransactionState.PREPARE_COMMIT,)),
    TransactionState.COMPLETE_ABORT: frozenset((TransactionState.PREPARE_ABORT,)),
}


def check_transition(before: TransactionState, after: TransactionState) -> None:
    """A decision that takes a transaction where it cannot go is a bug."""
    invariant(
        before in _LEGAL_BEFORE.get(after, frozenset()), f"a transaction goes from {before.label} to {after.label}"
    )


def state_of_label(label: str) -> TransactionState | None:
    """The state that tools call so."""
    return next((state for state in TransactionState if state.label == label), None)
