"""A bench for the transactions machine: results are carried out as a shard would, and markers come when a test says.

Every record goes through its bytes, so whatever a test does is also a test of the codec and of loading.
"""

from collections.abc import Iterable
from itertools import count
from typing import Any, TypeVar

from martlet.base.errors import ApiError, ErrorCode
from martlet.base.ids import TopicPartition
from martlet.coordinator.result import CancelTimer, Result, SetTimer, TimerKey
from martlet.transactions.machine import TransactionsMachine
from martlet.transactions.record_codec import TransactionRecordCodec
from martlet.transactions.records import ProducerPair, TransactionRecord, TransactionStored
from martlet.transactions.requests import (
    InitialisedProducer,
    InitWish,
    OfTransaction,
    TransactionsOptions,
    WriteMarkers,
)
from martlet.transactions.states import TransactionState
from martlet.transactions.transitions import Generation

S = TypeVar("S")

SECOND = Generation.SECOND
FIRST = Generation.FIRST
FIRST_ID = 1000
TIMEOUT_MS = 60_000


def partitions(*names: str) -> frozenset[TopicPartition]:
    """Written as "topic-0"."""
    split = (name.rsplit("-", 1) for name in names)
    return frozenset(TopicPartition(topic, int(index)) for topic, index in split)


ORDERS = partitions("orders-0", "orders-1")


class TransactionBench:
    """One machine, its log, its timers and the markers that are under way."""

    def __init__(self, options: TransactionsOptions | None = None) -> None:
        self.options = options or TransactionsOptions()
        self.now_ms = 1_000_000
        self.log: list[tuple[bytes, bytes | None]] = []
        self.appends: list[int] = []
        """How many records each append had."""
        self.ids = count(FIRST_ID)
        self.start()

    def start(self) -> None:
        """A new leader, which knows what is in the log."""
        self.machine = TransactionsMachine(self.options, lambda: next(self.ids))
        self.timers: dict[TimerKey, int] = {}
        self.markers: list[WriteMarkers] = []
        for entry in self.log:
            record = TransactionRecordCodec().decode(*entry)
            assert record is not None
            self.machine.replay(record)
        self.apply(self.machine.on_loaded(self.now_ms))

    def apply(self, result: Result[TransactionRecord, S]) -> S:
        """Store, replay, set timers, start effects; the response, or its error raised."""
        codec = TransactionRecordCodec()
        if result.records:
            self.appends.append(len(result.records))
        for record in result.records:
            entry = codec.encode(record)
            assert entry is not None
            self.log.append(entry)
            decoded = codec.decode(*entry)
            assert decoded == record
            self.machine.replay(record)
        self._set(result.timers)
        for effect in result.effects:
            assert isinstance(effect, WriteMarkers)
            self.markers.append(effect)
        response: Any = result.response
        if isinstance(response, ApiError):
            raise response
        answer: S = response
        return answer

    def _set(self, timers: Iterable[SetTimer | CancelTimer]) -> None:
        for timer in timers:
            if isinstance(timer, SetTimer):
                self.timers[timer.key] = self.now_ms + max(0, timer.delay_ms)
            else:
                self.timers.pop(timer.key, None)

    def wait(self, elapsed_ms: int) -> None:
        """Let time pass; timers fire at their instants."""
        end_ms = self.now_ms + elapsed_ms
        while due := sorted((at_ms, key) for key, at_ms in self.timers.items() if at_ms <= end_ms):
            self.now_ms, key = due[0]
            del self.timers[key]
            self.apply(self.machine.on_timer(key, self.now_ms))
        self.now_ms = end_ms

    def write_markers(self, outcome: object = None) -> list[WriteMarkers]:
        """The markers under way reach their partitions, or fail."""
        done, self.markers = self.markers, []
        for effect in done:
            self.apply(self.machine.on_effect_done(effect, outcome, self.now_ms))
        return done

    # --- requests

    def init(
        self, name: str = "app", expected: ProducerPair | None = None, *, timeout_ms: int = TIMEOUT_MS, **flags: bool
    ) -> ProducerPair:
        return self.initialised(name, expected, timeout_ms=timeout_ms, **flags).pair

    def initialised(
        self, name: str, expected: ProducerPair | None = None, *, timeout_ms: int = TIMEOUT_MS, **flags: bool
    ) -> InitialisedProducer:
        wish = InitWish(name, timeout_ms, expected, flags.get("two_phase", False), flags.get("keep", False))
        answer = self.apply(self.machine.init_producer_id(wish, self.now_ms))
        assert isinstance(answer, InitialisedProducer)
        return answer

    def add(
        self,
        pair: ProducerPair,
        names: frozenset[TopicPartition] = ORDERS,
        *,
        name: str = "app",
        generation: Generation = SECOND,
    ) -> None:
        self.apply(self.machine.add_partitions(OfTransaction(name, pair), names, generation, self.now_ms))

    def verify(
        self, pair: ProducerPair, names: frozenset[TopicPartition] = ORDERS, *, name: str = "app"
    ) -> frozenset[TopicPartition]:
        return self.apply(self.machine.verify_partitions(OfTransaction(name, pair), names, self.now_ms))

    def end(
        self, pair: ProducerPair, *, commit: bool = True, name: str = "app", generation: Generation = SECOND
    ) -> ProducerPair:
        return self.apply(self.machine.end_transaction(OfTransaction(name, pair), commit, generation, self.now_ms))

    def stored(self, name: str = "app") -> TransactionStored:
        stored = self.machine.table.get(name)
        assert stored is not None
        return stored

    def state(self, name: str = "app") -> TransactionState:
        return self.stored(name).state

    def put(self, record: TransactionStored) -> None:
        """Have this stand for the id, as if it had come so far."""
        self.apply(Result(None, [record]))


def code_of(call: Any, *arguments: Any, **options: Any) -> ErrorCode:
    """The error with which a call is refused; NONE when it is not."""
    try:
        call(*arguments, **options)
    except ApiError as error:
        return error.code
    return ErrorCode.NONE
