"""What a machine wants done outside: started after the commit, heard of in order, forgotten at the end, repeated."""

from functools import partial

from martlet.base.errors import ApiError, ErrorCode
from martlet.coordinator.shard import RETRY_MS, Shard
from tests.unit.coordinator.test_shard import Bench
from tests.unit.coordinator.toy_machine import SENDING, SENT, Caller, FakeHost, Send, ToyCodec, ToyMachine, submit


def send(bench: Bench, name: str, number: int) -> Caller:
    return submit(bench.shard, partial(bench.machine.send, name, number))


def started(host: FakeHost) -> list[Send]:
    return [effect for effect, _ in host.effects]


def test_an_effect_starts_when_the_records_of_its_result_are_committed_and_not_before() -> None:
    bench = Bench()
    caller = send(bench, "a", 1)
    assert bench.host.effects == []
    bench.log.commit()
    assert caller.answers == [1]
    assert started(bench.host) == [Send("a", 1)]
    bench.log.commit()
    assert started(bench.host) == [Send("a", 1)]


def test_an_effect_of_a_result_that_could_not_be_stored_never_starts() -> None:
    bench = Bench()
    bench.log.refusal = ApiError(ErrorCode.KAFKA_STORAGE_ERROR)
    send(bench, "a", 1)
    bench.log.refusal = None
    bench.put("b", 1)
    bench.log.commit()
    assert bench.host.effects == []


def test_an_outcome_comes_back_as_an_operation_of_its_own() -> None:
    bench = Bench()
    bench.log.commits_at_once = True
    send(bench, "a", 1)
    bench.host.end_effect(7)
    assert bench.machine.numbers == {SENDING + "a": 1}
    assert bench.host.alarms[-1] == bench.clock.monotonic_ms()
    bench.shard.fire_due(10)
    assert bench.machine.numbers == {SENT + "a": 7}


def test_outcomes_reach_the_machine_in_the_order_in_which_they_came() -> None:
    bench = Bench()
    bench.log.commits_at_once = True
    for name in ("a", "b", "c"):
        send(bench, name, 1)
    bench.host.end_effect(10, place=2)
    bench.host.end_effect(20, place=0)
    bench.host.end_effect(30)
    assert bench.shard.fire_due(2)
    assert list(bench.machine.numbers) == [SENDING + "b", SENT + "c", SENT + "a"]
    bench.shard.fire_due(2)
    assert list(bench.machine.numbers) == [SENT + "c", SENT + "a", SENT + "b"]


def test_an_outcome_whose_records_cannot_be_stored_is_handed_over_again_before_later_ones() -> None:
    bench = Bench()
    bench.log.commits_at_once = True
    send(bench, "a", 1)
    send(bench, "b", 1)
    bench.log.refusal = ApiError(ErrorCode.KAFKA_STORAGE_ERROR)
    bench.host.end_effect(10)
    bench.shard.fire_due(10)
    bench.host.end_effect(20)
    bench.shard.fire_due(10)
    bench.log.refusal = None
    bench.shard.fire_due(10)
    assert set(bench.machine.numbers) == {SENDING + "a", SENDING + "b"}
    bench.clock.advance(RETRY_MS)
    bench.shard.fire_due(10)
    assert list(bench.machine.numbers) == [SENT + "a", SENT + "b"]


def test_an_outcome_that_meets_a_bug_does_not_hold_up_the_others() -> None:
    bench = Bench()
    bench.log.commits_at_once = True
    send(bench, "a", 1)
    send(bench, "b", 1)
    bench.machine.fail_on_outcome = "a"
    bench.host.end_effect(10)
    bench.host.end_effect(20)
    bench.shard.fire_due(10)
    bench.clock.advance(RETRY_MS)
    bench.shard.fire_due(10)
    assert set(bench.machine.numbers) == {SENDING + "a", SENT + "b"}
    bench.machine.fail_on_outcome = None
    bench.clock.advance(60_000)
    bench.shard.fire_due(10)
    assert set(bench.machine.numbers) == {SENT + "a", SENT + "b"}


def test_a_failed_effect_can_be_started_again_by_the_machine() -> None:
    bench = Bench()
    bench.log.commits_at_once = True
    send(bench, "a", 1)
    bench.host.end_effect(ApiError(ErrorCode.NOT_LEADER_OR_FOLLOWER))
    bench.shard.fire_due(10)
    assert started(bench.host) == [Send("a", 1)]


def test_an_executor_that_cannot_start_an_effect_counts_as_an_outcome() -> None:
    bench = Bench()
    bench.log.commits_at_once = True
    bench.host.fail_on_effect = True
    send(bench, "a", 1)
    bench.host.fail_on_effect = False
    bench.shard.fire_due(10)
    assert started(bench.host) == [Send("a", 1)]


def test_a_shard_that_is_closed_starts_nothing_and_hears_of_nothing() -> None:
    bench = Bench()
    send(bench, "a", 1)
    bench.log.commit()
    uncommitted = send(bench, "b", 1)
    bench.shard.close()
    bench.log.commit()
    assert uncommitted.code is ErrorCode.NOT_COORDINATOR
    assert started(bench.host) == [Send("a", 1)]
    bench.host.end_effect(10)
    bench.shard.fire_due(10)
    assert set(bench.machine.numbers) == {SENDING + "a", SENDING + "b"}
    assert len(bench.log.batches) == 2


def test_an_outcome_that_waits_when_the_shard_closes_is_forgotten() -> None:
    bench = Bench()
    bench.log.commits_at_once = True
    send(bench, "a", 1)
    bench.host.end_effect(10)
    bench.log.close()
    bench.shard.fire_due(10)
    assert bench.machine.numbers == {SENDING + "a": 1}


def test_the_next_leader_starts_again_what_is_unfinished() -> None:
    bench = Bench()
    bench.log.commits_at_once = True
    send(bench, "a", 1)
    send(bench, "b", 2)
    bench.host.end_effect(10)
    bench.shard.fire_due(10)
    bench.shard.close()
    machine, host = ToyMachine(), FakeHost()
    shard = Shard("toy-0", machine, ToyCodec(), bench.log, bench.clock, host)
    decoded = (ToyCodec().decode(*entry) for entry in bench.log.entries())
    shard.replay_loaded(record for record in decoded if record is not None)
    assert host.effects == []
    shard.activate()
    assert started(host) == [Send("b", 2)]
