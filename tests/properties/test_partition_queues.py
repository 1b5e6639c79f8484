"""The subscriptions of a partition and their log: loading its needed tail gives what loading all of it gives."""

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule
from sim.randomness import SimRandomness

import martlet.queues.partition_queues as module
from martlet.base.errors import ApiError
from martlet.base.ids import TopicId
from martlet.coordinator.ports import LogEntry
from martlet.queues.engine import QueueEngine, QueueOptions, Settlement, Verdict
from martlet.queues.partition_queues import PartitionQueues
from martlet.queues.records import StateRecord
from martlet.queues.retry import Backoff, RetryPolicy

NAMES = st.sampled_from(["one", "two", "three"])
OPTIONS = QueueOptions(500, 40, 20, RetryPolicy(3, Backoff.FIXED, delay_ms=100, jitter=0), True)


def make() -> PartitionQueues:
    return PartitionQueues(TopicId(b"t" * 16), 0, lambda name: QueueEngine(0, OPTIONS, SimRandomness(1)))


def states(queues: PartitionQueues) -> dict[str, StateRecord]:
    return {name: engine.snapshot().record for name, engine in queues}


class LogUnderQueues(RuleBasedStateMachine):
    """A log of entries with offsets, a committed offset, and leaders that come and go."""

    def __init__(self) -> None:
        super().__init__()
        self.queues = make()
        self.log: list[tuple[int, LogEntry]] = []
        self.start = self.end = self.committed = 0
        self.cut = 0
        self.now_ms = 1_000

    @rule(name=NAMES, start=st.integers(0, 50))
    def add(self, name: str, start: int) -> None:
        if name not in self.queues:
            self.queues.add(name, start).end = 200

    @rule(name=NAMES)
    def remove(self, name: str) -> None:
        if name in self.queues:
            self.queues.remove(name)

    @rule(name=NAMES, limit=st.integers(1, 12))
    def acquire(self, name: str, limit: int) -> None:
        engine = self.queues.get(name)
        if engine is not None:
            engine.acquire("ann", limit, self.now_ms)

    @rule(name=NAMES, first=st.integers(0, 60), length=st.integers(1, 5), verdict=st.sampled_from(Verdict))
    def settle(self, name: str, first: int, length: int, verdict: Verdict) -> None:
        engine = self.queues.get(name)
        if engine is None:
            return
        first += engine.ledger.low_mark
        try:
            engine.settle(None, [Settlement(first, first + length - 1, verdict)], self.now_ms)
        except ApiError:
            return

    @rule(ms=st.sampled_from([50, 600]))
    def time_passes(self, ms: int) -> None:
        self.now_ms += ms
        self.queues.pass_time(self.now_ms)

    @rule(can_append=st.booleans())
    def write(self, can_append: bool) -> None:
        entries = self.queues.take()
        if not entries:
            return
        if not can_append:
            self.queues.refused(self.now_ms)
            return
        self.log += [(self.end + at, entry) for at, entry in enumerate(entries)]
        self.queues.stored(self.end, self.end + len(entries))
        self.end += len(entries)

    @rule(part=st.integers(0, 3))
    def commit(self, part: int) -> None:
        self.committed += (self.end - self.committed) * part // 3
        for name, letter in self.queues.committed(self.committed):
            engine = self.queues.get(name)
            assert engine is not None
            if letter.offset % 2:
                engine.dead_letter_copied(letter.offset)

    @rule()
    def cut_the_log(self) -> None:
        needed_from = self.queues.needed_from
        self.cut = max(self.cut, min(needed_from if needed_from is not None else self.end, self.committed))

    @rule()
    def carry_forward(self) -> None:
        self.queues.carry_forward(self.end)

    @rule(kept=st.integers(0, 3))
    def another_leader(self, kept: int) -> None:
        """What was appended and not committed may be lost, in whole batches or in part."""
        self.end = self.committed + (self.end - self.committed) * kept // 3
        self.log = [entry for entry in self.log if entry[0] < self.end]
        self.committed = self.end
        self.queues = self.loaded(self.cut)
        for _, engine in self.queues:
            engine.end = 200
        self.queues.loaded()

    def loaded(self, since: int) -> PartitionQueues:
        queues = make()
        queues.replay(entry for entry in self.log if entry[0] >= since)
        return queues

    @invariant()
    def the_needed_tail_says_all(self) -> None:
        assert states(self.loaded(self.cut)) == states(self.loaded(0))

    @invariant()
    def the_committed_part_of_the_tail_says_all_of_it(self) -> None:
        committed = [entry for entry in self.log if entry[0] < self.committed]
        whole, tail = make(), make()
        whole.replay(committed)
        tail.replay(entry for entry in committed if entry[0] >= self.cut)
        assert states(tail) == states(whole)


class FrequentSnapshots(LogUnderQueues):
    """The same where deltas are turned into snapshots all the time."""

    def __init__(self) -> None:
        super().__init__()
        self.before = module.DELTAS_MIN_BYTES
        module.DELTAS_MIN_BYTES = 60  # type: ignore[misc]  # for this test

    def teardown(self) -> None:
        module.DELTAS_MIN_BYTES = self.before  # type: ignore[misc]


LogUnderQueues.TestCase.settings = settings(max_examples=80, stateful_step_count=40, deadline=None)
FrequentSnapshots.TestCase.settings = settings(max_examples=80, stateful_step_count=40, deadline=None)
TestLogUnderQueues = LogUnderQueues.TestCase
TestFrequentSnapshots = FrequentSnapshots.TestCase
