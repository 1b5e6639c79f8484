"""The state of one consumer group, changed by replaying records and by nothing else.

A member's state is its two records: `ConsumerMemberStored` (what it subscribes to) and `CurrentAssigned` (what it
owns). The group also keeps indexes, so that no heartbeat has to visit every member: the owner of each partition, the
number of sources (members naming it, regular expressions matching it) of each topic, the votes for each assignor.

Records may come in any order that a compacted log can have them: whatever is missing is created empty. The volatile
records at the top never go to the log; a restart forgets them, and `on_loaded` makes up for that.

Invariants:
GRP-7 A partition is owned by at most one member per epoch: `owners` names it for every partition that some member has
been assigned or has not given back yet.
GRP-8 `topic_sources` has exactly the topics that some member subscribes to.

Proved by: tests/unit/groups/consumer/test_group.py, tests/properties/test_consumer_group.py
"""

from collections.abc import Iterable, Iterator, MutableMapping
from dataclasses import dataclass
from enum import Enum
from typing import Final, NamedTuple, get_args

from martlet.base.ids import TopicId
from martlet.coordinator.draft import Overlay
from martlet.groups.records import (
    NO_PARTITIONS,
    ConsumerGroupRemoved,
    ConsumerGroupStored,
    ConsumerMemberRemoved,
    ConsumerMemberStored,
    CurrentAssigned,
    CurrentRemoved,
    MemberState,
    Partitions,
    RegexRemoved,
    RegexResolved,
    TargetAssigned,
    TargetEpochRemoved,
    TargetEpochStored,
    TargetRemoved,
)


@dataclass(frozen=True, slots=True)
class AssignmentDue:
    """A timer is set that will make a new target assignment for this group."""

    group_id: str


@dataclass(frozen=True, slots=True)
class ExpressionsDue:
    """`count` of the group's expressions, in order from the one behind `after` on, are still to be matched again."""

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
    """A member that speaks the classic protocol has been asked to join again, or has joined and not synced yet."""

    group_id: str
    member_id: str
    what: Awaited


JOINING_EPOCH: Final = 0
LEAVING_EPOCH: Final = -1
AWAY_EPOCH: Final = -2
"""A static member that has left for a while; its partitions wait for it."""

GroupRecord = (
    ConsumerGroupStored
    | ConsumerMemberStored
    | ConsumerMemberRemoved
    | TargetEpochStored
    | TargetEpochRemoved
    | TargetAssigned
    | TargetRemoved
    | CurrentAssigned
    | CurrentRemoved
    | RegexResolved
    | RegexRemoved
    | AssignmentDue
    | ExpressionsDue
    | ClassicMemberAwaited
)
"""What changes one group."""
ConsumerRecord = GroupRecord | ConsumerGroupRemoved
CONSUMER_RECORDS: Final = get_args(ConsumerRecord)
"""Every record, durable or not, that the consumer protocol replays."""


_MEMBERS_PER_STEP: Final = 50
"""Of one step of a snapshot."""


class Member(NamedTuple):
    """One member: what it subscribes to and what it owns, as last written."""

    stored: ConsumerMemberStored
    current: CurrentAssigned
    awaited: Awaited = Awaited.NOTHING

    @property
    def member_id(self) -> str:
        return self.stored.member_id

    @property
    def is_classic(self) -> bool:
        return self.stored.classic is not None


class TopicIndex:
    """Which groups ask for a topic; kept by the groups themselves as their subscriptions change."""

    __slots__ = ("_groups",)

    def __init__(self) -> None:
        self._groups: dict[str, set[str]] = {}

    def groups_of(self, name: str) -> frozenset[str]:
        return frozenset(self._groups.get(name, ()))

    def add(self, name: str, group_id: str) -> None:
        self._groups.setdefault(name, set()).add(group_id)

    def remove(self, name: str, group_id: str) -> None:
        groups = self._groups.get(name, set())
        groups.discard(group_id)
        if not groups:
            self._groups.pop(name, None)


class ConsumerGroup:
    """One group with its members; the runtime's loop owns it."""

    __slots__ = (
        "_index",
        "assignment_due",
        "assignor_votes",
        "classic_count",
        "classic_protocols",
        "epoch",
        "expressions_due",
        "group_id",
        "instances",
        "members",
        "metadata_hash",
        "owners",
        "regex_users",
        "regexes",
        "target_epoch",
        "targets",
        "topic_sources",
    )

    def __init__(self, group_id: str, index: TopicIndex | None = None) -> None:
        self.group_id = group_id
        self._index = TopicIndex() if index is None else index
        self.epoch = 0
        self.metadata_hash = 0
        self.target_epoch = 0
        self.members: MutableMapping[str, Member] = {}
        self.targets: MutableMapping[str, Partitions] = {}
        self.instances: MutableMapping[str, str] = {}
        """Static members: member id by instance id."""
        self.owners: MutableMapping[tuple[TopicId, int], str] = {}
        self.topic_sources: MutableMapping[str, int] = {}
        self.regexes: MutableMapping[str, RegexResolved] = {}
        self.regex_users: MutableMapping[str, int] = {}
        self.assignor_votes: MutableMapping[str, int] = {}
        self.classic_count = 0
        self.classic_protocols: MutableMapping[str, int] = {}
        """How many of the members that speak the classic protocol know each of its protocols."""
        self.assignment_due = False
        self.expressions_due = ("", 0)
        """How many expressions are to be matched again, and behind which one to go on."""

    def draft(self) -> "ConsumerGroup":
        """A copy for a handler; what it subscribes to stays out of the index."""
        draft = ConsumerGroup(self.group_id)
        draft.epoch, draft.target_epoch, draft.metadata_hash = self.epoch, self.target_epoch, self.metadata_hash
        draft.assignment_due, draft.expressions_due = self.assignment_due, self.expressions_due
        draft.members, draft.targets = Overlay(self.members), Overlay(self.targets)
        draft.instances, draft.owners = Overlay(self.instances), Overlay(self.owners)
        draft.topic_sources = Overlay(self.topic_sources)
        draft.regexes, draft.regex_users = Overlay(self.regexes), Overlay(self.regex_users)
        draft.assignor_votes = Overlay(self.assignor_votes)
        draft.classic_count, draft.classic_protocols = self.classic_count, Overlay(self.classic_protocols)
        return draft

    @property
    def is_empty(self) -> bool:
        return not self.members

    @property
    def has_reconciled(self) -> bool:
        """Whether every member has come to what the newest target gives it."""
        return all(
            member.current.state is MemberState.STABLE and member.current.epoch == self.target_epoch
            for member in self.members.values()
        )

    def subscribed_topics(self) -> frozenset[str]:
        """All topics that some member asks for, by name or by expression."""
        return frozenset(self.topic_sources)

    def target_of(self, member_id: str) -> Partitions:
        return self.targets.get(member_id, NO_PARTITIONS)

    def static_member(self, instance_id: str) -> Member | None:
        member_id = self.instances.get(instance_id)
        return None if member_id is None else self.members.get(member_id)

    def leave_index(self) -> None:
        """The group is gone: no change of a topic concerns it any more."""
        for name in self.topic_sources:
            self._index.remove(name, self.group_id)

    def topics_of(self, stored: ConsumerMemberStored) -> frozenset[str]:
        """What a member subscribes to, its expression resolved."""
        if stored.topic_regex is None:
            return frozenset(stored.topic_names)
        resolved = self.regexes.get(stored.topic_regex)
        return frozenset(stored.topic_names + (resolved.topics if resolved else ()))

    def live_records(self) -> Iterator[list[GroupRecord]]:
        """What the log says about the group, some at each step; members may come and go between the steps."""
        yield [
            ConsumerGroupStored(self.group_id, self.epoch, self.metadata_hash),
            *self.regexes.values(),
            *([TargetEpochStored(self.group_id, self.target_epoch)] if self.target_epoch else ()),
        ]
        member_ids = tuple(dict.fromkeys((*self.members, *self.targets)))
        for start in range(0, len(member_ids), _MEMBERS_PER_STEP):
            step: list[GroupRecord] = []
            for member_id in member_ids[start : start + _MEMBERS_PER_STEP]:
                member = self.members.get(member_id)
                if member is not None:
                    step += (member.stored, member.current)
                if member_id in self.targets:
                    step.append(TargetAssigned(self.group_id, member_id, self.targets[member_id]))
            yield step

    def replay(self, record: GroupRecord) -> None:
        """Change the state by one record."""
        match record:
            case CurrentAssigned():
                self._assign(record)
            case CurrentRemoved():
                self._forget_assignment(record.member_id)
            case ConsumerMemberStored():
                self._store_member(record)
            case ConsumerMemberRemoved():
                self._remove_member(record.member_id)
            case TargetAssigned():
                self.targets[record.member_id] = record.partitions
            case TargetRemoved():
                self.targets.pop(record.member_id, None)
            case TargetEpochStored():
                self.target_epoch = record.epoch
                self.assignment_due = False
            case TargetEpochRemoved():
                self.target_epoch = 0
            case ConsumerGroupStored():
                self.epoch = record.epoch
                self.metadata_hash = record.metadata_hash
            case RegexResolved():
                self._resolve(record.regex, record)
            case RegexRemoved():
                self._resolve(record.regex, None)
            case AssignmentDue():
                self.assignment_due = True
            case ExpressionsDue():
                self.expressions_due = (record.after, record.count)
            case ClassicMemberAwaited():
                member = self.members.get(record.member_id)
                if member is not None:
                    self.members[record.member_id] = member._replace(awaited=record.what)

    def _member(self, member_id: str) -> Member:
        """The member, made up when its own record comes later than its assignment in the log."""
        member = self.members.get(member_id)
        if member is None:
            stored = ConsumerMemberStored(self.group_id, member_id)
            current = CurrentAssigned(self.group_id, member_id, 0, 0, MemberState.STABLE)
            member = self.members[member_id] = Member(stored, current)
        return member

    def _store_member(self, stored: ConsumerMemberStored) -> None:
        member = self._member(stored.member_id)
        self._count(member.stored, -1)
        awaited = Awaited.NOTHING if stored.classic is None else member.awaited
        self.members[stored.member_id] = Member(stored, member.current, awaited)
        self._count(stored, 1)

    def _remove_member(self, member_id: str) -> None:
        member = self.members.get(member_id)
        if member is not None:
            self._count(member.stored, -1)
            self._release(member.current)
            del self.members[member_id]

    def _count(self, stored: ConsumerMemberStored, step: int) -> None:
        for name in stored.topic_names:
            self._count_topic(name, step)
        if stored.topic_regex is not None:
            _add(self.regex_users, stored.topic_regex, step)
        if stored.assignor is not None:
            _add(self.assignor_votes, stored.assignor, step)
        if stored.classic is not None:
            self.classic_count += step
            for name, _ in stored.classic.protocols:
                _add(self.classic_protocols, name, step)
        if stored.instance_id is not None:
            if step > 0:
                self.instances[stored.instance_id] = stored.member_id
            elif self.instances.get(stored.instance_id) == stored.member_id:
                del self.instances[stored.instance_id]

    def _count_topic(self, name: str, step: int) -> None:
        was_there = name in self.topic_sources
        _add(self.topic_sources, name, step)
        if was_there != (name in self.topic_sources):
            if was_there:
                self._index.remove(name, self.group_id)
            else:
                self._index.add(name, self.group_id)

    def _resolve(self, regex: str, resolved: RegexResolved | None) -> None:
        before = self.regexes.pop(regex, None)
        for name in before.topics if before else ():
            self._count_topic(name, -1)
        if resolved is not None:
            self.regexes[regex] = resolved
            for name in resolved.topics:
                self._count_topic(name, 1)

    def _assign(self, current: CurrentAssigned) -> None:
        member = self._member(current.member_id)
        self._release(member.current)
        self.members[current.member_id] = member._replace(current=current)
        for partition in _held(current):
            self.owners[partition] = current.member_id

    def _forget_assignment(self, member_id: str) -> None:
        member = self.members.get(member_id)
        if member is not None:
            self._release(member.current)
            nothing = CurrentAssigned(self.group_id, member_id, 0, 0, MemberState.STABLE)
            self.members[member_id] = member._replace(current=nothing)

    def _release(self, current: CurrentAssigned) -> None:
        for partition in _held(current):
            if self.owners.get(partition) == current.member_id:
                del self.owners[partition]


def _held(current: CurrentAssigned) -> Iterable[tuple[TopicId, int]]:
    """What no other member may be given."""
    return current.assigned | current.pending_revocation if current.pending_revocation else current.assigned


def _add(counts: MutableMapping[str, int], name: str, step: int) -> None:
    count = counts.get(name, 0) + step
    if count:
        counts[name] = count
    else:
        counts.pop(name, None)
