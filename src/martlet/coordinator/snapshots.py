"""When the log under a shard is worth a snapshot: loading reads what lives, not what ever happened.

A snapshot is no file and no record of its own kind. The machine's live records are appended once more, some at a time,
while it goes on serving; once they are committed, the log starts at the first of them. So the bytes stay those of the
machine's records, followers learn of a snapshot by the log start of their leader, and one that was begun and not ended
is a piece of history like any other.

Invariants:
SNAP-1 Every record that is live when a snapshot begins, and no later record takes the place of, is in it.
SNAP-2 The log starts at a snapshot only when the whole of it is committed.

Proved by: tests/unit/coordinator/test_snapshots.py, tests/unit/broker/coordinators/test_shard_snapshots.py,
tests/properties/test_groups_machine.py, tests/sim/test_mutations.py
"""

from dataclasses import dataclass
from typing import Final


@dataclass(frozen=True, slots=True)
class SnapshotRule:
    """A log is left alone up to `min_bytes`, and up to `ratio` times its snapshot behind that."""

    min_bytes: int = 4 << 20
    ratio: int = 4
    """Snapshots add at most a fourth to what is written; loading reads at most five times what lives."""


DEFAULT_SNAPSHOTS: Final = SnapshotRule()


class LogGrowth:
    """How much there is to read at loading, and how much of that is live, as far as is known."""

    __slots__ = ("_paused_until_bytes", "_rule", "live_bytes", "log_bytes")

    def __init__(self, rule: SnapshotRule) -> None:
        self._rule = rule
        self.log_bytes = 0
        """From the start of the log to its end."""
        self.live_bytes: int | None = None
        """What a snapshot took, or would take; None before one was written or measured."""
        self._paused_until_bytes = 0

    @property
    def is_due(self) -> bool:
        """Whether a snapshot pays, or, with `live_bytes` unknown, may pay."""
        live_bytes = self.live_bytes or 0
        least = max(self._rule.min_bytes, (1 + self._rule.ratio) * live_bytes, self._paused_until_bytes)
        return self.log_bytes > least

    def added(self, size: int) -> None:
        """The log has grown, or this much of it was read."""
        self.log_bytes += size

    def restarted(self, log_bytes: int, live_bytes: int) -> None:
        """The log starts at a snapshot of `live_bytes`, and holds `log_bytes` from there on."""
        self.log_bytes, self.live_bytes, self._paused_until_bytes = log_bytes, live_bytes, 0

    def failed(self) -> None:
        """A snapshot could not be completed; the next attempt waits until the log has grown as much again."""
        self._paused_until_bytes = self.log_bytes + self._rule.min_bytes
