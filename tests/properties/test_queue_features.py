"""A queue with delays, ends, levels, keys and a filter, under a clock that jumps, restarts and lost records."""

from dataclasses import dataclass

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule
from sim.disk import SimDisk
from sim.randomness import SimRandomness

from martlet.base.errors import ApiError
from martlet.queues.cells import BACKING_OFF, FINISHED, LEASED, STRAY, WAITING
from martlet.queues.delay_index import DelayIndex
from martlet.queues.engine import QueueEngine, QueueOptions, Settlement, Verdict
from martlet.queues.features import Features, Seen
from martlet.queues.filters import Filter
from martlet.queues.record_codec import decode_state, encode_state
from martlet.queues.records import Change
from martlet.queues.retry import Backoff, RetryPolicy

HOLDERS = ("ann", "bob")
FOREVER = 1 << 50


@dataclass
class Message:
    """What the model knows of one message."""

    seen: Seen
    holder: str = ""
    is_closing: bool = False
    is_cancelled: bool = False
    """It was never handed out, so that it holds up no other."""
    is_over: bool = False
    """Its end is committed: it is never handed out again."""


class FeaturesAgainstModel(RuleBasedStateMachine):
    """Nothing is handed out before its time, after its end, against its key's order, twice at once, or not at all."""

    def __init__(self) -> None:
        super().__init__()
        self.now_ms = self.wall_ms = self.latest_wall_ms = 1_000_000
        self.messages: list[Message] = []
        self.log: list[bytes] = []
        self.pending: list[tuple[Change, set[int]]] = []
        self.disk = SimDisk(SimRandomness(1))
        self.has_restarted = False

    @initialize(
        priority=st.booleans(),
        keys=st.booleans(),
        backoff=st.sampled_from((Backoff.IMMEDIATE, Backoff.FIXED)),
        parked=st.sampled_from([1, 1000]),
        window=st.sampled_from([10, 1000]),
        strays=st.sampled_from([4, 1000]),
    )
    def begin(self, priority: bool, keys: bool, backoff: Backoff, parked: int, window: int, strays: int) -> None:
        retry = RetryPolicy(4, backoff, delay_ms=70, delay_max_ms=300, jitter=0)
        self.options = QueueOptions(500, window, strays, retry)
        self.shape = (priority, keys, parked)
        self.index = DelayIndex(self.disk, "delay", run_entries=4, near_ms=200)
        self.index.open(0)
        self.engine = self.make_engine()
        self.store(is_lost=False)

    def make_engine(self) -> QueueEngine:
        priority, keys, parked = self.shape
        features = Features(
            filter=Filter("priority >= 0"),
            has_priority=priority,
            has_key_order=keys,
            schedule=self.index,
            age_ms=50,
            parked_max=parked,
        )
        return QueueEngine(0, self.options, SimRandomness(1), features)

    # --- operations

    @rule(
        count=st.sampled_from([1, 3, 12]),
        delay=st.sampled_from([0, 0, 0, 30, 400, 5_000]),
        life=st.sampled_from([0, 0, 0, 100, 10_000]),
        level=st.integers(0, 9),
        key=st.sampled_from([None, b"a", b"b"]),
        is_wanted=st.sampled_from([True, True, True, False]),
    )
    def publish(self, count: int, delay: int, life: int, level: int, key: bytes | None, is_wanted: bool) -> None:
        due_ms = self.wall_ms + delay if delay else 0
        expires_ms = (due_ms or self.wall_ms) + life if life else 0
        for _ in range(count):
            offset = len(self.messages)
            self.messages.append(Message(Seen(offset, due_ms, expires_ms, level, key, is_wanted)))
            if due_ms:
                self.index.add(due_ms, offset)
        self.index.saw(len(self.messages))
        self.engine.end = len(self.messages)

    @rule(limit=st.sampled_from([1, 5, 100]), rounds=st.integers(1, 4))
    def look(self, limit: int, rounds: int) -> None:
        for _ in range(rounds):
            wanted = self.engine.look_wanted(limit)
            if wanted is None:
                return
            first, end = wanted
            assert 0 <= first < end <= len(self.messages)
            seen = [message.seen for message in self.messages[first:end]]
            taken = self.engine.take_seen(first, end, seen, self.wall_ms)
            assert first <= taken <= end

    @rule(holder=st.sampled_from(HOLDERS), limit=st.sampled_from([1, 2, 10]))
    def acquire(self, holder: str, limit: int) -> None:
        self.pass_time()
        self.look(limit, 2)
        for delivery in self.engine.acquire(holder, limit, self.now_ms):
            for offset in range(delivery.first, delivery.last + 1):
                self.was_handed_out(self.messages[offset], holder)

    def was_handed_out(self, message: Message, holder: str) -> None:
        seen = message.seen
        assert not message.holder
        assert not message.is_closing
        assert not message.is_cancelled
        assert not message.is_over
        assert seen.is_wanted
        assert seen.due_ms <= self.latest_wall_ms, "nothing is early, but by what the clock once claimed"
        assert not seen.expires_ms or seen.expires_ms > self.wall_ms
        if self.shape[1] and seen.key is not None:
            same = [other for other in self.messages if other.seen.key == seen.key and other is not message]
            assert not any(other.holder or other.is_closing for other in same), "one of a key at a time"
            if not seen.due_ms and not self.has_restarted:
                before = [other for other in same if other.seen.offset < seen.offset and not other.seen.due_ms]
                assert all(o.is_over or o.is_cancelled or not o.seen.is_wanted or o.seen.expires_ms for o in before)
        message.holder = holder

    @rule(data=st.data(), verdict=st.sampled_from((Verdict.ACCEPT, Verdict.ACCEPT, Verdict.RELEASE, Verdict.REJECT)))
    def settle(self, data: st.DataObject, verdict: Verdict) -> None:
        out = [offset for offset, message in enumerate(self.messages) if message.holder and not message.is_closing]
        if out:
            offset = data.draw(st.sampled_from(out))
            self.engine.settle(self.messages[offset].holder, [Settlement(offset, offset, verdict)], self.now_ms)
            self.messages[offset].holder = ""
            self.messages[offset].is_closing = verdict is not Verdict.RELEASE

    @rule(data=st.data())
    def cancel(self, data: st.DataObject) -> None:
        if not self.messages:
            return
        message = data.draw(st.sampled_from(self.messages))
        try:
            self.engine.cancel(message.seen.offset, message.seen.due_ms)
        except ApiError:
            return
        assert not message.holder
        message.is_cancelled = True

    @rule(holder=st.sampled_from(HOLDERS))
    def holder_leaves(self, holder: str) -> None:
        self.engine.release(holder, self.now_ms)
        for message in self.messages:
            if message.holder == holder:
                message.holder = ""

    @rule(ms=st.sampled_from([1, 60, 600, 6_000]))
    def time_passes(self, ms: int) -> None:
        self.now_ms += ms
        self.wall_ms += ms
        self.pass_time()

    @rule(ms=st.sampled_from([-100_000, -500, 300, 50_000]))
    def clock_jumps(self, ms: int) -> None:
        self.wall_ms += ms

    def pass_time(self) -> None:
        self.latest_wall_ms = max(self.latest_wall_ms, self.wall_ms)
        while self.engine.pass_time(self.now_ms):
            pass
        while self.engine.pass_wall_time(self.wall_ms, self.now_ms):
            pass
        for message in self.messages:
            offset = message.seen.offset
            stray, window = self.engine.ledger.strays.get(offset), self.engine.ledger.window
            is_inside = window.start <= offset < window.frontier
            cell = stray.cell if stray is not None else window.cell(offset) if is_inside else STRAY
            if cell != LEASED:
                message.holder = ""

    # --- durability

    @rule(is_lost=st.booleans(), is_whole=st.booleans())
    def store(self, is_lost: bool, is_whole: bool = False) -> None:
        change = self.engine.snapshot() if is_whole else self.engine.take_change()
        if change is None:
            return
        if is_lost:
            self.engine.failed(change, self.now_ms)
            for closing in change.closing:
                for offset in range(closing.first, closing.last + 1):
                    stray, window = self.engine.ledger.strays.get(offset), self.engine.ledger.window
                    cell = stray.cell if stray is not None else window.cell(offset)
                    if cell == LEASED:
                        self.messages[offset].is_closing = False
                        self.messages[offset].holder = "?"
                    elif cell in (WAITING, BACKING_OFF, STRAY):
                        self.messages[offset].is_closing = False
            self.pass_time()
            for message in self.messages:
                if message.holder == "?":
                    window, offset = self.engine.ledger.window, message.seen.offset
                    stray = self.engine.ledger.strays.get(offset)
                    slot = stray.slot if stray is not None else window.slot(offset)
                    message.holder = self.engine.ledger.leases[slot].holder
            return
        self.log.append(encode_state(change.record))
        gone = {message.seen.offset for message in self.messages if message.is_cancelled}
        self.engine.committed(change)
        for closing in change.closing:
            gone |= set(range(closing.first, closing.last + 1))
        for offset in gone:
            self.messages[offset].is_over = True
            self.messages[offset].is_closing = False

    @rule()
    def restart(self) -> None:
        """Another leader, with a delay index of its own: what was not appended is forgotten."""
        self.has_restarted = True
        if self.index.stored_end % 2:
            self.index.flush()
        self.index.close()
        self.index = DelayIndex(self.disk, "delay", run_entries=4, near_ms=200)
        self.index.open(0)
        for message in self.messages[self.index.covered_end :]:
            if message.seen.due_ms:
                self.index.add(message.seen.due_ms, message.seen.offset)
        self.index.saw(len(self.messages))
        self.engine = self.make_engine()
        for data in self.log:
            self.engine.replay(decode_state(data))
        self.engine.loaded()
        self.engine.end = len(self.messages)
        for message in self.messages:
            message.holder, message.is_closing, message.is_cancelled = "", False, False

    # --- what always holds

    @invariant()
    def the_order_equals_a_recount(self) -> None:
        if not hasattr(self, "engine") or self.engine.frontier is None or not self.engine.frontier.is_ready:
            return
        ledger, order = self.engine.ledger, self.engine.frontier.order
        window = ledger.window
        waiting = {offset for offset in range(window.start, window.frontier) if window.cell(offset) == WAITING}
        assert len(waiting) == window.waiting
        waiting |= {stray.offset for stray in ledger.strays if stray.cell == WAITING}
        waiting -= {offset for offset in order.unseen if not order.column.is_apart(offset)}
        keys = order.keys
        parked = set() if keys is None else {o for o in waiting if any(o in keys.waits_behind(k) for k in (b"a", b"b"))}
        assert len(order) == len(waiting - parked)
        assert window.frontier == order.column.end
        assert len(window) <= self.options.window_max
        cells = [window.cell(offset) for offset in range(window.start, window.frontier)]
        assert not cells or not (cells[0] == STRAY or cells[0] in FINISHED)

    def teardown(self) -> None:
        """In the end every message is delivered and finished, or was not to be delivered."""
        if not hasattr(self, "engine"):
            return
        self.wall_ms = max(self.wall_ms, self.latest_wall_ms)
        for _ in range(300):
            self.now_ms += 700
            self.wall_ms += 700
            self.acquire("ann", 10)
            for holder in HOLDERS:
                for message in self.messages:
                    if message.holder == holder and not message.is_closing:
                        offset = message.seen.offset
                        self.engine.settle(holder, [Settlement(offset, offset, Verdict.ACCEPT)], self.now_ms)
                        message.holder, message.is_closing = "", True
            self.store(is_lost=False)
            ledger = self.engine.ledger
            if ledger.window.start == len(self.messages) and not len(ledger.strays) and not self.scheduled():
                break
        else:
            raise AssertionError(f"messages are left over from {self.engine.ledger.window.start} on")
        for message in self.messages:
            assert message.is_over or not message.seen.is_wanted or message.seen.expires_ms

    def scheduled(self) -> int:
        frontier = self.engine.frontier
        return 0 if frontier is None else frontier.releases.scheduled()


FeaturesAgainstModel.TestCase.settings = settings(max_examples=60, stateful_step_count=40, deadline=None)
TestQueueFeatures = FeaturesAgainstModel.TestCase
