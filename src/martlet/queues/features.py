"""What a subscription wants of its messages beyond one after the other, and what is seen of a message for that."""

from dataclasses import dataclass
from typing import Final, NamedTuple, Protocol

from martlet.queues.delay_run import Entry
from martlet.queues.filters import Filter
from martlet.queues.key_order import PARKED_MAX
from martlet.queues.priority import DEFAULT_LEVEL

AGE_MS_DEFAULT: Final = 5_000


class Schedule(Protocol):
    """When which message of the partition is due: the delay index, as a subscription uses it."""

    @property
    def is_complete(self) -> bool:
        """Whether nothing before `covered_end` is missing."""
        ...

    @property
    def covered_end(self) -> int: ...

    def due(self, after: Entry, upto_ms: int, limit: int) -> list[Entry]: ...

    def next_due_ms(self, after: Entry) -> int | None: ...

    def pending(self, after: Entry) -> int: ...

    def oldest_after(self, after: Entry) -> int | None:
        """Not above the lowest offset that is scheduled after this entry."""
        ...


@dataclass(frozen=True, slots=True)
class Features:
    """Of one subscription; without any a queue never looks inside its messages."""

    filter: Filter | None = None
    has_priority: bool = False
    has_key_order: bool = False
    schedule: Schedule | None = None
    """Where the topic's messages may be delayed."""
    expire_after_ms: int | None = None
    """A message expires so long after its timestamp, if its own headers do not say sooner."""
    age_ms: int = AGE_MS_DEFAULT
    """What has waited so long is served at every eighth delivery, whatever its priority."""
    parked_max: int = PARKED_MAX

    def __post_init__(self) -> None:
        for name in ("age_ms", "parked_max"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name} is {getattr(self, name)}; it is at least 1")
        if self.expire_after_ms is not None and self.expire_after_ms < 1:
            raise ValueError(f"messages expire after {self.expire_after_ms} ms; it is at least 1")


class Seen(NamedTuple):
    """One message, as far as a subscription has to know it."""

    offset: int
    due_ms: int = 0
    expires_ms: int = 0
    """0 for never; `due_ms` likewise."""
    priority: int = DEFAULT_LEVEL
    key: bytes | None = None
    is_wanted: bool = True
    """Whether the filter lets it through."""
