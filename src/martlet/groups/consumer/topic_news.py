"""What a change of topics means to consumer groups: expressions that match anew, and a new epoch where it matters.

Only groups that ask for a changed topic, and those with expressions, are looked at. The new target is made by the next
heartbeat. A group whose fingerprint of topics stays the same is not touched.

Matching every expression of a group against every topic is a safety net, for news that was missed. It is bounded: a
group with very many expressions has some of them looked at each time, other ones the next time.
"""

from collections.abc import Collection
from typing import Final

from martlet.groups.consumer.group import ConsumerGroup, GroupRecord
from martlet.groups.consumer.subscriptions import SubscriptionChange
from martlet.groups.consumer.topic_regex import matching_topics
from martlet.groups.records import ConsumerGroupStored
from martlet.groups.topics import TopicsView

MATCHES_MAX: Final = 20_000
"""Names compared with expressions in one go, which takes about a tenth of a second."""


def refresh(group: ConsumerGroup, topics: TopicsView) -> list[GroupRecord]:
    """Look at the group's topics anew: whether they are as the group last saw them."""
    return _records(SubscriptionChange(group, topics))


def refresh_regexes(group: ConsumerGroup, topics: TopicsView, now_ms: int, interval_ms: int) -> list[GroupRecord]:
    """The same, and what the group's expressions match: all of them, or those whose turn it is after so long."""
    change = SubscriptionChange(group, topics)
    names = list(topics.names())
    regexes = sorted(group.regexes)
    at_once = max(1, MATCHES_MAX // max(1, len(names)))
    if len(regexes) > at_once:
        start = now_ms // max(1, interval_ms) * at_once % len(regexes)
        regexes = (regexes + regexes)[start : start + at_once]
    for regex in regexes:
        change.resolve_anew(regex, matching_topics(regex, names), now_ms)
    return _records(change)


def refresh_some(group: ConsumerGroup, topics: TopicsView, names: Collection[str], now_ms: int) -> list[GroupRecord]:
    """The same when only topics of these names were created, have grown or were deleted."""
    change = SubscriptionChange(group, topics)
    for regex, resolved in group.regexes.items():
        before = set(resolved.topics)
        matched = matching_topics(regex, names)
        gone = {name for name in matched if topics.topic(name) is None}
        new = [name for name in matched if name not in before and name not in gone]
        if new:
            # Rare enough to ask which topics may be subscribed to at all.
            new = list(set(new) & set(topics.names()))
        change.resolve_anew(regex, tuple(sorted((before - gone) | set(new))), now_ms)
    return _records(change)


def _records(change: SubscriptionChange) -> list[GroupRecord]:
    group = change.group
    metadata_hash = change.metadata_hash(anew=True)
    if metadata_hash == group.metadata_hash:
        return change.records
    return [*change.records, ConsumerGroupStored(group.group_id, group.epoch + 1, metadata_hash)]
