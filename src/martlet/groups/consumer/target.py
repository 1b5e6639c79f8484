"""Makes the target assignment of a group: what each member is to own once all have given back what they are not to own.

This is the one costly step, because it visits every member (a few milliseconds for a thousand of them). Groups of up to
32 members get a new target with the heartbeat that notices a new group epoch. In bigger ones, where a burst of joins
would make a target for each of them, a timer makes it, at most every 200 ms; members learn it by their next heartbeats.
A group that sets an assignment interval gets its first target at once and every other one by the timer, that long
after the change that calls for it. Only members whose target changed get a record.
"""

from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple

from martlet.groups.consumer.assignors import ASSIGNORS
from martlet.groups.consumer.assignors.specification import MemberSpecification
from martlet.groups.consumer.consumer_group import ConsumerGroup, GroupRecord
from martlet.groups.ports import GroupsOptions, TopicsView, TopicView
from martlet.groups.records import (
    Partitions,
    TargetAssigned,
    TargetEpochStored,
)

AT_ONCE_MEMBERS_MAX: Final = 32
ASSIGN_DELAY_MS: Final = 200

_NOTHING: Final[Mapping[str, Partitions]] = {}


class Target(NamedTuple):
    """A new target: the partitions of every member, and the records that make it so."""

    partitions: Mapping[str, Partitions]
    records: Sequence[GroupRecord]


def make_target(
    group: ConsumerGroup, topics: TopicsView, options: GroupsOptions, inherited: Mapping[str, Partitions] = _NOTHING
) -> Target:
    """Assign the partitions of all subscribed topics, moving as few as possible.

    `inherited` is what members that take a static member's place had as their target under their former ids.
    """
    members = _specifications(group, inherited)
    views: dict[str, TopicView] = {}
    for subscription in {one.topics for one in members.values()}:
        for name in subscription:
            view = None if name in views else topics.topic(name)
            if view is not None:
                views[name] = view
    partitions = ASSIGNORS[preferred_assignor(group.assignor_votes, options)](members, views)
    records: list[GroupRecord] = [
        TargetAssigned(group.group_id, member_id, wanted)
        for member_id, wanted in partitions.items()
        if wanted is not (known := group.target_of(member_id)) and wanted != known
    ]
    records.append(TargetEpochStored(group.group_id, group.epoch))
    return Target(partitions, records)


def preferred_assignor(votes: Mapping[str, int], options: GroupsOptions) -> str:
    """The one most members ask for; without a vote, or when votes are equal, the one configured first."""
    known = [name for name in options.consumer_assignors if name in ASSIGNORS] or list(ASSIGNORS)
    return max(known, key=lambda name: votes.get(name, 0))


def _specifications(group: ConsumerGroup, inherited: Mapping[str, Partitions]) -> dict[str, MemberSpecification]:
    subscriptions: dict[tuple[tuple[str, ...], str | None], frozenset[str]] = {}
    members: dict[str, MemberSpecification] = {}
    for member_id, member in group.members.items():
        stored = member.stored
        subscription = (stored.topic_names, stored.topic_regex)
        topics = subscriptions.get(subscription)
        if topics is None:
            topics = subscriptions[subscription] = group.topics_of(stored)
        partitions = inherited.get(member_id) or group.target_of(member_id)
        members[member_id] = MemberSpecification(topics, partitions, stored.rack_id, stored.instance_id or member_id)
    return members
