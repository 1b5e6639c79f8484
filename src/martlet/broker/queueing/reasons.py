"""Why messages were rejected, in their holders' words, until their dead letters are written.

Rule: a note, not state: it is lost with the leadership; the rejection itself is not.

Proved by: tests/unit/broker/queueing/test_queue_host.py
"""

from collections.abc import Iterable
from typing import Final

from martlet.queues.engine import Settlement, Verdict

_REASONS_MAX: Final = 1_000
_LENGTH_MAX: Final = 500


class Reasons:
    """Of one pair; bounded, later ones are not noted while it is full."""

    def __init__(self) -> None:
        self._reasons: dict[tuple[str, int], str] = {}

    def note(self, name: str, settlements: Iterable[Settlement], reason: str) -> None:
        """Remember it for the messages that are rejected by these settlements."""
        for settlement in settlements:
            if settlement.verdict is Verdict.REJECT:
                for offset in range(settlement.first, min(settlement.last, settlement.first + _REASONS_MAX) + 1):
                    if len(self._reasons) < _REASONS_MAX:
                        self._reasons[name, offset] = reason[:_LENGTH_MAX]

    def take(self, name: str, offset: int) -> str:
        """Empty when none was noted."""
        return self._reasons.pop((name, offset), "")
