"""What a change of topics means to consumer groups: expressions that match anew, and a new epoch where it matters.

Only groups that ask for a changed topic, and those with expressions, are looked at. The new target is made by the next
heartbeat. A group whose fingerprint of topics stays the same is not touched.
"""

from collections.abc import Collection

from martlet.groups.consumer.group import ConsumerGroup, GroupRecord
from martlet.groups.consumer.subscriptions import SubscriptionChange
from martlet.groups.consumer.topic_regex import matching_topics
from martlet.groups.records import ConsumerGroupStored
from martlet.groups.topics import TopicsView


def refresh(group: ConsumerGroup, topics: TopicsView, now_ms: int) -> list[GroupRecord]:
    """Look at all topics anew: what the group's expressions match, and what its topics are like."""
    change = SubscriptionChange(group, topics)
    names = list(topics.names()) if group.regexes else []
    for regex in group.regexes:
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
