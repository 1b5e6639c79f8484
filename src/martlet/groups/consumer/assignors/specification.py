"""What an assignor is given and what it gives back.

Only shapes live here. Invariant of every assignor:
GRP-10 Each partition of a topic with subscribers goes to exactly one member, and that member subscribes to the topic.
"""

from collections.abc import Callable, Mapping
from typing import NamedTuple, TypeAlias

from martlet.groups.ports import TopicView
from martlet.groups.records import Partitions


class MemberSpecification(NamedTuple):
    """One member as an assignor sees it."""

    topics: frozenset[str]
    """Names of the topics it subscribes to; those that do not exist are left alone."""
    partitions: Partitions
    """What it was given last time."""
    rack: str | None = None
    order: str = ""
    """Where it stands among the members: its instance id, or its member id."""


Members: TypeAlias = Mapping[str, MemberSpecification]
Topics: TypeAlias = Mapping[str, TopicView]
"""The existing topics that any member subscribes to, by name."""
Assignor: TypeAlias = Callable[[Members, Topics], dict[str, Partitions]]
"""Gives every member its partitions; a member whose partitions stay the same gets the very same object back."""


class TopicClass(NamedTuple):
    """Topics that the same members subscribe to: they can be dealt out together."""

    members: list[str]
    topics: list[TopicView]


def classes_of_topics(members: Members, topics: Topics) -> list[TopicClass]:
    """The topics, gathered by who subscribes to them; those with the fewest members first.

    Members with equal subscriptions are compared only once, so a thousand equal members cost as much as one.
    """
    by_subscription: dict[frozenset[str], list[str]] = {}
    for member_id in sorted(members, key=lambda member_id: (members[member_id].order, member_id)):
        by_subscription.setdefault(members[member_id].topics, []).append(member_id)
    subscribers = list(by_subscription.values())
    wanted_by: dict[str, list[int]] = {}
    for number, subscription in enumerate(by_subscription):
        for name in subscription:
            if name in topics:
                wanted_by.setdefault(name, []).append(number)
    by_subscribers: dict[tuple[int, ...], list[TopicView]] = {}
    for name in sorted(wanted_by):
        by_subscribers.setdefault(tuple(wanted_by[name]), []).append(topics[name])
    classes = [
        TopicClass([member_id for number in numbers for member_id in subscribers[number]], views)
        for numbers, views in by_subscribers.items()
    ]
    for one in classes:
        if len(classes) > 1:
            one.members.sort(key=lambda member_id: (members[member_id].order, member_id))
    classes.sort(key=lambda one: (len(one.members), one.topics[0].name))
    return classes
