"""What a shard needs from outside: a log to append to and a host that wakes it; the time comes from a `Clock`.

The broker's adapters are in `broker/coordinators`; tests bring a log that commits when they say so.
"""

from collections.abc import Callable, Sequence
from typing import Any, Protocol

from martlet.coordinator.result import OfProducer

LogEntry = tuple[bytes, bytes | None]
"""Key and value of one record in the log; without a value it is a tombstone."""


class ShardLog(Protocol):
    """The internal partition under a shard, as its leader sees it."""

    @property
    def closed(self) -> bool:
        """Whether it can never be used again: its storage failed, its topic was deleted, another broker leads."""
        ...

    def append(self, entries: Sequence[LogEntry], now_ms: int, of_producer: OfProducer | None = None) -> int:
        """Append all of them as one batch and return the offset after it; raises ApiError and writes nothing."""
        ...

    def when_committed(self, next_offset: int, callback: Callable[[], None]) -> bool:
        """Call back once everything before `next_offset` is committed, or the log is closed; False when it already is.

        Offsets are given in rising order.
        """
        ...


class EffectExecutor(Protocol):
    """Does outside what a machine wants done there."""

    def start_effect(self, effect: object, done: Callable[[object], None]) -> None:
        """Start this work, and call `done` once, at once or later, with its outcome; an ApiError when it failed."""
        ...


class ShardHost(EffectExecutor, Protocol):
    """The shell around a shard."""

    def stored(self, records: Sequence[Any]) -> None:
        """The records of a result were appended, and those among them that are volatile will be replayed."""
        ...

    def wake_at(self, at_ms: int) -> None:
        """Have `fire_due` called at this instant of the monotonic clock, or sooner; repeated at every change."""
        ...

    def failed(self, error: BaseException) -> None:
        """Something that must always be true is not: the process has to end."""
        ...
