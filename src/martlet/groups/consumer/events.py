"""What happens in consumer groups without going to the log.

A restart forgets it, and `on_loaded` makes up for that. Only the shapes live here; `group.py` says what they change.
"""

from dataclasses import dataclass
from enum import Enum
from typing import TypeAlias


@dataclass(frozen=True, slots=True)
class AssignmentDue:
    """A timer is set that will make a new target assignment for this group."""

    group_id: str


@dataclass(frozen=True, slots=True)
class ExpressionsDue:
    """So many of the group's expressions, in order from the one behind `after` on, are still to be matched anew."""

    group_id: str
    after: str
    count: int


class Awaited(Enum):
    """What a member that speaks the classic protocol has to do next, in the time it has for a rebalance."""

    NOTHING = "nothing"
    JOIN = "join"
    SYNC = "sync"


@dataclass(frozen=True, slots=True)
class ClassicMemberAwaited:
    """A member that speaks the classic protocol has been told to join again, or has joined and not synced yet."""

    group_id: str
    member_id: str
    what: Awaited


ConsumerEvent: TypeAlias = AssignmentDue | ExpressionsDue | ClassicMemberAwaited
