"""One machine over one internal partition: runs its handlers, stores what they decide, answers once that is safe.

Rules: a handler's result is applied whole or not at all. Its durable records are appended as one batch; only then
are its records replayed, its timers set, its answers and effects queued. So a failed append needs no undoing.

How it works: every answer, refusals too, enters one response queue together with the end of the log at the time it was
given, and leaves when the log is committed up to there: no caller learns of a state that a crash could take back. An
effect waits in the same queue. A `Parked` request waits in a table until an `Answer` of a later result moves it to the
queue. A machine's bug costs its caller an error and one log line; this is one of the named supervisors that may catch
everything.

Invariants:
SHARD-1 Every caller is answered exactly once, and only when the state its answer speaks of is committed.
SHARD-2 The machine's durable state is that of its log, replayed, at any time outside of `_apply`.
SHARD-3 After `close` no caller waits, nothing is appended, no timer fires, no effect starts, no outcome is heard of.
SHARD-4 An effect starts after the records of its result are committed, once, in the order of the results.
SHARD-5 Outcomes reach the machine in the order in which they came, each until its result is stored; one that meets a
bug of the machine goes to the end.

Proved by: tests/unit/coordinator/test_shard.py, tests/unit/coordinator/test_effects.py,
tests/properties/test_coordinator_runtime.py
"""

import logging
from collections import deque
from collections.abc import Callable, Iterable
from enum import Enum, auto
from typing import Final, Generic, TypeAlias, TypeVar

from martlet.base.clock import Clock
from martlet.base.errors import ApiError, ErrorCode, InvariantViolation
from martlet.base.invariant import invariant
from martlet.coordinator.ports import LogEntry, ShardHost, ShardLog
from martlet.coordinator.result import (
    EffectfulMachine,
    Machine,
    OfProducer,
    Parked,
    RecordCodec,
    Result,
    TimerKey,
    WaitKey,
)
from martlet.coordinator.timers import TimerQueue

logger = logging.getLogger(__name__)

R = TypeVar("R")

Done: TypeAlias = Callable[[object], None]
"""Takes the response, or the ApiError, of one request."""

RETRY_MS: Final = 1_000
"""A timer whose records could not be stored fires again after this time."""

_RETRY_AFTER_BUG_MS: Final = 60_000
_ON_LOADED: Final[TimerKey] = ("shard", "loaded")
"""Stands in for a timer of the machine's when what `on_loaded` returned could not be stored."""
_ON_EFFECT_DONE: Final[TimerKey] = ("shard", "effect")
"""Hands the machine the oldest outcome; a timer, so that it is repeated when its result could not be stored."""

_TOO_LARGE: Final = frozenset(
    {ErrorCode.MESSAGE_TOO_LARGE, ErrorCode.RECORD_LIST_TOO_LARGE, ErrorCode.INVALID_RECORD, ErrorCode.CORRUPT_MESSAGE}
)


class ShardState(Enum):
    """Where a shard is in its life."""

    LOADING = auto()
    ACTIVE = auto()
    CLOSED = auto()


class Shard(Generic[R]):
    """Owned by a coordinator host; lives on one event loop, and is not to be called from a record's replay."""

    def __init__(
        self,
        name: str,
        machine: Machine[R],
        codec: RecordCodec[R],
        log: ShardLog,
        clock: Clock,
        host: ShardHost,
    ) -> None:
        self.name = name
        self.state = ShardState.LOADING
        self._machine = machine
        self._codec = codec
        self._log = log
        self._clock = clock
        self._host = host
        self._timers = TimerQueue()
        self._waiting: dict[WaitKey, Done] = {}
        self._queue: deque[tuple[int, Done, object]] = deque()
        """The response queue: the end of the log that has to be committed, then what to call with what."""
        self._outcomes: deque[tuple[object, object]] = deque()
        self._end_offset = 0
        self._committed_offset = 0
        self._busy = False
        self._log_refuses = False
        self._no_parking: ApiError | None = None
        self.closed_with: ApiError | None = None
        """Why it was closed, when that was not for the end of its leadership."""

    @property
    def waiting_count(self) -> int:
        """Parked requests."""
        return len(self._waiting)

    # --- loading

    def replay_loaded(self, records: Iterable[R]) -> None:
        """Replay some records of the log, in its order, before any request is served."""
        invariant(self.state is ShardState.LOADING, "a log is replayed before its shard serves")
        for record in records:
            if not self._replay(record):
                return

    def activate(self) -> None:
        """The whole log has been replayed: serve."""
        invariant(self.state is ShardState.LOADING, "a shard is activated once")
        self.state = ShardState.ACTIVE
        self._fire(_ON_LOADED)
        self._after_change()

    # --- serving

    def submit(self, operation: Callable[[int], Result[R]], done: Done) -> None:
        """Run one handler; `done` is called once, at once or later, with the response or an ApiError."""
        if self.state is ShardState.ACTIVE and self._log.closed:
            self.close()
        if self.state is not ShardState.ACTIVE:
            done(self._refusal())
            return
        try:
            self._apply(operation(self._clock.now_ms()), done)
        except ApiError as error:
            self._respond(done, error)
        except InvariantViolation as error:
            self._host.failed(error)
            self._respond(done, _internal_error(self.name))
        except Exception:
            logger.exception("a request to %s failed", self.name)
            self._respond(done, _internal_error(self.name))
        self._after_change()

    def next_timer_at_ms(self) -> int | None:
        """When `fire_due` has something to do, on the monotonic clock."""
        return self._timers.next_at_ms()

    def fire_due(self, limit: int) -> bool:
        """Fire up to `limit` timers that have run out; whether more of them wait."""
        now_ms = self._clock.monotonic_ms()
        for _ in range(limit):
            if self.state is not ShardState.ACTIVE:
                return False
            key = self._timers.pop_due(now_ms)
            if key is None:
                self._after_change()
                return False
            self._fire(key)
        self._after_change()
        return True

    # --- snapshots

    def restate(self, records: Iterable[R]) -> int:
        """Append records that say what the machine holds already, replaying none; the offset after them.

        Raises ApiError when they cannot be stored, or the shard does not serve.
        """
        if self.state is ShardState.ACTIVE and self._log.closed:
            self.close()
        if self.state is not ShardState.ACTIVE:
            raise self._refusal()
        entries = [entry for entry in map(self._codec.encode, records) if entry is not None]
        if entries:
            self._append(entries)
            self._deliver()
        return self._end_offset

    # --- ending

    def stop_parking(self, reason: ApiError) -> None:
        """Answer every parked request, and each that would be parked, with `reason`: the broker wants to stop soon."""
        self._no_parking = reason
        waiting, self._waiting = self._waiting, {}
        for done in waiting.values():
            done(reason)

    def close(self, reason: ApiError | None = None) -> None:
        """Serve no more; every request, waiting or new, is refused, by default as not sent to the coordinator."""
        if self.state is ShardState.CLOSED:
            return
        self.state = ShardState.CLOSED
        self.closed_with = reason
        reason = self._refusal()
        callers = [done for _, done, _ in self._queue if done != self._start_effect]
        callers += self._waiting.values()
        self._queue, self._waiting = deque(), {}
        self._timers, self._outcomes = TimerQueue(), deque()
        for done in callers:
            done(reason)

    # --- applying results

    def _fire(self, key: TimerKey) -> None:
        """One timer; what cannot be done now is tried again."""
        if self._log.closed:
            self.close()
            return
        retry_ms = RETRY_MS
        try:
            now_ms = self._clock.now_ms()
            if key == _ON_LOADED:
                self._apply(self._machine.on_loaded(now_ms), None)
            elif key == _ON_EFFECT_DONE:
                self._apply_outcome(now_ms)
            else:
                self._apply(self._machine.on_timer(key, now_ms), None)
            return
        except ApiError as error:
            if not self._log_refuses:
                logger.warning("a timer of %s was refused and will be tried again: %s", self.name, error)
        except InvariantViolation as error:
            self._host.failed(error)
        except Exception:
            logger.exception("a timer of %s failed", self.name)
            if key == _ON_EFFECT_DONE:
                self._outcomes.rotate(-1)
            if key != _ON_EFFECT_DONE or len(self._outcomes) == 1:
                retry_ms = _RETRY_AFTER_BUG_MS
        if self.state is ShardState.ACTIVE:
            self._timers.set(key, self._clock.monotonic_ms() + retry_ms)

    def _apply(self, result: Result[R], done: Done | None) -> None:
        """Append, replay, set timers, queue the answers and effects; ApiError when nothing of it was done."""
        encoded = [self._codec.encode(record) for record in result.records]
        entries = [entry for entry in encoded if entry is not None]
        self._busy = True
        try:
            if entries:
                self._append(entries, result.of_producer)
                self._host.stored(result.records)
            for record in result.records:
                if not self._replay(record):
                    break
        finally:
            self._busy = False
        if self.state is not ShardState.ACTIVE:
            if done is not None:
                done(self._refusal())
            return
        self._timers.apply(result.timers, self._clock.monotonic_ms())
        if isinstance(result.response, Parked):
            self._park(result.response, done)
        elif done is not None:
            self._respond(done, result.response)
        for answer in result.answers:
            parked = self._waiting.pop(answer.key, None)
            if parked is not None:
                self._respond(parked, answer.response)
        for effect in result.effects:
            self._respond(self._start_effect, effect)

    def _append(self, entries: list[LogEntry], of_producer: OfProducer | None = None) -> None:
        try:
            next_offset = self._log.append(entries, self._clock.now_ms(), of_producer)
        except ApiError as error:
            if self._log.closed:
                self.close()
                raise self._refusal() from error
            if not self._log_refuses:  # one line, however many requests and timers meet it
                logger.warning("%s cannot store changes: %s", self.name, error)
            self._log_refuses = True
            raise append_refusal(error) from error
        self._log_refuses = False
        self._end_offset = next_offset
        if not self._log.when_committed(next_offset, lambda: self._committed(next_offset)):
            self._committed_offset = next_offset

    def _replay(self, record: R) -> bool:
        """Whether the machine accepted it."""
        try:
            self._machine.replay(record)
            return True
        except Exception as error:
            # The log says one thing and the machine another: no answer of this shard can be trusted any more.
            logger.exception("%s cannot replay %s", self.name, type(record).__name__)
            self._host.failed(InvariantViolation(f"{self.name} cannot replay a {type(record).__name__}: {error!r}"))
            self.close()
            return False

    def _park(self, parked: Parked, done: Done | None) -> None:
        invariant(done is not None, "only a request can be parked")
        if done is None:
            return
        replaced = self._waiting.pop(parked.key, None)
        if replaced is not None:
            self._respond(replaced, parked.if_replaced)
        if self._no_parking is not None:
            self._respond(done, self._no_parking)
        else:
            self._waiting[parked.key] = done

    # --- effects

    def _start_effect(self, effect: object) -> None:
        invariant(isinstance(self._machine, EffectfulMachine), "a machine with effects hears of their outcomes")
        try:
            self._host.start_effect(effect, lambda outcome: self._effect_done(effect, outcome))
        except Exception:
            logger.exception("an effect of %s cannot be started", self.name)
            self._effect_done(effect, _internal_error(self.name))

    def _effect_done(self, effect: object, outcome: object) -> None:
        """The executor's report; the machine gets it in a turn of its own, after what is being applied now."""
        if self.state is ShardState.ACTIVE:
            self._outcomes.append((effect, outcome))
            if len(self._outcomes) == 1:
                self._outcome_waits()

    def _outcome_waits(self) -> None:
        now_ms = self._clock.monotonic_ms()
        self._timers.set(_ON_EFFECT_DONE, now_ms)
        self._host.wake_at(now_ms)

    def _apply_outcome(self, now_ms: int) -> None:
        effect, outcome = self._outcomes[0]
        if isinstance(self._machine, EffectfulMachine):
            self._apply(self._machine.on_effect_done(effect, outcome, now_ms), None)
        if self._outcomes:  # else the shard was closed
            self._outcomes.popleft()
        if self._outcomes:
            self._outcome_waits()

    # --- answering

    def _committed(self, offset: int) -> None:
        """The log is committed up to `offset`, or closed."""
        if self.state is not ShardState.ACTIVE:
            return
        if self._log.closed:
            self.close()
            return
        self._committed_offset = max(self._committed_offset, offset)
        if not self._busy:
            self._deliver()

    def _respond(self, done: Done, response: object) -> None:
        """Call with the response, or start the effect, once the log is committed up to here."""
        if self.state is not ShardState.ACTIVE:
            if done != self._start_effect:
                done(self._refusal())
        elif self._queue or self._end_offset > self._committed_offset:
            self._queue.append((self._end_offset, done, response))
        else:
            done(response)

    def _deliver(self) -> None:
        while self._queue and self._queue[0][0] <= self._committed_offset:
            _, done, response = self._queue.popleft()
            done(response)

    def _refusal(self) -> ApiError:
        if self.state is ShardState.LOADING:
            return ApiError(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, f"{self.name} is being loaded")
        return self.closed_with or ApiError(ErrorCode.NOT_COORDINATOR, f"{self.name} is not coordinated by this broker")

    def _after_change(self) -> None:
        """Answer the callers whose turn has come, and have the next timer fire."""
        self._deliver()
        at_ms = self._timers.next_at_ms()
        if at_ms is not None:
            self._host.wake_at(at_ms)


def append_refusal(error: ApiError) -> ApiError:
    """The error for a coordinator's client when its records could not be stored."""
    if error.code in _TOO_LARGE:
        return ApiError(ErrorCode.UNKNOWN_SERVER_ERROR, f"the change is too large to be stored: {error.detail}")
    if error.code is ErrorCode.NOT_LEADER_OR_FOLLOWER:
        return ApiError(ErrorCode.NOT_COORDINATOR, error.detail)
    return ApiError(ErrorCode.COORDINATOR_NOT_AVAILABLE, f"the change cannot be stored now: {error.detail}")


def _internal_error(name: str) -> ApiError:
    return ApiError(ErrorCode.UNKNOWN_SERVER_ERROR, f"the request failed inside {name}")
