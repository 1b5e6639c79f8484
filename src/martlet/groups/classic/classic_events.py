"""What happens in a classic group between two stored generations: volatile records, gone with the process.

Each one is a fact that `ClassicGroup.apply` knows how to carry out; the decisions are made before, by the handlers.
The durable records of a classic group are in `groups/records.py`.
"""

from dataclasses import dataclass
from typing import Final, NamedTuple, TypeAlias, get_args

from martlet.groups.classic.member import Member


class InitialDelay(NamedTuple):
    """How the first rebalance of an empty group waits for more members."""

    delay_ms: int
    """Of the wait under way."""
    remaining_ms: int
    """How much longer it may be extended after that."""
    has_newcomers: bool = False
    """A member joined during the wait under way, so it is extended once more."""


@dataclass(frozen=True, slots=True)
class MemberIdGiven:
    """A new dynamic member was given a member id and is expected to come back with it."""

    group_id: str
    member_id: str
    at_ms: int


@dataclass(frozen=True, slots=True)
class MemberJoined:
    """A new member is in, and waits in Join."""

    group_id: str
    protocol_type: str
    member: Member
    at_ms: int


@dataclass(frozen=True, slots=True)
class MemberDescribed:
    """What is known about a member beyond what the group's record can say."""

    group_id: str
    member: Member


@dataclass(frozen=True, slots=True)
class MemberRejoined:
    """A member waits in Join, perhaps with other timeouts and protocols than before."""

    group_id: str
    member: Member


@dataclass(frozen=True, slots=True)
class StaticMemberReplaced:
    """A static member came back under a new member id; what was assigned to the old one is the new one's."""

    group_id: str
    old_member_id: str
    member: Member


@dataclass(frozen=True, slots=True)
class MembersRemoved:
    """Members, or those expected to come back with their new id, are out."""

    group_id: str
    member_ids: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class RebalancePrepared:
    """All members shall join again; `initial` is there when the group was empty."""

    group_id: str
    initial: InitialDelay | None = None


@dataclass(frozen=True, slots=True)
class InitialDelayExtended:
    """The first rebalance waits once more, because members still come."""

    group_id: str
    initial: InitialDelay


@dataclass(frozen=True, slots=True)
class GenerationBegun:
    """The join phase is over: the members there now are the generation, and owe a Sync."""

    group_id: str
    generation: int
    protocol_name: str
    leader: str


@dataclass(frozen=True, slots=True)
class MemberSynced:
    """A member has sent its Sync; `waits` for the leader's, or has been answered."""

    group_id: str
    member_id: str
    waits: bool


ClassicEvent: TypeAlias = (
    MemberIdGiven
    | MemberJoined
    | MemberDescribed
    | MemberRejoined
    | StaticMemberReplaced
    | MembersRemoved
    | RebalancePrepared
    | InitialDelayExtended
    | GenerationBegun
    | MemberSynced
)

CLASSIC_EVENTS: Final = get_args(ClassicEvent)
