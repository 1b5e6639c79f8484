"""What holders say of their messages: checked as a whole, then applied.

Rules: a request is applied whole or refused whole. Nothing is stored here: what changed is noted, and is part of the
next change.

Proved by: tests/unit/queues/test_engine.py, tests/properties/test_queue_engine.py
"""

from collections.abc import Sequence
from enum import IntEnum
from typing import NamedTuple

from martlet.base.errors import ApiError, ErrorCode
from martlet.queues.attempts import Attempts
from martlet.queues.cells import ACKNOWLEDGED, CLOSING, GAP, LEASED, NAMES, REJECTED, STRAY, Cell
from martlet.queues.ledger import Ledger
from martlet.queues.strays import Stray


class Verdict(IntEnum):
    """What a holder says about a message; the numbers are those of the wire."""

    GAP = 0
    ACCEPT = 1
    RELEASE = 2
    REJECT = 3
    RENEW = 4


_FINISHING = {Verdict.GAP: GAP, Verdict.ACCEPT: ACKNOWLEDGED, Verdict.REJECT: REJECTED}


class Settlement(NamedTuple):
    """A verdict on a range of offsets."""

    first: int
    last: int
    verdict: Verdict


class Settling:
    """Applies settlements to a ledger."""

    def __init__(self, ledger: Ledger, attempts: Attempts) -> None:
        self._ledger = ledger
        self._attempts = attempts

    def check(self, holder: str | None, settlements: Sequence[Settlement], attempt: int | None) -> None:
        """Raise an ApiError when any of this cannot be applied."""
        previous = -1
        for settlement in settlements:
            if not previous < settlement.first <= settlement.last < self._ledger.window.frontier:
                reason = f"offsets {settlement.first} to {settlement.last}, of which not all were delivered"
                raise ApiError(ErrorCode.INVALID_REQUEST, reason)
            previous = settlement.last
            self._check_held(settlement, holder, attempt)

    def _check_held(self, settlement: Settlement, holder: str | None, attempt: int | None) -> None:
        window = self._ledger.window
        first, last = max(settlement.first, window.start), settlement.last
        if first <= last and attempt is None and window.has_only(first, last, LEASED):
            self._check_slots(window.slots(first, last), holder, settlement)
            return
        moved = 0
        if first <= last:
            for run in window.runs(first, last):
                if run.cell == LEASED and attempt in (None, run.attempts):
                    self._check_slots(window.slots(run.first, run.last), holder, settlement)
                elif run.cell == STRAY:
                    moved += run.last - run.first + 1
                else:
                    raise _not_held(run.first, run.cell)
        for stray in self._ledger.strays.within(settlement.first, last):
            if stray.cell != LEASED or attempt not in (None, stray.attempts):
                raise _not_held(stray.offset, stray.cell)
            self._check_slots({stray.slot: 1}, holder, settlement)
            moved -= stray.offset >= first
        if moved > 0:
            raise _not_held(settlement.first, ACKNOWLEDGED)

    def _check_slots(self, slots: dict[int, int], holder: str | None, settlement: Settlement) -> None:
        if holder is not None and any(self._ledger.leases[slot].holder != holder for slot in slots):
            reason = f"offsets {settlement.first} to {settlement.last} are leased by another"
            raise ApiError(ErrorCode.INVALID_RECORD_STATE, reason)

    def apply(self, settlement: Settlement, now_ms: int, until_ms: int, delay_ms: int | None) -> None:
        """One settlement that has passed every check; a renewal ends at `until_ms`."""
        strays = self._ledger.strays.within(settlement.first, settlement.last)
        first, last = max(settlement.first, self._ledger.window.start), settlement.last
        ranges: list[tuple[int, int]] = []
        if first <= last:
            ranges = [(first, last)]
            if strays:
                ranges = [(run.first, run.last) for run in self._ledger.window.runs(first, last) if run.cell == LEASED]
        target = _FINISHING.get(settlement.verdict)
        for begin, end in ranges:
            if target is not None:
                self._ledger.window.move(begin, end, LEASED, CLOSING + target)
                self._ledger.changes.note(begin, end)
            elif settlement.verdict is Verdict.RENEW:
                self._renew(begin, end, until_ms)
            else:
                self._attempts.give_back(begin, end, now_ms, delay_ms)
        for stray in strays:
            if target is not None:
                self._ledger.strays.set_cell(stray, CLOSING + target)
                self._ledger.changes.note_stray(stray.offset)
            elif settlement.verdict is Verdict.RENEW:
                self._renew_stray(stray, until_ms)
            else:
                self._attempts.give_back_stray(stray, now_ms, delay_ms)
        self._ledger.window.advance()

    def _renew(self, first: int, last: int, deadline_ms: int) -> None:
        for slot, length in self._ledger.window.slots(first, last).items():
            old = self._ledger.leases[slot]
            lease = self._ledger.leases.open(old.holder, deadline_ms)
            if lease is not old:
                for begin, end in self._ledger.held_under(old, first, last):
                    self._ledger.window.set_slot(begin, end, lease.slot)
                    lease.add(begin, end)
                self._ledger.leases.leave(old, length)

    def _renew_stray(self, stray: Stray, deadline_ms: int) -> None:
        old = self._ledger.leases[stray.slot]
        lease = self._ledger.leases.open(old.holder, deadline_ms)
        if lease is not old:
            stray.slot = lease.slot
            lease.add_stray(stray.offset)
            self._ledger.leases.leave_stray(old, stray.offset)


def _not_held(offset: int, cell: Cell) -> ApiError:
    name = NAMES.get(cell % CLOSING, "unknown")
    return ApiError(ErrorCode.INVALID_RECORD_STATE, f"the message at offset {offset} is not leased: {name}")
