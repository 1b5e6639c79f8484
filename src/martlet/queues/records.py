"""What is stored of a subscription: deltas and snapshots of its window and strays, as the engine sees them.

Rules: every entry is absolute (what the state *is*, not how it changed), so replaying a record twice, or one that was
overtaken within the same pass, does no harm. A message that was leased when the record was made is in it as waiting:
leases are not stored. `record_codec.py` knows the bytes.
"""

from dataclasses import dataclass
from typing import NamedTuple

from martlet.queues.cells import WAITING, Cell
from martlet.queues.window import CellRun


class StrayEntry(NamedTuple):
    """One message outside of the window; a finished state takes it out of the table."""

    offset: int
    cell: Cell
    attempts: int
    ready_ms: int = 0
    reason: Cell = WAITING


class ReleasedUpTo(NamedTuple):
    """Of the delayed messages from offset `begin` on, those up to this due time and offset were handed over."""

    begin: int
    due_ms: int
    offset: int


@dataclass(frozen=True, slots=True)
class StateRecord:
    """One record of a subscription and partition in the state log."""

    epoch: int
    """Rises when the subscription is moved to another offset: all that was known is void then."""
    start: int
    frontier: int
    """No message from here on was ever leased."""
    runs: tuple[CellRun, ...] = ()
    """Ascending and disjoint, from `start` on."""
    strays: tuple[StrayEntry, ...] = ()
    is_snapshot: bool = False
    """Whether what is not named has its first state: waiting, never leased."""
    released: ReleasedUpTo | None = None
    """How far delayed messages were handed over, where they are."""


class Closing(NamedTuple):
    """What becomes true when a record is committed."""

    first: int
    last: int
    cell: Cell
    is_stray: bool
    is_copied: bool
    """Whether it goes to the dead-letter topic before it is finished."""


@dataclass(frozen=True, slots=True)
class Change:
    """A record to be appended, and what the engine does once it is committed or has failed."""

    record: StateRecord
    closing: tuple[Closing, ...]


class DeadLetter(NamedTuple):
    """An effect: copy this message to the dead-letter topic, then say so with `dead_letter_copied`."""

    offset: int
    attempts: int
    reason: Cell
