"""The subscriptions of a partition: one batch a pass, refused batches, snapshots by bytes, and what may be cut."""

import pytest
from sim.randomness import SimRandomness

from martlet.base.errors import InvariantViolation
from martlet.base.ids import TopicId
from martlet.coordinator.ports import LogEntry
from martlet.queues.engine import Delivery, QueueEngine, QueueOptions, Settlement, Verdict
from martlet.queues.partition_queues import PartitionQueues, SubscriptionDeadLetter
from martlet.queues.record_codec import decode_state

TOPIC = TopicId(b"t" * 16)
NOW = 1_000_000


class StateLog:
    """A state log that commits when it is told to, and the queues above it."""

    def __init__(self, **options: bool) -> None:
        self.options = QueueOptions(window_max=100_000, **options)  # type: ignore[arg-type]  # passed through
        self.entries: list[tuple[int, LogEntry]] = []
        self.end = 0
        self.queues = self.make()

    def make(self) -> PartitionQueues:
        return PartitionQueues(TOPIC, 3, lambda name: QueueEngine(0, self.options, SimRandomness(1)))

    def add(self, name: str, start: int = 0) -> QueueEngine:
        engine = self.queues.add(name, start)
        engine.end = 1_000_000
        return engine

    def write(self) -> int:
        """One pass; how many records it wrote."""
        entries = self.queues.take()
        if entries:
            first = self.end
            self.entries += [(first + at, entry) for at, entry in enumerate(entries)]
            self.end += len(entries)
            self.queues.stored(first, self.end)
        return len(entries)

    def commit(self) -> list[SubscriptionDeadLetter]:
        return self.queues.committed(self.end)

    def load(self, since: int = 0) -> PartitionQueues:
        loaded = self.make()
        loaded.replay(entry for entry in self.entries if entry[0] >= since)
        loaded.loaded()
        for _, engine in loaded:
            engine.end = 1_000_000
        return loaded


def accept(engine: QueueEngine, first: int, last: int) -> None:
    engine.settle("ann", [Settlement(first, last, Verdict.ACCEPT)], NOW)


def test_all_that_changed_in_a_pass_is_one_batch_with_a_record_for_each_subscription() -> None:
    log = StateLog()
    one, two = log.add("one"), log.add("two", 500)
    log.add("idle")
    assert log.write() == 3
    assert log.write() == 0
    for engine in (one, two):
        engine.acquire("ann", 10, NOW)
    for offset in range(10):
        accept(one, offset, offset)
    accept(two, 500, 504)
    assert log.write() == 2
    log.commit()
    assert one.ledger.window.start == 10
    assert log.queues.low_mark == 0, "the idle one needs everything"
    assert log.load().low_mark == 0
    assert [name for name, _ in log.load()] == ["one", "two", "idle"]


def test_a_refused_batch_leaves_everything_as_it_was() -> None:
    log = StateLog()
    one = log.add("one")
    log.write()
    one.acquire("ann", 2, NOW)
    accept(one, 0, 1)
    log.queues.remove("one")
    assert len(log.queues.take()) == 1
    log.queues.refused(NOW)
    assert log.write() == 1, "the removal is tried again"
    assert "one" not in log.load()
    two = log.add("two")
    log.write()
    two.acquire("ann", 2, NOW)
    accept(two, 0, 1)
    log.queues.take()
    log.queues.refused(NOW)
    accept(two, 0, 1)  # they are the holder's again


def test_only_one_batch_is_on_its_way_into_the_log() -> None:
    log = StateLog()
    log.add("one")
    log.queues.take()
    with pytest.raises(InvariantViolation):
        log.queues.take()


def test_deltas_beyond_their_bound_become_a_snapshot_and_the_log_may_be_cut() -> None:
    log = StateLog()
    one = log.add("one")
    log.write()
    assert log.queues.needed_from == -1, "before its first snapshot is committed nothing may be cut"
    log.commit()
    assert log.queues.needed_from == 0
    one.acquire("ann", 100_000, NOW)
    passes = 0
    while log.queues.needed_from == 0:
        # Every other message: the worst there is for runs.
        for offset in range(200 * passes, 200 * passes + 200, 2):
            accept(one, offset, offset)
        log.write()
        log.commit()
        passes += 1
    assert 50 < passes < 500
    cut = log.queues.needed_from
    assert cut is not None
    assert log.end - cut <= 1
    whole, tail = log.load().get("one"), log.load(cut).get("one")
    assert whole is not None
    assert tail is not None
    assert whole.snapshot().record == tail.snapshot().record
    assert tail.acquire("bob", 1, NOW) == [Delivery(1, 1, 1)]


def test_an_idle_subscription_writes_a_snapshot_before_the_log_is_cut_behind_it() -> None:
    log = StateLog()
    idle, busy = log.add("idle"), log.add("busy")
    idle.acquire("ann", 3, NOW)
    accept(idle, 1, 1)
    log.write()
    log.commit()
    busy.acquire("ann", 10, NOW)
    for offset in range(10):
        accept(busy, offset, offset)
        log.write()
        log.commit()
    log.queues.carry_forward(5)
    assert log.write() == 2
    log.commit()
    cut = log.queues.needed_from
    assert cut is not None
    assert cut >= 5
    loaded = log.load(cut).get("idle")
    assert loaded is not None
    assert loaded.acquire("bob", 9, NOW)[:2] == [Delivery(0, 0, 1), Delivery(2, 2, 1)]


def test_a_removed_subscription_holds_the_log_until_its_end_is_committed() -> None:
    log = StateLog()
    log.add("old")
    log.write()
    log.commit()
    log.add("new")
    log.write()
    log.commit()
    log.queues.remove("old")
    seen = [log.queues.needed_from]
    log.write()
    seen.append(log.queues.needed_from)
    log.commit()
    seen.append(log.queues.needed_from)
    log.queues.remove("new")
    log.write()
    log.commit()
    assert [*seen, log.queues.needed_from] == [0, 0, 1, None]
    assert list(log.load()) == []


def test_a_subscription_of_the_same_name_begins_afresh() -> None:
    log = StateLog()
    log.add("one").acquire("ann", 5, NOW)
    log.write()
    log.queues.remove("one")
    again = log.add("one", 700)
    log.write()
    assert log.queues.committed(log.end) == []
    loaded = log.load().get("one")
    assert loaded is not None
    assert loaded.acquire("bob", 1, NOW) == again.acquire("bob", 1, NOW) == [Delivery(700, 700, 1)]


def test_copies_of_dead_letters_name_their_subscription() -> None:
    log = StateLog(has_dead_letters=True)
    one = log.add("one")
    one.acquire("ann", 2, NOW)
    one.settle("ann", [Settlement(0, 1, Verdict.REJECT)], NOW)
    log.write()
    letters = log.commit()
    assert [(letter.subscription, letter.letter.offset) for letter in letters] == [("one", 0), ("one", 1)]
    loaded = log.make()
    loaded.replay(log.entries)
    assert loaded.loaded() == letters


def test_time_passes_for_all_of_them() -> None:
    log = StateLog()
    for name in ("one", "two"):
        log.add(name).acquire("ann", 1, NOW)
    assert log.queues.next_due_ms() == NOW + 30_000
    assert not log.queues.pass_time(NOW + 30_000)
    log.commit()
    assert log.queues.next_due_ms() is None
    assert log.write() == 2


def test_records_of_another_partition_are_left_alone() -> None:
    log = StateLog()
    log.add("one")
    log.write()
    other = PartitionQueues(TOPIC, 4, lambda name: QueueEngine(0, log.options, SimRandomness(1)))
    other.replay(log.entries)
    assert list(other) == []
    assert decode_state(log.entries[0][1][1] or b"").is_snapshot
