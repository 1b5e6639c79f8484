"""The end of attempts that failed: messages that a holder gives back, loses by time, or never got.

Proved by: tests/unit/queues/test_engine.py, tests/properties/test_queue_engine.py
"""

from martlet.base.randomness import Randomness
from martlet.queues.cells import BACKING_OFF, CLOSING, EXHAUSTED, LEASED, STRAY, WAITING
from martlet.queues.leases import Lease
from martlet.queues.ledger import Ledger
from martlet.queues.retry import RetryPolicy
from martlet.queues.strays import Stray
from martlet.queues.window import CellRun


class Attempts:
    """Ends attempts in a ledger as the retry policy in force says."""

    def __init__(self, ledger: Ledger, retry: RetryPolicy, randomness: Randomness) -> None:
        self.retry = retry
        self._ledger = ledger
        self._randomness = randomness

    def give_back(self, first: int, last: int, now_ms: int, delay_ms: int | None = None) -> None:
        """The attempt at these leased messages is over, and has failed; the policy says when the next may begin.

        With `delay_ms` its holder has said it.
        """
        for run in list(self._ledger.window.runs(first, last)):
            self._ledger.leave(run.first, run.last)
            self._retry(run, now_ms, delay_ms)

    def give_back_stray(self, stray: Stray, now_ms: int, delay_ms: int | None = None) -> None:
        self._ledger.leave_stray(stray)
        self._retry_stray(stray, now_ms, delay_ms)

    def _pause_ms(self, attempts: int, delay_ms: int | None) -> int:
        return self.retry.pause_ms(attempts, self._randomness) if delay_ms is None else delay_ms

    def _retry(self, run: CellRun, now_ms: int, delay_ms: int | None) -> None:
        """What becomes of leased neighbours whose attempt has failed."""
        self._ledger.changes.note(run.first, run.last)
        retry = self.retry
        if retry.has_ended(run.attempts):
            self._ledger.window.move(run.first, run.last, LEASED, CLOSING + EXHAUSTED)
        elif retry.is_immediate if delay_ms is None else not delay_ms:
            self._ledger.window.move(run.first, run.last, LEASED, WAITING)
        else:
            self._ledger.window.move(run.first, run.last, LEASED, STRAY)
            for offset in range(run.first, run.last + 1):
                ready_ms = now_ms + self._pause_ms(run.attempts, delay_ms)
                self._ledger.strays.put(Stray(offset, BACKING_OFF, run.attempts, ready_ms))
                self._ledger.changes.note_stray(offset)

    def _retry_stray(self, stray: Stray, now_ms: int, delay_ms: int | None) -> None:
        self._ledger.changes.note_stray(stray.offset)
        if self.retry.has_ended(stray.attempts):
            self._ledger.strays.set_cell(stray, CLOSING + EXHAUSTED)
            return
        pause_ms = self._pause_ms(stray.attempts, delay_ms)
        stray.ready_ms = now_ms + pause_ms
        self._ledger.strays.set_cell(stray, BACKING_OFF if pause_ms else WAITING)

    def end(self, lease: Lease, now_ms: int, *, is_attempt: bool) -> None:
        lease.is_over = True
        window = self._ledger.window
        first, last = max(lease.first, window.start), min(lease.last, window.frontier - 1)
        for begin, end in self._ledger.held_under(lease, first, last):
            if is_attempt:
                self.give_back(begin, end, now_ms)
            else:
                self.take_back(begin, end)
        for offset in sorted(lease.strays):
            stray = self._ledger.strays.get(offset)
            if stray is None or stray.cell != LEASED:
                continue
            if is_attempt:
                self.give_back_stray(stray, now_ms)
            else:
                self.take_back_stray(stray)

    def take_back_stray(self, stray: Stray) -> None:
        """It was leased and not delivered: the attempt does not count."""
        stray.attempts -= 1
        self._ledger.leave_stray(stray)
        self._ledger.strays.set_cell(stray, WAITING)

    def take_back(self, first: int, last: int) -> None:
        """These messages were leased and not delivered: the attempt does not count."""
        for run in list(self._ledger.window.runs(first, last)):
            self._ledger.leave(run.first, run.last)
            self._ledger.window.set_attempts(run.first, run.last, run.attempts - 1)
            self._ledger.window.move(run.first, run.last, LEASED, WAITING)
