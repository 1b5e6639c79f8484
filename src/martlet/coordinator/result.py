"""What a machine answers with: records to store, what to tell whom, and timers to set.

Rules: a handler reads state and returns a `Result`, changing nothing. The runtime appends the records that have a
form in the log, then gives every record of the result, in order, to `replay`, then sets the timers, and tells the
callers once the log up to there is committed. A handler that refuses a request raises `ApiError`; nothing happens then.

Records come in two kinds, and the machine's codec knows which is which: durable ones go to the log and come
back after a restart; volatile ones (a member that is waiting, say) only change the state of this process.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Generic, NamedTuple, Protocol, TypeAlias, TypeVar

R = TypeVar("R")
R_contra = TypeVar("R_contra", contravariant=True)

TimerKey: TypeAlias = tuple[str, ...]
"""What a timer is for: its kind, then whom it concerns, like ("session", group, member)."""

WaitKey: TypeAlias = tuple[str, ...]
"""Which parked request is meant, like ("join", group, member)."""


class SetTimer(NamedTuple):
    """Call `on_timer(key)` in so many milliseconds; replaces a timer of the same key.

    A delay and not an instant, so that a jump of the wall clock can expire nobody.
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
    """Answers the request parked under this key; nothing happens when nobody waits there."""

    key: WaitKey
    response: object


@dataclass(frozen=True, slots=True)
class Result(Generic[R]):
    """The outcome of one request, one timer, or one piece of news."""

    response: object = None
    records: Sequence[R] = ()
    timers: Sequence[SetTimer | CancelTimer] = ()
    answers: Sequence[Answer] = ()


class Machine(Protocol[R]):
    """A state machine that a runtime can host."""

    def replay(self, record: R) -> None:
        """Change the state by one record; the only method that changes anything."""
        ...

    def on_loaded(self, now_ms: int) -> Result[R]:
        """Everything in the log has been replayed: set the timers that the state calls for."""
        ...

    def on_timer(self, key: TimerKey, now_ms: int) -> Result[R]:
        """A timer has run out. It may come late, or for something long gone."""
        ...


class RecordCodec(Protocol[R]):
    """How a machine's records look in the log."""

    def encode(self, record: R) -> tuple[bytes, bytes | None] | None:
        """Key and value (None: a tombstone); None for a volatile record."""
        ...

    def decode(self, key: bytes, value: bytes | None) -> R | None:
        """The inverse; None for a record of a kind this version does not know, which is left alone."""
        ...
