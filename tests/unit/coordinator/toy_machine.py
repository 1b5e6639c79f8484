"""A small machine for tests of the runtime: names with numbers; some are waited for, some lapse, some are sent."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from martlet.base.errors import ApiError, ErrorCode
from martlet.coordinator.ports import LogEntry
from martlet.coordinator.result import Answer, CancelTimer, OfProducer, Parked, Result, SetTimer, TimerKey
from martlet.coordinator.shard import Shard

LAPSE_MS = 5_000
SENDING = "sending "
SENT = "sent "


@dataclass(frozen=True, slots=True)
class NumberSet:
    """Durable."""

    name: str
    number: int | None


@dataclass(frozen=True, slots=True)
class WaiterNoted:
    """Volatile."""

    name: str


@dataclass(frozen=True, slots=True)
class Broken:
    """Durable; replaying it fails, as only a bug could make it."""


ToyRecord = NumberSet | WaiterNoted | Broken


@dataclass(frozen=True, slots=True)
class Send:
    """An effect: the number goes to another place, whose receipt is the outcome."""

    name: str
    number: int


class ToyCodec:
    """Name as key, number as value."""

    def encode(self, record: ToyRecord) -> LogEntry | None:
        if isinstance(record, Broken):
            return b"\x01broken", b""
        if isinstance(record, WaiterNoted):
            return None
        return b"\x01" + record.name.encode(), None if record.number is None else str(record.number).encode()

    def decode(self, key: bytes, value: bytes | None) -> ToyRecord | None:
        if key[:1] != b"\x01":
            return None
        return NumberSet(key[1:].decode(), None if value is None else int(value))


class ToyMachine:
    """State: the numbers, and which names are waited for."""

    def __init__(self) -> None:
        self.numbers: dict[str, int] = {}
        self.waiters: set[str] = set()
        self.fail_on_timer: Exception | None = None
        self.fail_on_outcome: str | None = None

    def put(self, name: str, number: int, now_ms: int) -> Result[ToyRecord, int]:
        """Sets a number, which lapses after a while; the waiters get it."""
        if number < 0:
            raise ApiError(ErrorCode.INVALID_REQUEST, f"{number} is negative")
        answers = [Answer(("wait", name), number)] if name in self.waiters else []
        timers = [SetTimer(("lapse", name), LAPSE_MS)]
        return Result(number, [NumberSet(name, number)], timers, answers)

    def put_two(self, first: str, second: str, number: int, now_ms: int) -> Result[ToyRecord, int]:
        return Result(number, [NumberSet(first, number), NumberSet(second, number)])

    def get(self, name: str, now_ms: int) -> Result[ToyRecord, int | None]:
        return Result(self.numbers.get(name))

    def wait(self, name: str, now_ms: int) -> Result[ToyRecord, object]:
        """Parks until the name is next put."""
        return Result(Parked(("wait", name), "replaced"), [WaiterNoted(name)])

    def send(self, name: str, number: int, now_ms: int) -> Result[ToyRecord, int]:
        """Stores what is to be sent, and has it sent."""
        return Result(number, [NumberSet(SENDING + name, number)], effects=[Send(name, number)])

    def on_effect_done(self, effect: object, outcome: object, now_ms: int) -> Result[ToyRecord]:
        assert isinstance(effect, Send)
        if isinstance(outcome, ApiError):
            return Result(effects=[effect])
        assert isinstance(outcome, int)
        if self.fail_on_outcome is not None and effect.name == self.fail_on_outcome:
            raise ZeroDivisionError("bug")
        return Result(records=[NumberSet(SENDING + effect.name, None), NumberSet(SENT + effect.name, outcome)])

    def live_records(self) -> Iterator[list[NumberSet]]:
        for name in tuple(self.numbers):
            if name in self.numbers:
                yield [NumberSet(name, self.numbers[name])]

    def on_loaded(self, now_ms: int) -> Result[ToyRecord]:
        plain = [name for name in self.numbers if not name.startswith((SENDING, SENT))]
        unsent = [(name, number) for name, number in self.numbers.items() if name.startswith(SENDING)]
        return Result(
            timers=[SetTimer(("lapse", name), LAPSE_MS) for name in plain],
            effects=[Send(name.removeprefix(SENDING), number) for name, number in unsent],
        )

    def on_timer(self, key: TimerKey, now_ms: int) -> Result[ToyRecord]:
        if self.fail_on_timer is not None:
            raise self.fail_on_timer
        name = key[1]
        answers = [Answer(("wait", name), "lapsed")] if name in self.waiters else []
        return Result(records=[NumberSet(name, None)], timers=[CancelTimer(key)], answers=answers)

    def replay(self, record: ToyRecord) -> None:
        if isinstance(record, Broken):
            raise KeyError("broken")
        if isinstance(record, WaiterNoted):
            self.waiters.add(record.name)
        elif record.number is None:
            self.numbers.pop(record.name, None)
            self.waiters.discard(record.name)
        else:
            self.numbers[record.name] = record.number
            self.waiters.discard(record.name)


class FakeLog:
    """Batches in a list; commits when told, refuses when told."""

    def __init__(self) -> None:
        self.batches: list[list[LogEntry]] = []
        self.producers: list[OfProducer | None] = []
        self.end_offset = 0
        self.committed_offset = 0
        self.commits_at_once = False
        self.refusal: ApiError | None = None
        self._closed = False
        self._waiters: list[tuple[int, Callable[[], None]]] = []

    @property
    def closed(self) -> bool:
        return self._closed

    def append(self, entries: Sequence[LogEntry], now_ms: int, of_producer: OfProducer | None = None) -> int:
        if self.refusal is not None:
            raise self.refusal
        self.batches.append(list(entries))
        self.producers.append(of_producer)
        self.end_offset += len(entries)
        if self.commits_at_once:
            self.commit()
        return self.end_offset

    def when_committed(self, next_offset: int, callback: Callable[[], None]) -> bool:
        if next_offset <= self.committed_offset:
            return False
        self._waiters.append((next_offset, callback))
        return True

    def commit(self, offset: int | None = None) -> None:
        """Commit everything, or everything before an offset."""
        self.committed_offset = self.end_offset if offset is None else max(offset, self.committed_offset)
        due = [waiter for waiter in self._waiters if waiter[0] <= self.committed_offset]
        self._waiters = [waiter for waiter in self._waiters if waiter[0] > self.committed_offset]
        for _, callback in due:
            callback()

    def close(self) -> None:
        self._closed = True
        waiters, self._waiters = self._waiters, []
        for _, callback in waiters:
            callback()

    def entries(self) -> list[LogEntry]:
        return [entry for batch in self.batches for entry in batch]


class FakeHost:
    """Remembers the calls; a test ends the effects."""

    def __init__(self) -> None:
        self.alarms: list[int] = []
        self.failures: list[BaseException] = []
        self.effects: list[tuple[Send, Callable[[object], None]]] = []
        self.fail_on_effect = False
        self.stored_count = 0

    def wake_at(self, at_ms: int) -> None:
        self.alarms.append(at_ms)

    def start_effect(self, effect: object, done: Callable[[object], None]) -> None:
        assert isinstance(effect, Send)
        if self.fail_on_effect:
            raise OSError("no way out")
        self.effects.append((effect, done))

    def end_effect(self, outcome: object, place: int = 0) -> None:
        """The oldest effect under way, or another one, ends."""
        _, done = self.effects.pop(place)
        done(outcome)

    def stored(self, records: Sequence[object]) -> None:
        self.stored_count += len(records)

    def failed(self, error: BaseException) -> None:
        self.failures.append(error)


class Caller:
    """One request's answer."""

    def __init__(self) -> None:
        self.answers: list[object] = []

    def __call__(self, response: object) -> None:
        self.answers.append(response)

    @property
    def code(self) -> ErrorCode | None:
        """The code of the one answer, when it is a refusal."""
        (answer,) = self.answers
        return answer.code if isinstance(answer, ApiError) else None


def submit(shard: Shard[ToyRecord], operation: Callable[[int], Result[ToyRecord]]) -> Caller:
    caller = Caller()
    shard.submit(operation, caller)
    return caller
