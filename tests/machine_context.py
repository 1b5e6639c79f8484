"""Runs a log-backed machine in tests, without a broker: replays what it returns, fires its timers, keeps its log.

Every durable record passes through the machine's codec, as it would on its way to the disk. `reload` makes the machine
that a new leader would have: everything replayed from the log, nothing volatile left.
"""

from collections.abc import Callable
from typing import Any, Generic, TypeVar

from martlet.coordinator.result import Answer, Machine, OfProducer, Parked, RecordCodec, Result, TransactionalCodec
from martlet.coordinator.timers import TimerQueue

M = TypeVar("M", bound=Machine[Any])


class Pending:
    """A request that was parked; `response` is there once it is answered."""

    def __init__(self) -> None:
        self.response: Any = None
        self.done = False

    def complete(self, response: Any) -> None:
        assert not self.done, "a request is answered once"
        self.response, self.done = response, True


class MachineContext(Generic[M]):
    """One machine with its log, its clock, its timers and those who wait."""

    def __init__(self, make: Callable[[], M], codec: RecordCodec[Any], now_ms: int = 1_000_000) -> None:
        self.machine = make()
        self.codec = codec
        self.now_ms = now_ms
        self.timers = TimerQueue()
        self.log: list[tuple[bytes, bytes | None]] = []
        self.producers: dict[int, OfProducer] = {}
        """Whose transactions entries of the log are in, by their places."""
        self.records: list[Any] = []
        """Every record replayed since the last `take_records`, volatile ones too."""
        self.waiting: dict[tuple[str, ...], Pending] = {}
        self._make = make

    def call(self, operation: Callable[[M, int], Result[Any]]) -> Any:
        """Run one request; returns its response, or a `Pending` when it was parked. ApiError passes through."""
        pending = Pending()
        self._carry_out(operation(self.machine, self.now_ms), pending)
        return pending.response if pending.done else pending

    def advance(self, ms: int) -> None:
        """Let time pass, firing every timer that runs out on the way, each at its own instant."""
        end_ms = self.now_ms + ms
        while (at_ms := self.timers.next_at_ms()) is not None and at_ms <= end_ms:
            self.now_ms = max(self.now_ms, at_ms)
            key = self.timers.pop_due(self.now_ms)
            assert key is not None
            self._carry_out(self.machine.on_timer(key, self.now_ms), None)
        self.now_ms = end_ms

    def reload(self) -> None:
        """Continue with a machine that knows only the log, as after a restart or on another broker."""
        self.machine = self._make()
        self.timers = TimerQueue()
        self.waiting.clear()
        for place, entry in enumerate(self.log):
            record = self._decode(entry, self.producers.get(place))
            assert record is not None
            self.machine.replay(record)
        self._carry_out(self.machine.on_loaded(self.now_ms), None)

    def compact(self) -> None:
        """Keep the newest record of each key, without tombstones."""
        assert not self.producers, "what is in transactions is not compacted so"
        newest = dict(self.log)
        last_at = {key: place for place, (key, _) in enumerate(self.log)}
        self.log = [
            (key, newest[key])
            for place, (key, _) in enumerate(self.log)
            if last_at[key] == place and newest[key] is not None
        ]

    def take_records(self) -> list[Any]:
        """What was replayed since the last call."""
        taken, self.records = self.records, []
        return taken

    def _decode(self, entry: tuple[bytes, bytes | None], of: OfProducer | None) -> Any:
        if of is None:
            return self.codec.decode(*entry)
        assert isinstance(self.codec, TransactionalCodec)
        return self.codec.decode_of_producer(of, *entry)

    def _carry_out(self, result: Result[Any], pending: Pending | None) -> None:
        for record in result.records:
            encoded = self.codec.encode(record)
            if encoded is not None:
                if result.of_producer is not None:
                    self.producers[len(self.log)] = result.of_producer
                self.log.append(encoded)
                decoded = self._decode(encoded, result.of_producer)
                assert decoded == record, f"{record} does not survive its codec: {decoded}"
            self.machine.replay(record)
            self.records.append(record)
        self.timers.apply(result.timers, self.now_ms)
        if pending is not None:
            if isinstance(result.response, Parked):
                replaced = self.waiting.pop(result.response.key, None)
                if replaced is not None:
                    replaced.complete(result.response.if_replaced)
                self.waiting[result.response.key] = pending
            else:
                pending.complete(result.response)
        for answer in result.answers:
            self._answer(answer)

    def _answer(self, answer: Answer) -> None:
        parked = self.waiting.pop(answer.key, None)
        if parked is not None:
            parked.complete(answer.response)
