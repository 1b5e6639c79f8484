"""The queue engine against a plain model with one object per message, under any order of operations and restarts."""

from collections.abc import Iterator
from dataclasses import dataclass

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule
from sim.randomness import SimRandomness

from martlet.base.errors import ApiError
from martlet.queues.cells import (
    ACKNOWLEDGED,
    BACKING_OFF,
    CLOSING,
    COPYING,
    DEAD_LETTERED,
    EXHAUSTED,
    FINISHED,
    GAP,
    LEASED,
    REJECTED,
    STRAY,
    WAITING,
    Cell,
)
from martlet.queues.engine import Delivery, QueueEngine, QueueOptions, Settlement, Verdict
from martlet.queues.leases import DEADLINE_STEP_MS
from martlet.queues.record_codec import decode_state, encode_state
from martlet.queues.records import Change
from martlet.queues.retry import Backoff, RetryPolicy

HOLDERS = ("ann", "bob", "cid")
ENDS = {Verdict.ACCEPT: ACKNOWLEDGED, Verdict.REJECT: REJECTED, Verdict.GAP: GAP}


@dataclass
class Message:
    """What the model knows of one message."""

    cell: Cell = WAITING
    count: int = 0
    holder: str = ""
    deadline_ms: int = 0
    ready_ms: int = 0
    is_committed: bool = False
    """Whether its end was reported as committed."""


def cells_of(engine: QueueEngine) -> dict[int, tuple[Cell, int]]:
    """State and count of every message that is not finished, as the engine has it."""
    window = engine.ledger.window
    found = {}
    for run in window.runs(window.start, window.frontier - 1):
        if run.cell not in FINISHED and run.cell != STRAY:
            found.update(dict.fromkeys(range(run.first, run.last + 1), (run.cell, run.attempts)))
    for stray in engine.ledger.strays:
        assert stray.offset not in found
        found[stray.offset] = (stray.cell, stray.attempts)
    return found


def stored_view(engine: QueueEngine, now_ms: int) -> dict[int, tuple[Cell, int, int]]:
    """What a loader should see: leases undone, what is closing finished, first states left out."""
    view = {}
    copies = {REJECTED, EXHAUSTED} if engine.options.has_dead_letters else set()
    for offset, (cell, count) in cells_of(engine).items():
        stray = engine.ledger.strays.get(offset)
        ready_ms = stray.ready_ms if stray is not None and cell == BACKING_OFF else 0
        if cell >= CLOSING:
            if cell - CLOSING not in copies:
                continue
            cell = COPYING
        if cell == LEASED:
            cell, count = WAITING, count - 1
        if cell == BACKING_OFF and ready_ms <= now_ms:
            cell, ready_ms = WAITING, 0
        if cell != WAITING or count > 0 or stray is not None:
            view[offset] = (cell, count, ready_ms)
    return view


class EngineAgainstModel(RuleBasedStateMachine):
    """Every message ends acknowledged, dead-lettered or available; and nothing is handed out that must not be."""

    def __init__(self) -> None:
        super().__init__()
        self.now_ms = 1_000_000
        self.messages: list[Message] = []
        self.log: list[bytes] = []
        self.pending: list[Change] = []
        self.letters: set[int] = set()

    @initialize(
        attempts=st.integers(1, 5),
        backoff=st.sampled_from(Backoff),
        window=st.sampled_from([4, 30, 1000]),
        strays=st.sampled_from([3, 1000]),
        copies=st.booleans(),
    )
    def begin(self, attempts: int, backoff: Backoff, window: int, strays: int, copies: bool) -> None:
        retry = RetryPolicy(attempts, backoff, delay_ms=70, delay_max_ms=300, jitter=0)
        self.options = QueueOptions(500, window, strays, retry, copies)
        self.engine = QueueEngine(0, self.options, SimRandomness(1))
        self.store()
        self.commit()

    # --- operations

    @rule(count=st.sampled_from([1, 3, 20]))
    def publish(self, count: int) -> None:
        self.messages += [Message() for _ in range(count)]
        self.engine.end = len(self.messages)

    @rule(holder=st.sampled_from(HOLDERS), limit=st.sampled_from([1, 2, 7, 100]))
    def acquire(self, holder: str, limit: int) -> None:
        self.wake()
        frontier = self.engine.ledger.window.frontier
        deliveries = self.engine.acquire(holder, limit, self.now_ms)
        if self.engine.ledger.window.frontier > frontier:
            assert len(self.engine.ledger.strays) < self.options.strays_max
        offsets = [offset for delivery in deliveries for offset in range(delivery.first, delivery.last + 1)]
        assert offsets == sorted(set(offsets))
        assert len(offsets) <= limit
        self.check_company(deliveries, len(offsets))
        for delivery in deliveries:
            for offset in range(delivery.first, delivery.last + 1):
                message = self.messages[offset]
                assert (message.cell, message.count + 1) == (WAITING, delivery.attempts)
                message.cell, message.count, message.holder = LEASED, delivery.attempts, holder
                message.deadline_ms = -(-(self.now_ms + self.options.lease_ms) // DEADLINE_STEP_MS) * DEADLINE_STEP_MS
        if not offsets:
            window, strays = self.engine.ledger.window, self.engine.ledger.strays
            frontier = window.frontier
            assert all(m.cell != WAITING for m in self.messages[:frontier])
            is_full = len(window) >= self.options.window_max
            assert frontier == len(self.messages) or is_full or len(strays) >= self.options.strays_max

    def check_company(self, deliveries: list[Delivery], total: int) -> None:
        last = self.options.retry.attempts_max
        if last > 1 and any(delivery.attempts == last for delivery in deliveries):
            assert total == 1

    @rule(data=st.data(), verdict=st.sampled_from(Verdict), length=st.sampled_from([1, 1, 2, 9]))
    def settle(self, data: st.DataObject, verdict: Verdict, length: int) -> None:
        leased = [offset for offset, message in enumerate(self.messages) if message.cell == LEASED]
        if not leased:
            return
        first = data.draw(st.sampled_from(leased))
        last = min(first + length - 1, len(self.messages) - 1)
        holder = self.messages[first].holder
        self.settle_range(holder, first, last, verdict)

    @rule(holder=st.sampled_from(HOLDERS), first=st.integers(0, 60), length=st.integers(1, 9))
    def settle_anything(self, holder: str, first: int, length: int) -> None:
        self.settle_range(holder, first, first + length - 1, Verdict.ACCEPT)

    def settle_range(self, holder: str, first: int, last: int, verdict: Verdict) -> None:
        engine = self.engine
        concerned = [
            offset
            for offset in range(first, last + 1)
            if offset >= engine.ledger.window.start or offset in engine.ledger.strays
        ]
        is_allowed = last < engine.ledger.window.frontier and all(
            self.messages[offset].cell == LEASED and self.messages[offset].holder == holder for offset in concerned
        )
        try:
            engine.settle(holder, [Settlement(first, last, verdict)], self.now_ms)
        except ApiError:
            assert not is_allowed
            return
        assert is_allowed
        for offset in concerned:
            message = self.messages[offset]
            if verdict in ENDS:
                message.cell = CLOSING + ENDS[verdict]
            elif verdict is Verdict.RENEW:
                deadline_ms = self.now_ms + self.options.lease_ms
                message.deadline_ms = -(-deadline_ms // DEADLINE_STEP_MS) * DEADLINE_STEP_MS
            else:
                self.attempt_failed(message)

    def attempt_failed(self, message: Message) -> None:
        retry = self.options.retry
        if message.count >= retry.attempts_max:
            message.cell = CLOSING + EXHAUSTED
        elif retry.is_immediate:
            message.cell = WAITING
        else:
            message.cell = BACKING_OFF
            message.ready_ms = self.now_ms + retry.pause_ms(message.count, SimRandomness(1))

    @rule(holder=st.sampled_from(HOLDERS))
    def holder_leaves(self, holder: str) -> None:
        self.engine.release(holder, self.now_ms)
        for message in self.messages:
            if message.cell == LEASED and message.holder == holder:
                message.cell, message.count = WAITING, message.count - 1
            elif message.cell - CLOSING in ENDS.values() and message.holder == holder:
                message.deadline_ms = 0

    @rule(ms=st.sampled_from([1, 60, 400, 3_000]))
    def time_passes(self, ms: int) -> None:
        due_ms = self.engine.next_due_ms()
        expected = [m.deadline_ms for m in self.messages if m.cell == LEASED]
        expected += [m.ready_ms for m in self.messages if m.cell == BACKING_OFF]
        assert (due_ms is None) <= (not expected)
        if due_ms is not None and expected:
            assert due_ms <= min(expected)
        self.now_ms += ms
        self.wake()
        while self.engine.pass_time(self.now_ms):
            pass

    def wake(self) -> None:
        """What the passing of time does to the model."""
        ended = [m for m in self.messages if m.cell == LEASED and m.deadline_ms <= self.now_ms]
        for message in self.messages:
            if message.cell == BACKING_OFF and message.ready_ms <= self.now_ms:
                message.cell = WAITING
        for message in ended:
            self.attempt_failed(message)

    # --- durability

    @rule(can_append=st.booleans())
    def store(self, can_append: bool = True) -> None:
        self.stored(self.engine.take_change(), can_append)

    @rule(can_append=st.booleans())
    def snapshot(self, can_append: bool) -> None:
        self.stored(self.engine.snapshot(), can_append)

    def stored(self, change: Change | None, can_append: bool) -> None:
        if change is None:
            return
        if can_append:
            self.log.append(encode_state(change.record))
            self.pending.append(change)
            return
        self.engine.failed(change, self.now_ms)
        taken = {
            offset
            for closing in change.closing
            if closing.cell in ENDS.values()
            for offset in range(closing.first, closing.last + 1)
        }
        for offset in taken:
            message = self.messages[offset]
            assert message.cell - CLOSING in ENDS.values()
            message.cell = LEASED
            if message.deadline_ms == 0 or self.has_been_ended(message):
                self.attempt_failed(message)

    def has_been_ended(self, message: Message) -> bool:
        return message.deadline_ms <= self.now_ms

    @precondition(lambda self: self.pending)
    @rule()
    def commit(self) -> None:
        change = self.pending.pop(0)
        letters = self.engine.committed(change)
        assert sorted(letter.offset for letter in letters) == sorted(
            offset for c in change.closing if c.is_copied for offset in range(c.first, c.last + 1)
        )
        for closing in change.closing:
            for offset in range(closing.first, closing.last + 1):
                message = self.messages[offset]
                assert message.cell == CLOSING + closing.cell
                message.cell = COPYING if closing.is_copied else closing.cell
                message.is_committed = not closing.is_copied
        self.letters |= {letter.offset for letter in letters}

    @precondition(lambda self: self.letters)
    @rule()
    def copy(self) -> None:
        offset = min(self.letters)
        self.letters.discard(offset)
        self.engine.dead_letter_copied(offset)
        self.messages[offset].cell = CLOSING + DEAD_LETTERED

    @rule(lost=st.integers(0, 3))
    def restart(self, lost: int) -> None:
        """Another leader loads; what was appended and not committed may be lost."""
        lost = min(lost, len(self.pending))
        self.log = self.log[: len(self.log) - lost]
        engine = QueueEngine(0, self.options, SimRandomness(1))
        for data in self.log:
            engine.replay(decode_state(data))
        letters = engine.loaded()
        engine.end = len(self.messages)
        known = cells_of(engine)
        for offset, message in enumerate(self.messages):
            cell, count = known.get(
                offset, (WAITING, 0) if offset >= engine.ledger.window.frontier else (ACKNOWLEDGED, 0)
            )
            if message.is_committed:
                assert cell in FINISHED
            if cell in FINISHED:
                assert message.cell in FINISHED or message.cell - CLOSING in FINISHED
                cell = message.cell if message.cell in FINISHED else message.cell - CLOSING
            stray = engine.ledger.strays.get(offset)
            ready_ms = stray.ready_ms if stray is not None else 0
            self.messages[offset] = Message(cell, count, ready_ms=ready_ms, is_committed=message.is_committed)
        self.engine, self.pending, self.letters = engine, [], {letter.offset for letter in letters}
        self.wake()
        engine.pass_time(self.now_ms)

    # --- what always holds

    @invariant()
    def the_engine_and_the_model_agree(self) -> None:
        if not hasattr(self, "engine"):
            return
        known = cells_of(self.engine)
        frontier = self.engine.ledger.window.frontier
        for offset, message in enumerate(self.messages[:frontier]):
            if message.cell in FINISHED:
                assert offset not in known
            else:
                assert known[offset] == (message.cell, message.count), offset
        assert all(message == Message() for message in self.messages[frontier:])

    @invariant()
    def the_counters_equal_a_recount(self) -> None:
        if not hasattr(self, "engine"):
            return
        window = self.engine.ledger.window
        cells = list(expanded(self.engine))
        assert window.waiting == cells.count(WAITING)
        assert window.leased == cells.count(LEASED)
        assert window.closing == sum(cell >= CLOSING for cell in cells)
        assert len(window) <= self.options.window_max
        assert not cells or not STRAY <= cells[0] < CLOSING
        leased = [m for m in self.messages if m.cell == LEASED]
        held = self.engine.ledger.leases.holders()
        for holder in HOLDERS:
            closing = sum(m.cell - CLOSING in ENDS.values() and m.holder == holder for m in self.messages)
            assert held.get(holder, 0) == sum(m.holder == holder for m in leased) + closing

    @rule()
    def what_is_loaded_equals_what_lives(self) -> None:
        change = self.engine.take_change()
        if change is not None:
            self.log.append(encode_state(change.record))
            self.pending.append(change)
        loaded = QueueEngine(0, self.options, SimRandomness(1))
        for data in self.log:
            loaded.replay(decode_state(data))
        assert stored_view(loaded, self.now_ms) == stored_view(self.engine, self.now_ms)
        assert loaded.ledger.epoch == self.engine.ledger.epoch


def expanded(engine: QueueEngine) -> Iterator[Cell]:
    for run in engine.ledger.window.runs(engine.ledger.window.start, engine.ledger.window.frontier - 1):
        yield from [run.cell] * (run.last - run.first + 1)


EngineAgainstModel.TestCase.settings = settings(max_examples=150, stateful_step_count=40, deadline=None)
TestQueueEngine = EngineAgainstModel.TestCase


def test_the_model_would_notice_a_record_that_is_lost() -> None:
    machine = EngineAgainstModel()
    machine.begin(3, Backoff.IMMEDIATE, 30, 1000, False)
    machine.publish(3)
    machine.acquire("ann", 2)
    machine.settle_range("ann", 0, 0, Verdict.ACCEPT)
    machine.store(True)
    machine.commit()
    machine.log.pop()
    with pytest.raises(AssertionError):
        machine.restart(0)
