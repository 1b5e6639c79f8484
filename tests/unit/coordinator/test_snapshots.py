"""When a snapshot is due, and the one thing a shard does for it."""

from functools import partial

import pytest
from sim.clock import SimClock

from martlet.base.errors import ApiError, ErrorCode
from martlet.coordinator.shard import Shard
from martlet.coordinator.snapshots import LogGrowth, SnapshotRule
from tests.unit.coordinator.toy_machine import FakeHost, FakeLog, NumberSet, ToyCodec, ToyMachine, ToyRecord, submit

RULE = SnapshotRule(min_bytes=1_000, ratio=4)


def grown(log_bytes: int, live_bytes: int | None = None) -> LogGrowth:
    growth = LogGrowth(RULE)
    growth.added(log_bytes)
    growth.live_bytes = live_bytes
    return growth


def test_a_short_log_is_left_alone() -> None:
    assert not grown(1_000, 1).is_due
    assert grown(1_001, 1).is_due


def test_a_log_that_is_mostly_live_is_left_alone() -> None:
    assert not grown(5_000, 1_000).is_due
    assert grown(5_001, 1_000).is_due


def test_a_log_of_which_nothing_is_known_is_worth_measuring() -> None:
    assert grown(1_001).is_due


def test_after_a_snapshot_only_what_came_since_counts() -> None:
    growth = grown(9_000, 100)
    growth.restarted(700, 600)
    assert not growth.is_due
    growth.added(2_301)
    assert growth.is_due


def test_a_failed_snapshot_waits_until_the_log_has_grown() -> None:
    growth = grown(1_001, 1)
    growth.failed()
    growth.added(1_000)
    assert not growth.is_due
    growth.added(1)
    assert growth.is_due


def active_shard(log: FakeLog) -> tuple[Shard[ToyRecord], ToyMachine]:
    machine = ToyMachine()
    shard: Shard[ToyRecord] = Shard("toy-0", machine, ToyCodec(), log, SimClock(), FakeHost())
    shard.activate()
    return shard, machine


def test_restated_records_are_appended_and_not_replayed() -> None:
    log = FakeLog()
    shard, machine = active_shard(log)
    submit(shard, partial(machine.put, "a", 1))
    assert shard.restate([NumberSet("a", 5)]) == 2
    assert machine.numbers == {"a": 1}
    assert log.entries()[-1] == (b"\x01a", b"5")


def test_an_answer_given_after_a_restatement_waits_until_that_is_committed() -> None:
    log = FakeLog()
    shard, machine = active_shard(log)
    shard.restate([NumberSet("a", 1)])
    asked = submit(shard, partial(machine.get, "a"))
    assert not asked.answers
    log.commit()
    assert asked.answers == [None]


def test_a_shard_that_does_not_serve_is_not_written_to() -> None:
    log = FakeLog()
    shard, _ = active_shard(log)
    log.close()
    with pytest.raises(ApiError) as refusal:
        shard.restate([NumberSet("a", 1)])
    assert refusal.value.code is ErrorCode.NOT_COORDINATOR
    assert not log.batches


def test_nothing_to_restate_is_no_batch() -> None:
    log = FakeLog()
    shard, _ = active_shard(log)
    assert shard.restate([]) == 0
    assert not log.batches
