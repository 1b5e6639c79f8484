"""What a machine answers with: a typed response, records to store, timers, answers to parked requests, and effects.

Rules: a handler reads state and returns a `Result`, changing nothing. The runtime appends the records that have a
form in the log, then gives every record of the result, in order, to `replay`, then sets the timers. The caller is
answered, and the effects are started, once the log up to there is committed. A handler that refuses a request raises
`ApiError`; nothing happens then.

Records come in two kinds, and the machine's codec knows which is which: durable ones go to the log and come
back after a restart; volatile ones (a member that is waiting, say) only change the state of this process.

Effects are what a machine wants done outside its own log: markers written on other brokers, an append to another
partition. They are data that the machine and its `EffectExecutor` agree on. The outcome comes back as a new operation,
`on_effect_done`. A leadership that ends forgets its effects, started or not; the next machine repeats in `on_loaded`
what its state says is unfinished. So an effect must be idempotent.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Generic, NamedTuple, Protocol, TypeAlias, runtime_checkable

from typing_extensions import TypeVar

R = TypeVar("R")
R_co = TypeVar("R_co", covariant=True)
S_co = TypeVar("S_co", covariant=True, default=Any)
"""The response; left out where no caller waits for one."""

TimerKey: TypeAlias = tuple[str, ...]
"""What a timer is for: its kind, then what it concerns, like ("session", group, member)."""

WaitKey: TypeAlias = tuple[str, ...]
"""Which parked request is meant, like ("join", group, member)."""


class SetTimer(NamedTuple):
    """Call `on_timer(key)` after this many milliseconds; replaces a timer of the same key.

    A delay and not an instant, so that a jump of the wall clock expires no session.
    """

    key: TimerKey
    delay_ms: int


class CancelTimer(NamedTuple):
    """Forget this timer; there need not be one."""

    key: TimerKey


class Parked(NamedTuple):
    """Given as a response: the caller is answered by the `Answer` of a later result.

    At most one request is parked under a key: when another one takes the place, the first gets `if_replaced`.
    """

    key: WaitKey
    if_replaced: object


class Answer(NamedTuple):
    """Answers the request parked under this key, with a response of that request's type; without one, does nothing."""

    key: WaitKey
    response: object


class OfProducer(NamedTuple):
    """Whose transaction the records of a result belong to; a control batch says how it has ended."""

    producer_id: int
    producer_epoch: int
    is_control: bool = False


@dataclass(frozen=True, slots=True)
class Result(Generic[R_co, S_co]):
    """The outcome of one request, one timer, one effect, or one update from outside."""

    response: S_co | Parked | None = None
    """None where there is no caller."""
    records: Sequence[R_co] = ()
    timers: Sequence[SetTimer | CancelTimer] = ()
    answers: Sequence[Answer] = ()
    effects: Sequence[object] = ()
    of_producer: OfProducer | None = None
    """The records are those of a producer's transaction; their batch carries its id and epoch."""


class Machine(Protocol[R]):
    """A state machine that a runtime can host."""

    def replay(self, record: R) -> None:
        """Change the state by one record; the only method that changes anything."""
        ...

    def on_loaded(self, now_ms: int) -> Result[R]:
        """Everything in the log has been replayed: set the timers, and start the effects, that the state calls for."""
        ...

    def on_timer(self, key: TimerKey, now_ms: int) -> Result[R]:
        """A timer has run out. It may come late, or for something long gone."""
        ...


class RestatableMachine(Protocol[R_co]):
    """A machine of which snapshots can be written; see `snapshots.py`."""

    def live_records(self) -> Iterator[Sequence[R_co]]:
        """The durable state as records, a few hundred at each step; the machine changes between the steps.

        A step gives the state as it is when the step is taken. Replaying all steps gives the whole state, whichever of
        the machine's records were replayed before and between them. A state that is only right as a whole, such as a
        number that later records are added to, belongs into one step.
        """
        ...


@runtime_checkable
class EffectfulMachine(Protocol):
    """A machine whose results have effects."""

    def on_effect_done(self, effect: object, outcome: object, now_ms: int) -> Result[Any]:
        """The effect has ended with this outcome, which may be an ApiError; it comes at most once per start.

        When what this returns cannot be stored, it is called again a second later.
        """
        ...


@runtime_checkable
class TransactionalCodec(Protocol[R_co]):
    """A codec whose machine has records in producers' transactions; without it such a batch is read like any other."""

    def decode_of_producer(self, of: OfProducer, key: bytes, value: bytes | None) -> R_co | None:
        """The record with this key and value in a producer's batch; None for a kind this version does not know."""
        ...


class RecordCodec(Protocol[R]):
    """The form of a machine's records in the log."""

    def encode(self, record: R) -> tuple[bytes, bytes | None] | None:
        """Key and value (None: a tombstone); None for a volatile record."""
        ...

    def decode(self, key: bytes, value: bytes | None) -> R | None:
        """The inverse; None for a record of a kind this version does not know, which is left alone."""
        ...
