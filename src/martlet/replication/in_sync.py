"""The in-sync set of a partition as its leader sees it: as stored, or with a change of it under way.

A change is proposed to the metadata store by compare-and-swap, whose answer may be late or never come. Until it is
known, both outcomes must be lived with: the *maximal* set holds the members of either.

Invariant: (REP-4) a record is committed only when every member of the maximal set has it, so whichever outcome the
store chose, its set is complete.
"""

from dataclasses import dataclass
from typing import TypeAlias

from martlet.base.ids import Member

Members: TypeAlias = frozenset[Member]


@dataclass(frozen=True, slots=True)
class Settled:
    """The set in the store, with no change under way."""

    members: Members

    @property
    def committed(self) -> Members:
        return self.members

    @property
    def maximal(self) -> Members:
        return self.members


@dataclass(frozen=True, slots=True)
class Proposed:
    """One or more changes were handed to the store and their outcome is not known.

    All of them compare the same partition epoch, so the store takes one at most.
    """

    members: Members
    proposed: Members
    """Every member of any of them."""
    open_count: int = 1

    @property
    def committed(self) -> Members:
        return self.members

    @property
    def maximal(self) -> Members:
        return self.members | self.proposed


InSyncState: TypeAlias = Settled | Proposed


@dataclass(frozen=True, slots=True)
class Proposal:
    """What the leader wants stored: this set, if the partition is still as it was at this partition epoch."""

    members: Members
    partition_epoch: int
    """The store's revision of the partition's record that the proposal is based on."""
