"""Forgetting transactional ids that have not been used for long.

Only an id without a transaction is forgotten, and at a time only as many as fit one append; the rest follows at once.
A client that comes back later with its old id and epoch is fenced by not being known: it must begin again.
"""

from typing import Final

from martlet.coordinator.result import Result, SetTimer, TimerKey
from martlet.transactions.names import is_owner
from martlet.transactions.records import TransactionRecord, TransactionRemoved, TransactionStored
from martlet.transactions.requests import TransactionsOptions
from martlet.transactions.table import TransactionTable

SWEEP: Final[TimerKey] = ("sweep",)
SWEEP_INTERVAL_MS: Final = 3_600_000
_REMOVALS_MAX: Final = 1_000
_REST_AFTER_MS: Final = 100


class Expiry:
    """Reads the table of one machine."""

    def __init__(self, table: TransactionTable, options: TransactionsOptions) -> None:
        self._table = table
        self._options = options

    def sweep(self, now_ms: int) -> Result[TransactionRecord]:
        """Tombstones for what is too old, and the next sweep."""
        removed: list[TransactionRecord] = []
        for stored in self._table.all():
            if self._is_expired(stored, now_ms):
                removed.append(TransactionRemoved(stored.transactional_id))
                if len(removed) == _REMOVALS_MAX:
                    break
        delay_ms = _REST_AFTER_MS if len(removed) == _REMOVALS_MAX else SWEEP_INTERVAL_MS
        return Result(records=removed, timers=[SetTimer(SWEEP, delay_ms)])

    def _is_expired(self, stored: TransactionStored, now_ms: int) -> bool:
        if not stored.state.is_idle:
            return False
        options = self._options
        is_of_group = is_owner(stored.transactional_id)
        after_ms = options.owner_expiration_ms if is_of_group else options.id_expiration_ms
        return now_ms - stored.updated_at_ms >= after_ms
