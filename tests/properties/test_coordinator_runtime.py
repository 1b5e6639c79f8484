"""Random histories of one shard: requests, effects, commits, refused appends, timers, restarts, and its promises."""

from collections.abc import Callable
from functools import partial

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule
from sim.clock import SimClock

from martlet.base.errors import ApiError, ErrorCode
from martlet.coordinator.result import Result
from martlet.coordinator.shard import Shard, ShardState
from tests.unit.coordinator.toy_machine import SENDING, FakeHost, FakeLog, NumberSet, ToyCodec, ToyMachine, ToyRecord

NAMES = st.sampled_from(["a", "b", "c"])
NUMBERS = st.integers(0, 9)


class Request:
    """One caller with the end of the log when it asked; `can_wait` when it may be parked."""

    def __init__(self, log: FakeLog, end_offset_of_answer: int | None) -> None:
        self.log = log
        self.committed_needed = end_offset_of_answer
        self.answers: list[object] = []

    def __call__(self, response: object) -> None:
        assert not self.answers, "SHARD-1: answered twice"
        is_refusal = isinstance(response, ApiError)
        if not is_refusal and self.committed_needed is not None:
            assert self.log.committed_offset >= self.committed_needed, "SHARD-1: answered before the commit"
        self.answers.append(response)


class ShardHistory(RuleBasedStateMachine):
    """SHARD-1 to SHARD-5 of `coordinator/shard.py`."""

    def __init__(self) -> None:
        super().__init__()
        self.clock = SimClock()
        self.requests: list[Request] = []
        self.stored: list[tuple[bytes, bytes | None]] = []
        self.start()

    def start(self) -> None:
        """A new leader: what the log holds, and nothing else."""
        self.machine, self.log, self.host = ToyMachine(), FakeLog(), FakeHost()
        self.effects_ended = 0
        self.log.batches = [list(self.stored)] if self.stored else []
        self.shard: Shard[ToyRecord] = Shard("toy-0", self.machine, ToyCodec(), self.log, self.clock, self.host)
        decoded = [ToyCodec().decode(*entry) for entry in self.stored]
        self.shard.replay_loaded([record for record in decoded if record is not None])
        self.shard.activate()

    def submit(self, operation: Callable[[int], Result[ToyRecord]], records: int, *, parks: bool = False) -> None:
        will_fail = self.log.refusal is not None and records
        needed = None if parks or will_fail else self.log.end_offset + records
        request = Request(self.log, needed)
        self.requests.append(request)
        self.shard.submit(operation, request)

    @rule(name=NAMES, number=NUMBERS)
    def put(self, name: str, number: int) -> None:
        self.submit(partial(self.machine.put, name, number), 1)

    @rule(first=NAMES, second=NAMES, number=NUMBERS)
    def put_two(self, first: str, second: str, number: int) -> None:
        self.submit(partial(self.machine.put_two, first, second, number), 2)

    @rule(name=NAMES)
    def get(self, name: str) -> None:
        self.submit(partial(self.machine.get, name), 0)

    @rule(name=NAMES)
    def refuse(self, name: str) -> None:
        self.submit(partial(self.machine.put, name, -1), 0)

    @rule(name=NAMES)
    def wait(self, name: str) -> None:
        self.submit(partial(self.machine.wait, name), 0, parks=True)

    @rule(name=NAMES, number=NUMBERS)
    def send(self, name: str, number: int) -> None:
        self.submit(partial(self.machine.send, name, number), 1)

    @precondition(lambda self: self.host.effects)
    @rule(data=st.data(), fails=st.booleans())
    def end_an_effect(self, data: st.DataObject, fails: bool) -> None:
        place = data.draw(st.integers(0, len(self.host.effects) - 1))
        outcome = ApiError(ErrorCode.NOT_LEADER_OR_FOLLOWER) if fails else self.effects_ended
        self.effects_ended += 1
        self.host.end_effect(outcome, place)

    @rule()
    def commit(self) -> None:
        self.log.commit()

    @rule(share=st.floats(0, 1))
    def commit_some(self, share: float) -> None:
        self.log.commit(int(self.log.end_offset * share))

    @rule(at_once=st.booleans())
    def commit_at_once(self, at_once: bool) -> None:
        self.log.commits_at_once = at_once

    @rule(code=st.sampled_from([None, ErrorCode.KAFKA_STORAGE_ERROR, ErrorCode.MESSAGE_TOO_LARGE]))
    def let_appends_fail(self, code: ErrorCode | None) -> None:
        self.log.refusal = None if code is None else ApiError(code)

    @rule(ms=st.integers(0, 8_000), limit=st.integers(1, 3))
    def pass_time(self, ms: int, limit: int) -> None:
        self.clock.advance(ms)
        self.shard.fire_due(limit)

    @rule(by_log=st.booleans())
    def restart(self, by_log: bool) -> None:
        self.stored = self.log.entries()
        if by_log and self.log.end_offset > self.log.committed_offset:
            self.log.close()
        else:
            self.shard.close()
        assert self.shard.state is ShardState.CLOSED
        unanswered = [request for request in self.requests if not request.answers]
        assert not unanswered, "SHARD-1: a caller was forgotten"
        self.requests.clear()
        self.start()

    @invariant()
    def the_state_is_that_of_the_log(self) -> None:
        replayed = ToyMachine()
        for entry in self.log.entries():
            record = ToyCodec().decode(*entry)
            assert isinstance(record, NumberSet)
            replayed.replay(record)
        assert self.machine.numbers == replayed.numbers, "SHARD-2"

    @invariant()
    def no_caller_waits_for_a_commit_that_has_happened(self) -> None:
        if self.log.committed_offset == self.log.end_offset:
            unanswered = sum(not request.answers for request in self.requests)
            assert unanswered == self.shard.waiting_count

    @invariant()
    def an_effect_has_started_only_for_what_is_committed(self) -> None:
        committed = self.stored + self.log.entries()[len(self.stored) :][: self.log.committed_offset]
        for effect, _ in self.host.effects:
            assert (b"\x01" + (SENDING + effect.name).encode(), str(effect.number).encode()) in committed, "SHARD-4"

    @invariant()
    def nothing_has_failed_inside(self) -> None:
        assert self.host.failures == []


TestShardHistory = ShardHistory.TestCase
