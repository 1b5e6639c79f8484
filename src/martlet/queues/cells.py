"""What one byte says about a message of a subscription: waiting, leased, moved aside, finished, about to be finished.

Rules: the numbers are stored in the state log, so none may ever change. A message that is about to be finished
("closing") has the state it will have plus CLOSING: it can be neither leased nor expired until the record that says so
is committed or has failed.
"""

from typing import Final, TypeAlias

Cell: TypeAlias = int
"""A state in one byte."""

WAITING: Final = 0
LEASED: Final = 1
BACKING_OFF: Final = 2
"""Waits until its ready time; only strays do."""
STRAY: Final = 3
"""Kept in the table of strays, so that it does not pin the start of the window."""

ACKNOWLEDGED: Final = 4
REJECTED: Final = 5
EXHAUSTED: Final = 6
"""Its last attempt has failed."""
EXPIRED: Final = 7
CANCELLED: Final = 8
FILTERED: Final = 9
GAP: Final = 10
"""No message is at this offset: compaction or a transaction's marker left a hole."""
DEAD_LETTERED: Final = 11
"""Its copy in the dead-letter topic is committed."""
COPYING: Final = 12
"""On its way to the dead-letter topic; only strays are."""

FINISHED: Final = frozenset(range(ACKNOWLEDGED, DEAD_LETTERED + 1))
CLOSING: Final = 0x10

PASSABLE: Final = bytes((STRAY, *sorted(FINISHED)))
"""What the start of the window moves over."""

KEEPS_LEASE: Final = frozenset((ACKNOWLEDGED, REJECTED, GAP))
"""What a holder asked for: when it cannot be stored, the holder has the message again."""

ONE: Final = tuple(bytes((value,)) for value in range(256))
"""Every byte as a string of length one, to be repeated."""

NAMES: Final = {
    WAITING: "waiting",
    LEASED: "leased",
    BACKING_OFF: "backing off",
    STRAY: "moved aside",
    ACKNOWLEDGED: "acknowledged",
    REJECTED: "rejected",
    EXHAUSTED: "out of attempts",
    EXPIRED: "expired",
    CANCELLED: "cancelled",
    FILTERED: "filtered out",
    GAP: "no message",
    DEAD_LETTERED: "dead-lettered",
    COPYING: "being dead-lettered",
}
