"""What is due is handed over by the partition's delay index to one subscription, each message once.

How it works: a message that is due later is moved aside in the window, so that the start passes it; when its time has
come it becomes a stray that waits. How far that went, by due time and offset, is stored with every record of the
subscription, together with its frontier.

Rules: only what was met, lies after the subscription's begin, is in the log, and is neither cancelled nor known already
is handed over. While a part of the index is missing nothing is.

Proved by: tests/unit/queues/test_frontier.py, tests/properties/test_queue_features.py
"""

from typing import Final

from martlet.queues.cells import STRAY, WAITING
from martlet.queues.delay_index import LAST_OFFSET
from martlet.queues.delay_run import Entry
from martlet.queues.features import Schedule
from martlet.queues.ledger import Ledger
from martlet.queues.records import ReleasedUpTo
from martlet.queues.strays import Stray

RELEASED_AT_ONCE: Final = 500
"""Due messages that one call hands over at most."""


class Releases:
    """Of one subscription; without a schedule no message is delayed."""

    __slots__ = ("_ledger", "schedule")

    def __init__(self, ledger: Ledger, schedule: Schedule | None) -> None:
        self._ledger = ledger
        self.schedule = schedule

    @property
    def upto(self) -> Entry:
        released = self._ledger.changes.released
        return (-1, -1) if released is None else (released.due_ms, released.offset)

    def set_out(self, now_ms: int) -> None:
        """From the first moment on, what is due later than now belongs to the index."""
        changes = self._ledger.changes
        if changes.released is None and self.schedule is not None:
            changes.released = ReleasedUpTo(self._ledger.window.start, max(0, now_ms), LAST_OFFSET)

    def release_due(self, now_ms: int, strays_max: int) -> bool:
        """Make strays of scheduled messages that are due; whether there are more of them."""
        schedule, ledger = self.schedule, self._ledger
        self.set_out(now_ms)
        released = ledger.changes.released
        if schedule is None or released is None or not self.is_possible(strays_max):
            return False
        room = min(strays_max - len(ledger.strays), RELEASED_AT_ONCE)
        entries = schedule.due(self.upto, now_ms, room)
        if not schedule.is_complete:
            return False  # a part was found damaged just now: what was found may lack some
        for _, offset in entries:
            if offset >= ledger.window.frontier:
                continue  # it will be found due, or cancelled, when it is met
            if ledger.changes.cancelled.pop(offset, None) is None and self.is_scheduled(offset, released.begin):
                ledger.strays.put(Stray(offset, WAITING, 0))
                ledger.changes.note_stray(offset)
        upto = entries[-1] if len(entries) == room else max(self.upto, (now_ms, LAST_OFFSET))
        ledger.changes.released = ReleasedUpTo(released.begin, *upto)
        return len(entries) == room

    def is_possible(self, strays_max: int) -> bool:
        schedule, ledger = self.schedule, self._ledger
        return (
            schedule is not None
            and schedule.is_complete
            and schedule.covered_end >= ledger.window.frontier
            and len(ledger.strays) < strays_max
        )

    def is_scheduled(self, offset: int, begin: int) -> bool:
        """Whether this delayed message was met, was moved aside for the index, and is nothing else yet."""
        ledger = self._ledger
        window = ledger.window
        if not max(begin, ledger.log_start) <= offset < window.frontier or offset in ledger.strays:
            return False
        return offset < window.start or window.cell(offset) == STRAY

    def next_due_ms(self, strays_max: int) -> int | None:
        """When the next message is due; None while what is due has no room."""
        if self.schedule is None or self._ledger.changes.released is None or not self.is_possible(strays_max):
            return None
        return self.schedule.next_due_ms(self.upto)

    def scheduled(self) -> int:
        """How many delayed messages are not due yet; those that the filter leaves out are counted too."""
        schedule = self.schedule
        if schedule is None or self._ledger.changes.released is None:
            return 0
        return max(0, schedule.pending(self.upto) - len(self._ledger.changes.cancelled))

    def is_pending(self, due_ms: int, offset: int) -> bool:
        """Whether this message, which is due then, is scheduled and neither cancelled nor handed over."""
        released = self._ledger.changes.released
        if released is None or (due_ms, offset) <= self.upto or offset in self._ledger.changes.cancelled:
            return False
        return self.is_scheduled(offset, released.begin)

    def oldest_scheduled(self) -> int | None:
        """Not above the lowest offset that the log must keep for what is scheduled."""
        schedule, released = self.schedule, self._ledger.changes.released
        if schedule is None or released is None:
            return None
        oldest = schedule.oldest_after(self.upto)
        return None if oldest is None else max(oldest, released.begin, self._ledger.log_start)
