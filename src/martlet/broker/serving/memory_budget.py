"""The broker's bound on bytes of half-received requests over all connections.

Small partial requests are free; large ones are admitted until the budget is spent, after which their
connections stop reading until others finish. One of the holders is always let go on, so nothing waits for ever.
"""

from typing import Final, Protocol

_FREE_BYTES: Final = 65_536
"""A partial request up to this size is not counted: it fits the receive buffer every connection has anyway."""


class BudgetHolder(Protocol):
    """A connection that holds bytes; called when the budget has space again."""

    def budget_available(self) -> None: ...


class MemoryBudget:
    """Counts held bytes per holder; lives on the event loop, no locks."""

    def __init__(self, bytes_max: int) -> None:
        self._bytes_max = bytes_max
        self._held: dict[BudgetHolder, int] = {}
        self._waiting: dict[BudgetHolder, None] = {}
        self.used_bytes = 0

    def admit(self, holder: BudgetHolder, pending_bytes: int) -> bool:
        """Record that `holder` now holds this number of bytes; False when it should not read on for now."""
        before = self._held.get(holder, 0)
        if pending_bytes <= _FREE_BYTES and not before:
            return True
        counted = pending_bytes if pending_bytes > _FREE_BYTES else 0
        if counted:
            self._held[holder] = counted
        else:
            del self._held[holder]
        self.used_bytes += counted - before
        others_progress = len(self._held) - 1 > len(self._waiting.keys() - {holder})
        if counted > before and self.used_bytes > self._bytes_max and others_progress:
            self._waiting[holder] = None
            return False
        self._waiting.pop(holder, None)
        if counted < before:
            self._wake()
        return True

    def forget(self, holder: BudgetHolder) -> None:
        """The holder is gone with all it held."""
        self._waiting.pop(holder, None)
        freed = self._held.pop(holder, 0)
        self.used_bytes -= freed
        if freed:
            self._wake()

    def _wake(self) -> None:
        waiting, self._waiting = self._waiting, {}
        for holder in waiting:
            holder.budget_available()
