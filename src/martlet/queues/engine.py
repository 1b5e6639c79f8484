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

from martlet.base.errors import ApiError, ErrorCode
from martlet.base.invariant import invariant
from martlet.base.randomness import Randomness
from martlet.queues.attempts import Attempts
from martlet.queues.cells import (
    BACKING_OFF,
    CLOSING,
    EXHAUSTED,
    EXPIRED,
    FINISHED,
    LEASED,
    REJECTED,
    WAITING,
    Cell,
)
from martlet.queues.features import Features, Seen
from martlet.queues.frontier import Frontier
from martlet.queues.leasing import Delivery, Grant
from martlet.queues.ledger import Ledger
from martlet.queues.records import Change, DeadLetter, StateRecord
from martlet.queues.retry import RetryPolicy
from martlet.queues.settling import Settlement, Settling, Verdict

__all__ = ["Delivery", "QueueEngine", "QueueOptions", "Settlement", "Verdict"]

_LEASES_PER_CALL = 64
"""How many leases one call of `pass_time` ends at most, so that a mass expiry does not hold up everything."""
_DEAD = frozenset((REJECTED, EXHAUSTED, EXPIRED))
"""What goes to the dead-letter topic, if there is one."""


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

    def __init__(
        self, start: int, options: QueueOptions, randomness: Randomness, features: Features | None = None
    ) -> None:
        self.end = start
        self.ledger = Ledger(start)
        self._options = options
        self._group_sizes = options.retry.group_sizes()
        self._attempts = Attempts(self.ledger, options.retry, randomness)
        self._settling = Settling(self.ledger, self._attempts)
        self.frontier = None if features is None else Frontier(self.ledger, features)
        """With features the engine leases only what was looked at (`look_wanted`, `take_seen`)."""

    @property
    def options(self) -> QueueOptions:
        return self._options

    @property
    def has_deliverable(self) -> bool:
        """Whether an `acquire` now would hand out something."""
        if self.frontier is not None:
            return self.frontier.is_ready and len(self.frontier.order) > 0
        return bool(self.ledger.window.waiting) or self._fresh() > 0 or self.ledger.strays.first_waiting() is not None

    @property
    def is_by_priority(self) -> bool:
        """Whether a message seen later may go before those that can be handed out now."""
        return self.frontier is not None and self.frontier.features.has_priority

    @property
    def low_mark(self) -> int:
        """The lowest offset that this subscription still needs of the log."""
        scheduled = None if self.frontier is None else self.frontier.releases.oldest_scheduled()
        return self.ledger.low_mark if scheduled is None else min(scheduled, self.ledger.low_mark)

    # --- looking inside

    def use(self, features: Features | None) -> None:
        """Go on with these features; what waits is looked at again before it is leased."""
        self.ledger.watch_with(None)
        self.frontier = None if features is None else Frontier(self.ledger, features)
        if self.frontier is not None:
            self.frontier.begin_loaded()

    def look_wanted(self, limit: int) -> tuple[int, int] | None:
        """From which offset to before which the shell should look now; None when there is nothing to look at."""
        if self.frontier is None:
            return None
        return self.frontier.wanted(limit, self.end, self._options.window_max, self._options.strays_max)

    def take_seen(self, first: int, end: int, seen: Sequence[Seen], wall_ms: int) -> int:
        """What is at the offsets that were wanted, ascending; where none is, there is no message.

        Returns how far it was taken: less than `end` when there is no room behind busy keys.
        """
        invariant(self.frontier is not None, "only a subscription with features looks at its messages")
        return end if self.frontier is None else self.frontier.take_seen(first, end, seen, wall_ms, self.end)

    def cancel(self, offset: int, due_ms: int = 0) -> None:
        """Never deliver this message, which was not handed out yet; ApiError when it is too late, or cannot be.

        `due_ms` is when it is due, 0 if it is not delayed. It is cancelled once the next change is committed.
        """
        if not self.ledger.log_start <= offset < self.end:
            raise ApiError(ErrorCode.OFFSET_OUT_OF_RANGE, f"there is no message at offset {offset}")
        if self.frontier is None:
            raise ApiError(ErrorCode.INVALID_REQUEST, "this subscription does not look at its messages")
        self.frontier.cancel(offset, due_ms)

    # --- leasing

    def acquire(self, holder: str, limit: int, now_ms: int, lease_ms: int | None = None) -> list[Delivery]:
        """Lease up to `limit` messages to a holder, the oldest or the most urgent; ascending and disjoint.

        For so long as the options say, or as is asked for.
        """
        self.ledger.strays.wake(now_ms)
        if limit < 1 or not self.has_deliverable:
            return []
        lease = self.ledger.leases.open(holder, now_ms + (lease_ms or self._options.lease_ms))
        grant = Grant(self.ledger, lease, limit, self._group_sizes)
        if self.frontier is None:
            grant.fill_in_order(self._fresh())
            grant.deliveries.sort()
        else:
            order = self.frontier.order
            order.saw_end(self.end, now_ms)
            order.column.forget_before(self.ledger.window.start)
            grant.fill_by(order, now_ms)
        self.ledger.leases.drop_unused(lease)
        return grant.deliveries

    def _fresh(self) -> int:
        """How many messages beyond the frontier may be leased."""
        if len(self.ledger.strays) >= self._options.strays_max:
            return 0
        window = self.ledger.window
        return min(self.end - window.frontier, self._options.window_max - (window.frontier - window.start))

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
                if (
                    stray.cell == LEASED
                    and stray.attempts == attempts
                    and self.ledger.leases[stray.slot].holder == holder
                ):
                    self._attempts.take_back_stray(stray)
            window = self.ledger.window
            first = max(first, window.start)
            for run in list(window.runs(first, last)) if first <= last else ():
                if run.cell == LEASED and run.attempts == attempts:
                    slots = window.slots(run.first, run.last)
                    if all(self.ledger.leases[slot].holder == holder for slot in slots):
                        self._attempts.take_back(run.first, run.last)
        self.ledger.window.advance()

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
        self._settling.check(holder, settlements, attempt)
        until_ms = now_ms + (lease_ms or self._options.lease_ms)
        for settlement in settlements:
            self._settling.apply(settlement, now_ms, until_ms, delay_ms)

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

    def pass_wall_time(self, wall_ms: int, now_ms: int) -> bool:
        """Hand over what is due, and end what has expired; whether there is more of it.

        Due times and ends are instants of the wall clock, which may jump; leases and pauses go by `now_ms`.
        """
        if self.frontier is None:
            return False
        self.frontier.order.saw_end(self.end, now_ms)
        is_more = self.frontier.releases.release_due(wall_ms, self._options.strays_max)
        return self.frontier.expire(wall_ms) or is_more

    def next_wall_ms(self) -> int | None:
        """When, by the wall clock, `pass_wall_time` has something to do."""
        return None if self.frontier is None else self.frontier.next_due_ms(self._options.strays_max)

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
        if self.frontier is not None:
            self.frontier.begin()

    def log_begins_at(self, offset: int) -> None:
        """What lies before this offset is no longer in the log."""
        self.end = max(self.end, offset)
        is_behind = offset >= self.ledger.window.frontier
        self.ledger.log_begins_at(offset)
        if is_behind and self.frontier is not None:
            self.frontier.begin()

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
        self.ledger.watch_with(None)
        self.ledger.replay(record)

    def loaded(self) -> list[DeadLetter]:
        """Everything is replayed: serve from here on. Returns the copies that were not surely made."""
        self.end = max(self.end, self.ledger.window.frontier)
        self.alter(self._options)
        if self.frontier is not None:
            self.frontier.begin_loaded()
        return self.ledger.copying()
