"""The state of one subscription in one partition: who has which message, until when, how often, and what is finished.

How it works: a message waits, is leased, and is settled by its holder or comes back when the lease ends. What is asked
for at once happens at once in memory; what must survive becomes part of the next `Change`, which the shell takes once
per pass of the event loop, appends to the state log, and reports as committed or failed. Until then a finished message
is closing. Leases are not stored: after a change of leader their messages wait again, never less.

Rules: a request is applied whole or refused whole. No clock and no chance but what is handed in.

Invariants:
QEN-1 A message has at most one lease at a time.
QEN-2 A message whose end was committed is never leased again.
QEN-3 No message is leased more often than the policy allows, apart from leases that ended before it was delivered.
QEN-4 A stray never holds the start of the window; the window never grows beyond its bound.

Proved by: tests/unit/queues/test_engine.py, tests/properties/test_queue_engine.py
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import IntEnum
from typing import NamedTuple

from martlet.base.errors import ApiError, ErrorCode
from martlet.base.invariant import invariant
from martlet.base.randomness import Randomness
from martlet.queues.attempts import Attempts
from martlet.queues.cells import (
    ACKNOWLEDGED,
    BACKING_OFF,
    CLOSING,
    EXHAUSTED,
    EXPIRED,
    FINISHED,
    GAP,
    LEASED,
    NAMES,
    REJECTED,
    STRAY,
    WAITING,
    Cell,
)
from martlet.queues.leases import Lease
from martlet.queues.ledger import Ledger
from martlet.queues.records import Change, DeadLetter, StateRecord
from martlet.queues.retry import RetryPolicy
from martlet.queues.strays import Stray

_LEASES_PER_CALL = 64
"""How many leases one call of `pass_time` ends at most, so that a mass expiry does not hold up everything."""
_DEAD = frozenset((REJECTED, EXHAUSTED, EXPIRED))
"""What goes to the dead-letter topic, if there is one."""


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


class Delivery(NamedTuple):
    """Neighbours handed to a holder, all for the `count`-th time."""

    first: int
    last: int
    attempts: int


@dataclass(frozen=True, slots=True)
class QueueOptions:
    """What can be set for a subscription; ValueError for what makes no sense."""

    lease_ms: int = 30_000
    window_max: int = 10_000
    strays_max: int = 10_000
    """With this many outside of the window, nothing new is leased."""
    retry: RetryPolicy = field(default_factory=RetryPolicy)
    has_dead_letters: bool = False

    def __post_init__(self) -> None:
        for name in ("lease_ms", "window_max", "strays_max"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name} is {getattr(self, name)}; it is at least 1")


class QueueEngine:
    """Serves one (subscription, partition) on the partition's leader; `end` is where deliverable messages end."""

    def __init__(self, start: int, options: QueueOptions, randomness: Randomness) -> None:
        self.end = start
        self.ledger = Ledger(start)
        self._options = options
        self._group_sizes = options.retry.group_sizes()
        self._attempts = Attempts(self.ledger, options.retry, randomness)

    @property
    def options(self) -> QueueOptions:
        return self._options

    @property
    def has_deliverable(self) -> bool:
        """Whether an `acquire` now would hand out something."""
        return bool(self.ledger.window.waiting) or self._fresh() > 0 or self.ledger.strays.first_waiting() is not None

    # --- leasing

    def acquire(self, holder: str, limit: int, now_ms: int, lease_ms: int | None = None) -> list[Delivery]:
        """Lease up to `limit` messages to a holder, the oldest first; ascending and disjoint.

        For so long as the options say, or as is asked for.
        """
        self.ledger.strays.wake(now_ms)
        deliveries: list[Delivery] = []
        if limit < 1 or not self.has_deliverable:
            return deliveries
        lease = self.ledger.leases.open(holder, now_ms + (lease_ms or self._options.lease_ms))
        taken, most = self._lease_strays(lease, limit, deliveries)
        taken, most = self._lease_waiting(lease, taken, most, deliveries)
        length = min(most - taken, self._fresh())
        if length > 0:
            first = self.ledger.window.open(length, LEASED, 1, lease.slot)
            lease.add(first, first + length - 1)
            deliveries.append(Delivery(first, first + length - 1, 1))
        self.ledger.leases.drop_unused(lease)
        if len(deliveries) > 1:
            deliveries.sort()
        return deliveries

    def _fresh(self) -> int:
        """How many messages beyond the frontier may be leased."""
        if len(self.ledger.strays) >= self._options.strays_max:
            return 0
        window = self.ledger.window
        return min(self.end - window.frontier, self._options.window_max - (window.frontier - window.start))

    def _lease_strays(self, lease: Lease, most: int, deliveries: list[Delivery]) -> tuple[int, int]:
        """How many were leased, and how many may be leased together with them."""
        taken = 0
        while taken < most and (stray := self.ledger.strays.first_waiting()) is not None:
            together = min(most, self._group_sizes[stray.attempts + 1])
            if taken >= together:
                return taken, taken  # a suspect begins the next lease
            most = together
            stray.attempts += 1
            stray.slot = lease.slot
            self.ledger.strays.set_cell(stray, LEASED)
            lease.add_stray(stray.offset)
            deliveries.append(Delivery(stray.offset, stray.offset, stray.attempts))
            taken += 1
        return taken, most

    def _lease_waiting(self, lease: Lease, taken: int, most: int, deliveries: list[Delivery]) -> tuple[int, int]:
        window = self.ledger.window
        while taken < most and (first := window.next_waiting()) is not None:
            count = window.attempts(first) + 1
            together = min(most, self._group_sizes[count])
            if taken >= together:
                return taken, taken
            most = together
            run = window.run_at(first, most - taken)
            window.lease(first, run.last, count, lease.slot)
            lease.add(first, run.last)
            deliveries.append(Delivery(first, run.last, count))
            taken += run.last - first + 1
        return taken, most

    def admit(self, length: int, cell: Cell = WAITING) -> int:
        """Move the frontier over this many messages without leasing them: they wait, or are finished; the first one."""
        invariant(cell == WAITING or cell in FINISHED, "a message is admitted as waiting or as finished")
        invariant(self.ledger.window.frontier + length <= self.end, "only what can be delivered is admitted")
        first = self.ledger.window.open(length, cell)
        if cell != WAITING:
            self.ledger.changes.note(first, first + length - 1)
            self.ledger.window.advance()
        return first

    def take_back(self, holder: str, deliveries: Sequence[Delivery]) -> None:
        """These were leased and could not be delivered, as far as the holder still has them: no attempt was made."""
        for first, last, attempts in deliveries:
            for stray in self.ledger.strays.within(first, last):
                if stray.cell == LEASED and stray.attempts == attempts and self._has(holder, stray.slot):
                    self._attempts.take_back_stray(stray)
            window = self.ledger.window
            first = max(first, window.start)
            for run in list(window.runs(first, last)) if first <= last else ():
                if run.cell == LEASED and run.attempts == attempts:
                    slots = window.slots(run.first, run.last)
                    if all(self._has(holder, slot) for slot in slots):
                        self._attempts.take_back(run.first, run.last)
        self.ledger.window.advance()

    def _has(self, holder: str, slot: int) -> bool:
        return self.ledger.leases[slot].holder == holder

    # --- settling

    def settle(
        self,
        holder: str | None,
        settlements: Sequence[Settlement],
        now_ms: int,
        attempt: int | None = None,
        *,
        lease_ms: int | None = None,
        delay_ms: int | None = None,
    ) -> None:
        """Apply what a holder says of its messages, all of it or, with an ApiError, nothing.

        Without a holder it counts for the messages of any holder. With an attempt, as a lease token carries it, those
        that were leased again since are refused. What lies before the start is finished already, and ignored. A renewal
        is for `lease_ms`, a release keeps the message back for `delay_ms`, else both are as the options say.
        """
        previous = -1
        for settlement in settlements:
            if not previous < settlement.first <= settlement.last < self.ledger.window.frontier:
                reason = f"offsets {settlement.first} to {settlement.last}, of which not all were delivered"
                raise ApiError(ErrorCode.INVALID_REQUEST, reason)
            previous = settlement.last
            self._check_held(settlement, holder, attempt)
        for settlement in settlements:
            self._apply(settlement, now_ms, lease_ms, delay_ms)

    def _check_held(self, settlement: Settlement, holder: str | None, attempt: int | None) -> None:
        window = self.ledger.window
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
        for stray in self.ledger.strays.within(settlement.first, last):
            if stray.cell != LEASED or attempt not in (None, stray.attempts):
                raise _not_held(stray.offset, stray.cell)
            self._check_slots({stray.slot: 1}, holder, settlement)
            moved -= stray.offset >= first
        if moved > 0:
            raise _not_held(settlement.first, ACKNOWLEDGED)

    def _check_slots(self, slots: dict[int, int], holder: str | None, settlement: Settlement) -> None:
        if holder is not None and any(self.ledger.leases[slot].holder != holder for slot in slots):
            reason = f"offsets {settlement.first} to {settlement.last} are leased by another"
            raise ApiError(ErrorCode.INVALID_RECORD_STATE, reason)

    def _apply(self, settlement: Settlement, now_ms: int, lease_ms: int | None, delay_ms: int | None) -> None:
        """One settlement that has passed every check."""
        strays = self.ledger.strays.within(settlement.first, settlement.last)
        first, last = max(settlement.first, self.ledger.window.start), settlement.last
        ranges: list[tuple[int, int]] = []
        if first <= last:
            ranges = [(first, last)]
            if strays:
                ranges = [(run.first, run.last) for run in self.ledger.window.runs(first, last) if run.cell == LEASED]
        target = _FINISHING.get(settlement.verdict)
        for begin, end in ranges:
            if target is not None:
                self.ledger.window.move(begin, end, LEASED, CLOSING + target)
                self.ledger.changes.note(begin, end)
            elif settlement.verdict is Verdict.RENEW:
                self._renew(begin, end, now_ms + (lease_ms or self._options.lease_ms))
            else:
                self._attempts.give_back(begin, end, now_ms, delay_ms)
        for stray in strays:
            if target is not None:
                self.ledger.strays.set_cell(stray, CLOSING + target)
                self.ledger.changes.note_stray(stray.offset)
            elif settlement.verdict is Verdict.RENEW:
                self._renew_stray(stray, now_ms + (lease_ms or self._options.lease_ms))
            else:
                self._attempts.give_back_stray(stray, now_ms, delay_ms)
        self.ledger.window.advance()

    def _renew(self, first: int, last: int, deadline_ms: int) -> None:
        for slot, length in self.ledger.window.slots(first, last).items():
            old = self.ledger.leases[slot]
            lease = self.ledger.leases.open(old.holder, deadline_ms)
            if lease is not old:
                for begin, end in self.ledger.held_under(old, first, last):
                    self.ledger.window.set_slot(begin, end, lease.slot)
                    lease.add(begin, end)
                self.ledger.leases.leave(old, length)

    def _renew_stray(self, stray: Stray, deadline_ms: int) -> None:
        old = self.ledger.leases[stray.slot]
        lease = self.ledger.leases.open(old.holder, deadline_ms)
        if lease is not old:
            stray.slot = lease.slot
            lease.add_stray(stray.offset)
            self.ledger.leases.leave_stray(old, stray.offset)

    # --- the end of leases

    def release(self, holder: str, now_ms: int, *, was_delivered: bool = False) -> None:
        """A holder is gone: all it has comes back at once; as if never leased, unless it was surely delivered."""
        for lease in self.ledger.leases.of(holder):
            self._attempts.end(lease, now_ms, is_attempt=was_delivered)
        self.ledger.window.advance()

    def pass_time(self, now_ms: int) -> bool:
        """End the leases and pauses whose time is over; whether there are more of them."""
        self.ledger.strays.wake(now_ms)
        for _ in range(_LEASES_PER_CALL):
            lease = self.ledger.leases.pop_ended(now_ms)
            if lease is None:
                self.ledger.window.advance()
                return False
            self._attempts.end(lease, now_ms, is_attempt=True)
        self.ledger.window.advance()
        return True

    def next_due_ms(self) -> int | None:
        """When `pass_time` has something to do; None while nothing is leased or backs off."""
        due = [
            at_ms
            for at_ms in (self.ledger.leases.next_deadline_ms(), self.ledger.strays.next_ready_ms())
            if at_ms is not None
        ]
        return min(due, default=None)

    # --- from outside

    def alter(self, options: QueueOptions) -> None:
        """New options, which hold for all messages at once; leases that are out keep their time."""
        self._options = options
        self._group_sizes = options.retry.group_sizes()
        self._attempts.retry = options.retry
        window = self.ledger.window
        for run in list(window.runs(window.start, window.frontier - 1)):
            if run.cell == WAITING and options.retry.has_ended(run.attempts):
                window.move(run.first, run.last, WAITING, CLOSING + EXHAUSTED)
                self.ledger.changes.note(run.first, run.last)
        for stray in self.ledger.strays:
            if stray.cell in (WAITING, BACKING_OFF) and options.retry.has_ended(stray.attempts):
                self.ledger.strays.set_cell(stray, CLOSING + EXHAUSTED)
                self.ledger.changes.note_stray(stray.offset)

    def reset(self, start: int) -> None:
        """Go on at another offset: every lease, count and stray is forgotten, and what a holder still says of them."""
        self.ledger.reset(start)

    def log_begins_at(self, offset: int) -> None:
        """What lies before this offset is no longer in the log."""
        self.end = max(self.end, offset)
        self.ledger.log_begins_at(offset)

    # --- durability

    def take_change(self) -> Change | None:
        """All that must be stored since the last one; None when there is nothing. Report what becomes of it."""
        return self.ledger.take_change(self._copies)

    def snapshot(self) -> Change:
        """The whole state, which makes every record before it needless; report what becomes of it."""
        return self.ledger.snapshot(self._copies)

    @property
    def _copies(self) -> frozenset[Cell]:
        return _DEAD if self._options.has_dead_letters else frozenset()

    def committed(self, change: Change) -> list[DeadLetter]:
        """The record of a change is committed: what was closing is finished. Returns the copies to be made."""
        return self.ledger.committed(change)

    def failed(self, change: Change, now_ms: int) -> None:
        """The record of a change could not be stored: what a holder asked for is undone, the rest is tried again.

        To be reported before the next change is taken.
        """
        over, strays = self.ledger.failed(change)
        for first, last in over:
            self._attempts.give_back(first, last, now_ms)
        for stray in strays:
            self._attempts.give_back_stray(stray, now_ms)
        self.ledger.window.advance()

    def dead_letter_copied(self, offset: int) -> None:
        """The copy in the dead-letter topic is committed: the message can be finished."""
        self.ledger.dead_letter_copied(offset)

    # --- loading

    def replay(self, record: StateRecord) -> None:
        """Take in one record of the state log, in its order, before anything is served."""
        self.ledger.replay(record)

    def loaded(self) -> list[DeadLetter]:
        """Everything is replayed: serve from here on. Returns the copies that were not surely made."""
        self.end = max(self.end, self.ledger.window.frontier)
        self.alter(self._options)
        return self.ledger.copying()


def _not_held(offset: int, cell: Cell) -> ApiError:
    name = NAMES.get(cell % CLOSING, "unknown")
    return ApiError(ErrorCode.INVALID_RECORD_STATE, f"the message at offset {offset} is not leased: {name}")
