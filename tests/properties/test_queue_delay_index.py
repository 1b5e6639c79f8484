"""The delay index against a sorted list: filled, asked by several, restarted, damaged and cut in any order."""

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule
from sim.disk import SimDisk
from sim.randomness import SimRandomness

from martlet.queues.delay_index import DelayIndex
from martlet.queues.delay_run import Entry


class DelayModel(RuleBasedStateMachine):
    """The log is a list of due times by offset, 0 for a message that is not delayed."""

    def __init__(self) -> None:
        super().__init__()
        self.disk = SimDisk(SimRandomness(1))
        self.log: list[int] = []
        self.now_ms = 1_000
        self.positions: list[Entry] = [(0, -1), (0, -1)]
        self.open()

    def open(self) -> None:
        self.index = DelayIndex(self.disk, "delay", run_entries=4, near_ms=20)
        self.index.open(0)
        self.read_again()

    def entries(self, first: int, end: int) -> list[Entry]:
        return [(self.log[offset], offset) for offset in range(first, end) if self.log[offset]]

    def read_again(self) -> None:
        for part in list(self.index.missing):
            self.index.restore(part, self.entries(part.first, part.end))
        for due_ms, offset in self.entries(self.index.covered_end, len(self.log)):
            self.index.add(due_ms, offset)
        self.index.saw(len(self.log))

    @rule(delays=st.lists(st.sampled_from([0, 1, 5, 15, 30, 200, 1_000]), max_size=6))
    def publish(self, delays: list[int]) -> None:
        self.log += [self.now_ms + delay if delay else 0 for delay in delays]
        self.read_again()

    @rule(who=st.integers(0, 1), limit=st.sampled_from([1, 3, 100]))
    def ask(self, who: int, limit: int) -> None:
        after = self.positions[who]
        found = self.index.due(after, self.now_ms, limit)
        if self.index.missing:
            self.read_again()
            found = self.index.due(after, self.now_ms, limit)
        expected = [
            entry for entry in sorted(self.entries(0, len(self.log))) if after < entry <= (self.now_ms, 1 << 60)
        ]
        assert found == expected[:limit]
        if found:
            self.positions[who] = found[-1]
        elif after < (self.now_ms, -1):
            self.positions[who] = (self.now_ms, 1 << 60)

    @rule(ms=st.sampled_from([1, 7, 60, 5_000]))
    def time_passes(self, ms: int) -> None:
        self.now_ms += ms

    @rule()
    def forget(self) -> None:
        self.index.forget(min(due_ms for due_ms, _ in self.positions) - 1)

    @rule()
    def flush(self) -> None:
        self.index.flush()

    @rule()
    def restart(self) -> None:
        self.index.close()
        self.open()

    @rule(at=st.integers(0, 200), which=st.integers(0, 20))
    def damage(self, at: int, which: int) -> None:
        names = [entry for entry in self.disk.list_directory("delay") if entry.name != "runs" and entry.size > at]
        if names:
            self.disk.overwrite(f"delay/{names[which % len(names)].name}", at, b"\xa5")

    @rule(lost=st.integers(1, 10))
    def cut(self, lost: int) -> None:
        end = max(0, len(self.log) - lost)
        del self.log[end:]
        self.index.truncate(end)
        self.read_again()

    @invariant()
    def the_next_due_time_is_never_late(self) -> None:
        for after in self.positions:
            due_ms = self.index.next_due_ms(after)
            if self.index.missing:
                self.read_again()
                due_ms = self.index.next_due_ms(after)
            later = [entry for entry in self.entries(0, len(self.log)) if entry > after]
            assert due_ms == min((due for due, _ in later), default=None)


DelayModel.TestCase.settings = settings(max_examples=100, stateful_step_count=40, deadline=None)
TestDelayModel = DelayModel.TestCase
