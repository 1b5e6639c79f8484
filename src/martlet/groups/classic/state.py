"""The states of a classic group and the ways between them; nothing else is allowed.

Empty: nobody is in. PreparingRebalance: members are to join again. CompletingRebalance: a generation has begun
and its leader owes the assignments. Stable: every member has, or can fetch, its assignment.
"""

from enum import Enum
from typing import Final


class ClassicState(Enum):
    """Values are the names that tools show."""

    EMPTY = "Empty"
    PREPARING_REBALANCE = "PreparingRebalance"
    COMPLETING_REBALANCE = "CompletingRebalance"
    STABLE = "Stable"


TRANSITIONS: Final[dict[ClassicState, frozenset[ClassicState]]] = {
    ClassicState.EMPTY: frozenset({ClassicState.PREPARING_REBALANCE}),
    ClassicState.PREPARING_REBALANCE: frozenset({ClassicState.COMPLETING_REBALANCE, ClassicState.EMPTY}),
    ClassicState.COMPLETING_REBALANCE: frozenset({ClassicState.STABLE, ClassicState.PREPARING_REBALANCE}),
    # Stable to Stable: a static member came back under a new member id, and the group is stored again.
    ClassicState.STABLE: frozenset({ClassicState.PREPARING_REBALANCE, ClassicState.STABLE}),
}
