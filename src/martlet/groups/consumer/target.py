"""Makes the target assignment of a group: what each member shall own once everybody has given back what it shall not.

The whole group is looked at here, so this is the one costly step (a few milliseconds for a thousand members). Groups of
up to 32 members get a new target with the heartbeat that notices a new group epoch. In bigger ones, where a burst of
joins would make a target for each of them, it is made by a timer, at most every 200 ms; members learn it by their next
heartbeats. A group that asks for a time between assignments gets its first target at once and every other one by the
timer, so much after the change that calls for it. Only members whose target changed get a record.
"""

from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple

from martlet.groups.consumer.assignors import ASSIGNORS
from martlet.groups.consumer.assignors.specification import MemberSpecification
from martlet.groups.consumer.consumer_group import ConsumerGroup, GroupRecord
from martlet.groups.ports import GroupsOptions, TopicsView, TopicView
from martlet.groups.records import (
    NO_PARTITIONS,
    ConsumerMemberStored,
    Partitions,
    TargetAssigned,
    TargetEpochStored,
)

AT_ONCE_MEMBERS_MAX: Final = 32
ASSIGN_DELAY_MS: Final = 200


class Target(NamedTuple):
    """A new target: everybody's partitions, and the records that make it so."""

    partitions: Mapping[str, Partitions]
    records: Sequence[GroupRecord]


class GroupOutlook(NamedTuple):
    """A group as it will be once the request at hand is carried out."""

    stored: Mapping[str, ConsumerMemberStored]
    partitions: Mapping[str, Partitions]
    """The target so far, by member."""
    regexes: Mapping[str, tuple[str, ...]]
    epoch: int


def outlook_of(group: ConsumerGroup) -> GroupOutlook:
    """The group as it is."""
    return GroupOutlook(
        {member_id: member.stored for member_id, member in group.members.items()},
        group.targets,
        {regex: resolved.topics for regex, resolved in group.regexes.items()},
        group.epoch,
    )


def make_target(group: ConsumerGroup, outlook: GroupOutlook, topics: TopicsView, options: GroupsOptions) -> Target:
    """Assign the partitions of all subscribed topics anew, moving as few as possible."""
    members = _specifications(outlook)
    views: dict[str, TopicView] = {}
    for subscription in {one.topics for one in members.values()}:
        for name in subscription:
            view = None if name in views else topics.topic(name)
            if view is not None:
                views[name] = view
    votes: dict[str, int] = {}
    for stored in outlook.stored.values():
        if stored.assignor is not None:
            votes[stored.assignor] = votes.get(stored.assignor, 0) + 1
    partitions = ASSIGNORS[preferred_assignor(votes, options)](members, views)
    records: list[GroupRecord] = [
        TargetAssigned(group.group_id, member_id, wanted)
        for member_id, wanted in partitions.items()
        if wanted is not (known := group.targets.get(member_id, NO_PARTITIONS)) and wanted != known
    ]
    records.append(TargetEpochStored(group.group_id, outlook.epoch))
    return Target(partitions, records)


def preferred_assignor(votes: Mapping[str, int], options: GroupsOptions) -> str:
    """The one most members ask for; without a vote, or when votes are equal, the one configured first."""
    known = [name for name in options.consumer_assignors if name in ASSIGNORS] or list(ASSIGNORS)
    return max(known, key=lambda name: votes.get(name, 0))


def _specifications(outlook: GroupOutlook) -> dict[str, MemberSpecification]:
    subscriptions: dict[tuple[tuple[str, ...], str | None], frozenset[str]] = {}
    members: dict[str, MemberSpecification] = {}
    for member_id, stored in outlook.stored.items():
        wish = (stored.topic_names, stored.topic_regex)
        topics = subscriptions.get(wish)
        if topics is None:
            matched = outlook.regexes.get(stored.topic_regex, ()) if stored.topic_regex is not None else ()
            topics = subscriptions[wish] = frozenset(stored.topic_names + matched)
        partitions = outlook.partitions.get(member_id, NO_PARTITIONS)
        members[member_id] = MemberSpecification(topics, partitions, stored.rack_id, stored.instance_id or member_id)
    return members
