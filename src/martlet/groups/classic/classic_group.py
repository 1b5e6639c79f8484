"""The state of one classic group, and how records change it; other modules decide what to do about it.

`replay` is the only writer. A handler replays its records on a `draft`, which shares everything with the group but the
changes; afterwards the same records are replayed on the group itself.

Invariants, at all times:
GRP-3 `instances` names exactly the static members; `protocol_counts` and `members_bytes` sum over all members.
GRP-4 `joining`, `fresh`, `unsynced` and `syncing` are members, `pending` are not. Who is joining is not syncing.
GRP-5 The leader is a member; without members there is none.
GRP-6 The generation never gets smaller.

Proved by: tests/unit/groups/classic/test_group.py, tests/properties/test_classic_group.py
"""

from collections import Counter
from collections.abc import Mapping, MutableMapping
from dataclasses import dataclass, field
from enum import Enum
from typing import Final, TypeAlias

from martlet.base.invariant import invariant
from martlet.coordinator.draft import Overlay
from martlet.groups.classic.classic_events import (
    ClassicEvent,
    GenerationBegun,
    InitialDelay,
    InitialDelayExtended,
    MemberDescribed,
    MemberIdGiven,
    MemberJoined,
    MemberRejoined,
    MembersRemoved,
    MemberSynced,
    RebalancePrepared,
    StaticMemberReplaced,
)
from martlet.groups.classic.member import Member, Protocols
from martlet.groups.records import ClassicGroupStored, ClassicMemberStored
from martlet.wire.consumer_protocol import read_subscription


class ClassicState(Enum):
    """Values are the names that tools show.

    Empty: without members. PreparingRebalance: members are to join again. CompletingRebalance: a generation has begun
    and its leader owes the assignments. Stable: every member has, or can fetch, its assignment.
    """

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
"""The ways between the states; nothing else is allowed."""


CONSUMER_PROTOCOL_TYPE = "consumer"
"""The protocol type by which clients of the classic protocol say that they are consumers."""


ClassicRecord: TypeAlias = ClassicEvent | ClassicGroupStored
"""What changes one group."""


@dataclass(slots=True)
class ClassicGroup:
    """One group. The mappings to None are sets that keep their order."""

    group_id: str
    changed_at_ms: int
    """When it last became Stable or Empty; stamped by the broker's wall clock."""
    state: ClassicState = ClassicState.EMPTY
    generation: int = 0
    protocol_type: str | None = None
    protocol_name: str | None = None
    leader: str | None = None
    last_stored: ClassicGroupStored | None = None
    """What the log says about it; a group that is not in the log vanishes with the last one who wanted to join."""
    is_unsettled: bool = False
    """Its record has members but no leader: it was made for members that have not met in a generation yet."""
    members: MutableMapping[str, Member] = field(default_factory=dict)
    instances: MutableMapping[str, str] = field(default_factory=dict)
    """Instance id to member id."""
    protocol_counts: MutableMapping[str, int] = field(default_factory=dict)
    """How many members know each protocol."""
    members_bytes: int = 0
    assignments: MutableMapping[str, bytes] = field(default_factory=dict)
    pending: MutableMapping[str, None] = field(default_factory=dict)
    """Member ids given out, not yet joined with."""
    joining: MutableMapping[str, None] = field(default_factory=dict)
    """Members that wait in Join."""
    fresh: MutableMapping[str, None] = field(default_factory=dict)
    """Members that have not been answered to their first Join."""
    unsynced: MutableMapping[str, None] = field(default_factory=dict)
    """Members of the generation that have not sent their Sync."""
    syncing: MutableMapping[str, None] = field(default_factory=dict)
    """Members that wait in Sync."""
    initial: InitialDelay | None = None
    """Set while the rebalance being prepared is that of an empty group."""

    @property
    def is_empty(self) -> bool:
        return self.state is ClassicState.EMPTY

    @property
    def is_stored(self) -> bool:
        return self.last_stored is not None

    @property
    def has_all_joined(self) -> bool:
        return len(self.joining) == len(self.members) and not self.pending

    @property
    def is_needless(self) -> bool:
        """Nothing in it is worth remembering: it was never stored, and no member is in it or on the way."""
        return self.is_empty and not (self.is_stored or self.members or self.pending)

    @property
    def rebalance_timeout_ms(self) -> int:
        """The longest of all members'; visits all of them, so ask once per phase."""
        return max((member.rebalance_timeout_ms for member in self.members.values()), default=0)

    def draft(self) -> "ClassicGroup":
        """A group that can be changed without this one noticing; made in constant time."""
        return ClassicGroup(
            group_id=self.group_id,
            changed_at_ms=self.changed_at_ms,
            state=self.state,
            generation=self.generation,
            protocol_type=self.protocol_type,
            protocol_name=self.protocol_name,
            leader=self.leader,
            last_stored=self.last_stored,
            is_unsettled=self.is_unsettled,
            members=Overlay(self.members),
            instances=Overlay(self.instances),
            protocol_counts=Overlay(self.protocol_counts),
            members_bytes=self.members_bytes,
            assignments=Overlay(self.assignments),
            pending=Overlay(self.pending),
            joining=Overlay(self.joining),
            fresh=Overlay(self.fresh),
            unsynced=Overlay(self.unsynced),
            syncing=Overlay(self.syncing),
            initial=self.initial,
        )

    def supports(self, protocol_type: str, protocols: Protocols) -> bool:
        """Whether a member with these protocols can be in: one of them is known to every member."""
        if self.is_empty:
            return protocol_type != "" and len(protocols) > 0
        member_count = len(self.members)
        return protocol_type == self.protocol_type and any(
            self.protocol_counts.get(name, 0) == member_count for name, _ in protocols
        )

    def select_protocol(self) -> str:
        """Of the protocols that every member knows the one with most votes; the earliest vote breaks a tie."""
        member_count = len(self.members)
        candidates = {name for name, count in self.protocol_counts.items() if count == member_count}
        votes = Counter(member.vote(candidates) for member in self.members.values())
        choice = max(votes, key=lambda name: votes[name], default=None)
        invariant(choice is not None, f"the members of group {self.group_id!r} have a protocol in common")
        return choice or ""

    def subscribed_topics(self) -> frozenset[str] | None:
        """Topics its members subscribe to, as far as their metadata can be read; None: not known."""
        if self.protocol_type != CONSUMER_PROTOCOL_TYPE:
            return None
        if not self.members:
            return frozenset()
        topics: set[str] = set()
        for member in self.members.values():
            subscribed = subscribed_topics_of(member, self.protocol_name)
            if subscribed is None:
                return None
            topics |= subscribed
        return frozenset(topics)

    def stored(self, changed_at_ms: int, assignments: Mapping[str, bytes]) -> ClassicGroupStored:
        """The record of the group as it is, with these assignments."""
        invariant(ClassicState.STABLE in TRANSITIONS[self.state], f"{self.state.value} may become Stable")
        return ClassicGroupStored(
            group_id=self.group_id,
            protocol_type=self.protocol_type or "",
            generation=self.generation,
            protocol_name=self.protocol_name,
            leader=self.leader,
            changed_at_ms=changed_at_ms,
            members=tuple(
                ClassicMemberStored(
                    member_id=member.member_id,
                    instance_id=member.instance_id,
                    client_id=member.client_id,
                    client_host=member.client_host,
                    rebalance_timeout_ms=member.rebalance_timeout_ms,
                    session_timeout_ms=member.session_timeout_ms,
                    subscription=member.metadata(self.protocol_name) or b"",
                    assignment=assignments.get(member.member_id, b""),
                )
                for member in self.members.values()
            ),
        )

    def stored_empty(self, changed_at_ms: int) -> ClassicGroupStored:
        """The record that says that a generation without members has begun."""
        invariant(ClassicState.EMPTY in TRANSITIONS[self.state], f"{self.state.value} may become Empty")
        protocol_type = self.protocol_type or ""
        return ClassicGroupStored(self.group_id, protocol_type, self.generation + 1, None, None, changed_at_ms)

    def _restore(self, record: ClassicGroupStored) -> None:
        """Become what the record says: Stable with its members, or Empty.

        When this happens while members are in, they keep the protocols that the record does not name, and those that
        still owe a Sync go on owing it.
        """
        self.state = ClassicState.STABLE if record.members else ClassicState.EMPTY
        self.last_stored = record
        self.is_unsettled = bool(record.members) and record.leader is None
        self.changed_at_ms = record.changed_at_ms
        self.generation = record.generation
        self.protocol_type = record.protocol_type or None
        self.protocol_name = record.protocol_name
        self.leader = record.leader
        self.initial = None
        self.joining, self.fresh, self.syncing = {}, {}, {}
        self.assignments = {stored.member_id: stored.assignment for stored in record.members}
        self._restore_members(record)
        self.unsynced = {member_id: None for member_id in self.unsynced if member_id in self.members}
        if self.leader not in self.members:
            self.leader = next(iter(self.members), None)

    def _restore_members(self, record: ClassicGroupStored) -> None:
        known = self.members
        members = [_restored(stored, record.protocol_name, known.get(stored.member_id)) for stored in record.members]
        if members == list(known.values()):
            return
        self.members, self.instances, self.protocol_counts, self.members_bytes = {}, {}, {}, 0
        for member in members:
            self._put(member)

    def replay(self, event: "ClassicRecord") -> None:
        """Change the state by one record; `ClassicGroupRemoved` is for the owner of the groups."""
        match event:
            case ClassicGroupStored():
                self._restore(event)
            case MemberIdGiven():
                self.pending[event.member_id] = None
            case MemberJoined():
                self._add(event)
            case MemberDescribed():
                self._put(event.member)
            case MemberRejoined():
                self._put(event.member)
                self.joining[event.member.member_id] = None
            case StaticMemberReplaced():
                self._replace(event.old_member_id, event.member)
            case MembersRemoved():
                self._remove(event.member_ids)
            case RebalancePrepared():
                self._prepare(event)
            case InitialDelayExtended():
                self.initial = event.initial
            case GenerationBegun():
                self._begin(event)
            case MemberSynced():
                self.unsynced.pop(event.member_id, None)
                if event.waits:
                    self.syncing[event.member_id] = None

    def _move(self, state: ClassicState) -> None:
        invariant(state in TRANSITIONS[self.state], f"{self.state.value} may become {state.value}")
        self.state = state

    def _add(self, event: MemberJoined) -> None:
        member_id = event.member.member_id
        if not self.members:
            self.protocol_type = event.protocol_type
        self._put(event.member)
        if self.leader is None:
            self.leader = member_id
        self.joining[member_id] = None
        self.fresh[member_id] = None
        self.pending.pop(member_id, None)
        if self.initial is not None:
            self.initial = self.initial._replace(has_newcomers=True)

    def _put(self, member: Member) -> None:
        """Add the member, or take over what it says about itself now."""
        known = self.members.get(member.member_id)
        if known is not None:
            self._uncount(known)
        self.members[member.member_id] = member
        self.members_bytes += member.size_bytes
        for name, _ in member.protocols:
            self.protocol_counts[name] = self.protocol_counts.get(name, 0) + 1
        if member.instance_id is not None:
            self.instances[member.instance_id] = member.member_id

    def _uncount(self, member: Member) -> None:
        self.members_bytes -= member.size_bytes
        for name, _ in member.protocols:
            count = self.protocol_counts[name] - 1
            if count:
                self.protocol_counts[name] = count
            else:
                del self.protocol_counts[name]

    def _drop(self, member_id: str) -> None:
        member = self.members.pop(member_id, None)
        if member is not None:
            self._uncount(member)
            if member.instance_id is not None:
                del self.instances[member.instance_id]
        for mapping in (self.joining, self.fresh, self.unsynced, self.syncing, self.pending):
            mapping.pop(member_id, None)
        self.assignments.pop(member_id, None)

    def _remove(self, member_ids: tuple[str, ...]) -> None:
        for member_id in member_ids:
            self._drop(member_id)
        if self.leader not in self.members:
            self.leader = next(iter(self.members), None)

    def _replace(self, old_member_id: str, member: Member) -> None:
        assignment = self.assignments.get(old_member_id)
        owes_sync = old_member_id in self.unsynced
        self._drop(old_member_id)
        self._put(member)
        if assignment is not None:
            self.assignments[member.member_id] = assignment
        if owes_sync:
            self.unsynced[member.member_id] = None
        if self.leader == old_member_id:
            self.leader = member.member_id

    def _prepare(self, event: RebalancePrepared) -> None:
        if self.state is ClassicState.COMPLETING_REBALANCE:
            self.assignments = {}
        self._move(ClassicState.PREPARING_REBALANCE)
        self.is_unsettled = False
        self.unsynced, self.syncing = {}, {}
        self.initial = event.initial

    def _begin(self, event: GenerationBegun) -> None:
        invariant(event.generation > self.generation, "generations only grow")
        self._move(ClassicState.COMPLETING_REBALANCE)
        self.generation, self.protocol_name, self.leader = event.generation, event.protocol_name, event.leader
        self.initial = None
        self.joining, self.fresh, self.syncing = {}, {}, {}
        self.unsynced = dict.fromkeys(self.members)


def subscribed_topics_of(member: Member, protocol: str | None) -> frozenset[str] | None:
    """Topics the member's metadata for this protocol names; None when it cannot be read."""
    metadata = member.metadata(protocol)
    subscription = read_subscription(metadata) if metadata is not None else None
    return None if subscription is None else frozenset(subscription.topics)


def _restored(stored: ClassicMemberStored, protocol: str | None, known: Member | None) -> Member:
    is_same = known is not None and known.metadata(protocol) == stored.subscription
    return Member(
        member_id=stored.member_id,
        instance_id=stored.instance_id,
        client_id=stored.client_id,
        client_host=stored.client_host,
        rebalance_timeout_ms=stored.rebalance_timeout_ms,
        session_timeout_ms=stored.session_timeout_ms,
        protocols=known.protocols if known is not None and is_same else ((protocol or "", stored.subscription),),
    )
