"""The runtime around a machine: order, commit, parking, timers, failures and endings."""

import logging
from functools import partial

import pytest
from sim.clock import SimClock

from martlet.base.errors import ApiError, ErrorCode, InvariantViolation
from martlet.coordinator.result import Result
from martlet.coordinator.shard import RETRY_MS, Shard, ShardState
from tests.unit.coordinator.toy_machine import (
    LAPSE_MS,
    Broken,
    Caller,
    FakeHost,
    FakeLog,
    NumberSet,
    ToyCodec,
    ToyMachine,
    ToyRecord,
    submit,
)


class Bench:
    """An active shard with everything it stands on."""

    def __init__(self, *, active: bool = True) -> None:
        self.clock = SimClock()
        self.machine = ToyMachine()
        self.log = FakeLog()
        self.host = FakeHost()
        self.shard: Shard[ToyRecord] = Shard("toy-0", self.machine, ToyCodec(), self.log, self.clock, self.host)
        if active:
            self.shard.activate()

    def put(self, name: str, number: int) -> Caller:
        return submit(self.shard, partial(self.machine.put, name, number))

    def get(self, name: str) -> Caller:
        return submit(self.shard, partial(self.machine.get, name))

    def wait(self, name: str) -> Caller:
        return submit(self.shard, partial(self.machine.wait, name))


def test_an_answer_leaves_only_when_its_records_are_committed() -> None:
    bench = Bench()
    caller = bench.put("a", 1)
    assert bench.machine.numbers == {"a": 1}
    assert caller.answers == []
    bench.log.commit()
    assert caller.answers == [1]


def test_a_reader_learns_nothing_that_is_not_committed() -> None:
    bench = Bench()
    bench.put("a", 1)
    reader = bench.get("a")
    refused = bench.put("a", -1)
    assert reader.answers == refused.answers == []
    bench.log.commit()
    assert reader.answers == [1]
    assert refused.code is ErrorCode.INVALID_REQUEST
    assert bench.get("a").answers == [1]


def test_all_records_of_a_result_are_one_batch() -> None:
    bench = Bench()
    submit(bench.shard, partial(bench.machine.put_two, "a", "b", 7))
    assert bench.log.batches == [[(b"\x01a", b"7"), (b"\x01b", b"7")]]


def test_a_log_that_commits_at_once_answers_at_once() -> None:
    bench = Bench()
    bench.log.commits_at_once = True
    waiter = bench.wait("a")
    assert bench.put("a", 1).answers == [1]
    assert waiter.answers == [1]


def test_a_parked_request_is_answered_by_a_later_result_once_that_is_committed() -> None:
    bench = Bench()
    waiter = bench.wait("a")
    assert bench.log.batches == []
    bench.put("a", 3)
    assert waiter.answers == []
    bench.log.commit()
    assert waiter.answers == [3]
    assert bench.shard.waiting_count == 0


def test_a_second_request_under_a_wait_key_replaces_the_first() -> None:
    bench = Bench()
    first = bench.wait("a")
    second = bench.wait("a")
    assert first.answers == ["replaced"]
    bench.put("a", 3)
    bench.log.commit()
    assert first.answers == ["replaced"]
    assert second.answers == [3]


@pytest.mark.parametrize(
    ("refusal", "answered"),
    [
        (ErrorCode.KAFKA_STORAGE_ERROR, ErrorCode.COORDINATOR_NOT_AVAILABLE),
        (ErrorCode.NOT_ENOUGH_REPLICAS, ErrorCode.COORDINATOR_NOT_AVAILABLE),
        (ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.NOT_COORDINATOR),
        (ErrorCode.MESSAGE_TOO_LARGE, ErrorCode.UNKNOWN_SERVER_ERROR),
        (ErrorCode.RECORD_LIST_TOO_LARGE, ErrorCode.UNKNOWN_SERVER_ERROR),
    ],
)
def test_a_failed_append_changes_nothing_and_tells_the_caller(refusal: ErrorCode, answered: ErrorCode) -> None:
    bench = Bench()
    waiter = bench.wait("a")
    bench.log.refusal = ApiError(refusal)
    caller = bench.put("a", 1)
    assert caller.code is answered
    assert bench.machine.numbers == {}
    assert waiter.answers == []
    assert bench.shard.next_timer_at_ms() is None
    bench.log.refusal = None
    bench.put("a", 2)
    bench.log.commit()
    assert waiter.answers == [2]


def test_while_loading_callers_get_an_error_that_says_so() -> None:
    bench = Bench(active=False)
    assert bench.get("a").code is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    bench.shard.replay_loaded([NumberSet("a", 5)])
    assert bench.get("a").code is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    bench.shard.activate()
    assert bench.get("a").answers == [5]
    assert bench.shard.next_timer_at_ms() == bench.clock.monotonic_ms() + LAPSE_MS


def test_a_timer_fires_when_its_time_has_come_and_the_host_learns_when() -> None:
    bench = Bench()
    bench.put("a", 1)
    assert bench.host.alarms[-1] == bench.clock.monotonic_ms() + LAPSE_MS
    assert not bench.shard.fire_due(10)
    assert bench.machine.numbers == {"a": 1}
    bench.clock.advance(LAPSE_MS)
    assert not bench.shard.fire_due(10)
    assert bench.machine.numbers == {}
    assert bench.log.batches[-1] == [(b"\x01a", None)]


def test_a_turn_fires_only_so_many_timers() -> None:
    bench = Bench()
    for number in range(5):
        bench.put(f"name{number}", number)
    bench.clock.advance(LAPSE_MS)
    assert bench.shard.fire_due(3)
    assert len(bench.machine.numbers) == 2
    assert not bench.shard.fire_due(3)
    assert bench.machine.numbers == {}


def test_a_timer_whose_records_cannot_be_stored_fires_again_a_second_later() -> None:
    bench = Bench()
    bench.put("a", 1)
    bench.clock.advance(LAPSE_MS)
    bench.log.refusal = ApiError(ErrorCode.KAFKA_STORAGE_ERROR)
    bench.shard.fire_due(10)
    assert bench.machine.numbers == {"a": 1}
    bench.log.refusal = None
    bench.clock.advance(RETRY_MS - 1)
    bench.shard.fire_due(10)
    assert bench.machine.numbers == {"a": 1}
    bench.clock.advance(1)
    bench.shard.fire_due(10)
    assert bench.machine.numbers == {}


def test_a_log_that_takes_nothing_is_worth_one_line(caplog: pytest.LogCaptureFixture) -> None:
    bench = Bench()
    for number in range(5):
        bench.put(f"name{number}", 1)
    bench.log.refusal = ApiError(ErrorCode.KAFKA_STORAGE_ERROR, "the disk is full")
    bench.clock.advance(LAPSE_MS)
    bench.shard.fire_due(10)
    bench.put("a", 1)
    assert caplog.messages == ["toy-0 cannot store changes: the disk is full"]


def test_what_a_loaded_machine_wants_is_tried_again_when_it_cannot_be_stored() -> None:
    class Tidying(ToyMachine):
        def on_loaded(self, now_ms: int) -> Result[ToyRecord]:
            return Result(records=[NumberSet("loaded", 1)])

    bench = Bench(active=False)
    machine = Tidying()
    shard: Shard[ToyRecord] = Shard("toy-0", machine, ToyCodec(), bench.log, bench.clock, bench.host)
    bench.log.refusal = ApiError(ErrorCode.KAFKA_STORAGE_ERROR)
    shard.activate()
    assert machine.numbers == {}
    bench.log.refusal = None
    bench.clock.advance(RETRY_MS)
    shard.fire_due(1)
    assert machine.numbers == {"loaded": 1}


def test_a_timer_handler_with_a_bug_is_logged_and_the_timer_kept(caplog: pytest.LogCaptureFixture) -> None:
    bench = Bench()
    bench.put("a", 1)
    bench.machine.fail_on_timer = ZeroDivisionError("bug")
    bench.clock.advance(LAPSE_MS)
    with caplog.at_level(logging.ERROR):
        bench.shard.fire_due(10)
    assert [record.getMessage() for record in caplog.records] == ["a timer of toy-0 failed"]
    bench.machine.fail_on_timer = None
    bench.clock.advance(60_000)
    bench.shard.fire_due(10)
    assert bench.machine.numbers == {}


def test_a_handler_with_a_bug_costs_its_caller_only(caplog: pytest.LogCaptureFixture) -> None:
    def fail(now_ms: int) -> Result[ToyRecord]:
        raise ZeroDivisionError("bug")

    bench = Bench()
    with caplog.at_level(logging.ERROR):
        assert submit(bench.shard, fail).code is ErrorCode.UNKNOWN_SERVER_ERROR
    assert len(caplog.records) == 1
    assert bench.host.failures == []
    assert bench.get("a").answers == [None]


def test_a_broken_invariant_in_a_handler_is_passed_on() -> None:
    def fail(now_ms: int) -> Result[ToyRecord]:
        raise InvariantViolation("two leaders")

    bench = Bench()
    assert submit(bench.shard, fail).code is ErrorCode.UNKNOWN_SERVER_ERROR
    assert [str(error) for error in bench.host.failures] == ["two leaders"]


def test_a_record_that_cannot_be_replayed_ends_the_shard_and_the_broker() -> None:
    bench = Bench()
    waiter = bench.wait("a")
    broken = submit(bench.shard, lambda now_ms: Result("never", [Broken(), NumberSet("a", 1)]))
    assert bench.shard.state is ShardState.CLOSED
    assert broken.code is waiter.code is ErrorCode.NOT_COORDINATOR
    assert bench.machine.numbers == {}
    (failure,) = bench.host.failures
    assert isinstance(failure, InvariantViolation)


def test_closing_tells_everybody_who_waits() -> None:
    bench = Bench()
    parked = bench.wait("b")
    uncommitted = bench.put("a", 1)
    bench.shard.close()
    bench.shard.close()
    assert parked.code is uncommitted.code is ErrorCode.NOT_COORDINATOR
    assert bench.get("a").code is ErrorCode.NOT_COORDINATOR
    bench.log.commit()
    bench.clock.advance(10 * LAPSE_MS)
    assert not bench.shard.fire_due(10)
    assert len(bench.log.batches) == 1
    assert len(parked.answers) == len(uncommitted.answers) == 1


def test_a_shard_closed_for_a_reason_gives_it_to_everybody() -> None:
    bench = Bench(active=False)
    bench.shard.close(ApiError(ErrorCode.COORDINATOR_NOT_AVAILABLE, "its log is damaged"))
    assert bench.get("a").code is ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert bench.shard.state is ShardState.CLOSED


def test_a_log_that_closes_closes_its_shard() -> None:
    bench = Bench()
    parked = bench.wait("b")
    uncommitted = bench.put("a", 1)
    bench.log.close()
    assert bench.shard.state is ShardState.CLOSED
    assert parked.code is uncommitted.code is ErrorCode.NOT_COORDINATOR


def test_a_closed_log_is_noticed_by_the_next_request_or_timer() -> None:
    by_request, by_timer, by_append = Bench(), Bench(), Bench()
    by_request.log.close()
    assert by_request.get("a").code is ErrorCode.NOT_COORDINATOR
    by_timer.put("a", 1)
    by_timer.log.commit()
    by_timer.log.close()
    by_timer.clock.advance(LAPSE_MS)
    by_timer.shard.fire_due(1)
    assert by_timer.shard.state is ShardState.CLOSED

    def close_then_write(now_ms: int) -> Result[ToyRecord]:
        by_append.log.close()
        by_append.log.refusal = ApiError(ErrorCode.KAFKA_STORAGE_ERROR)
        return Result(1, [NumberSet("a", 1)])

    assert submit(by_append.shard, close_then_write).code is ErrorCode.NOT_COORDINATOR
    assert by_append.shard.state is ShardState.CLOSED


def test_a_broker_about_to_stop_answers_parked_requests_and_parks_no_more() -> None:
    bench = Bench()
    first = bench.wait("a")
    uncommitted = bench.put("b", 1)
    bench.shard.stop_parking(ApiError(ErrorCode.NOT_COORDINATOR, "stopping"))
    assert first.code is ErrorCode.NOT_COORDINATOR
    assert uncommitted.answers == []
    second = bench.wait("a")
    bench.log.commit()
    assert uncommitted.answers == [1]
    assert second.code is ErrorCode.NOT_COORDINATOR
