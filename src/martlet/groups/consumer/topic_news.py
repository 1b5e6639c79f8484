"""What a change of topics means to consumer groups: expressions that match anew, and a new epoch where it matters.

Only groups that ask for a changed topic, and those with expressions, are looked at. The new target is made by the next
heartbeat. A group whose fingerprint of topics stays the same is not touched.

Matching every expression of a group against every topic is a safety net, for news that was missed. Both are bounded, in
time and in what one result may store: groups that news does not reach at once, because there are too many of them or
they have very many expressions, are looked at a little later, some expressions at a time (`NewsBudget`, `take_turn`).
"""

from collections.abc import Collection, Sequence
from itertools import cycle, islice
from typing import Final

from martlet.groups.consumer.events import ExpressionsDue
from martlet.groups.consumer.group import ConsumerGroup, GroupRecord
from martlet.groups.consumer.subscriptions import SubscriptionChange
from martlet.groups.consumer.topic_regex import matching_topics
from martlet.groups.records import ConsumerGroupStored, RegexResolved
from martlet.groups.topics import TopicsView

MATCHES_MAX: Final = 20_000
"""Names compared with expressions in one go, which takes about a tenth of a second."""
EXPRESSIONS_MAX: Final = 20
"""Expressions looked at in one go: each may have to be compiled first."""
RECORDS_BYTES_MAX: Final = 4 << 20
"""About what one result may store; more than one record only while it is not reached."""
NEXT_TURN_MS: Final = 50

_RECORD_BYTES: Final = 64


class NewsBudget:
    """Counts down what one piece of news may cost; whoever comes when it is spent has to wait for its turn."""

    def __init__(self) -> None:
        self._expressions_left = EXPRESSIONS_MAX
        self._bytes_left = RECORDS_BYTES_MAX

    @property
    def is_spent(self) -> bool:
        return self._bytes_left <= 0 or self._expressions_left <= 0

    def take_expression(self) -> None:
        self._expressions_left -= 1

    def take_records(self, records: Sequence[GroupRecord]) -> None:
        self._bytes_left -= sum(map(_size, records))


def refresh(group: ConsumerGroup, topics: TopicsView) -> list[GroupRecord]:
    """Look at the group's topics anew: whether they are as the group last saw them."""
    return _records(SubscriptionChange(group, topics))


def take_turn(group: ConsumerGroup, topics: TopicsView, now_ms: int) -> tuple[list[GroupRecord], bool]:
    """The same, and what the group's expressions match: as many of those due as fit; whether others are left.

    The expressions go round by name. When none is due, which is the usual case, all of them are.
    """
    after, due_count = group.expressions_due
    regexes = sorted(group.regexes)
    due_count = min(due_count, len(regexes)) or len(regexes)
    start = next((place for place, regex in enumerate(regexes) if regex > after), 0) if after else 0
    names = list(topics.names())
    at_once = max(1, MATCHES_MAX // max(1, len(names)))
    change = SubscriptionChange(group, topics)
    budget = NewsBudget()
    seen = 0
    for regex in islice(cycle(regexes), start, start + min(due_count, at_once)):
        if budget.is_spent:
            break
        known = len(change.records)
        change.resolve_anew(regex, matching_topics(regex, names), now_ms)
        budget.take_expression()
        budget.take_records(change.records[known:])
        after = regex
        seen += 1
    records = _records(change)
    left = due_count - seen
    if left or group.expressions_due[1]:
        records.append(ExpressionsDue(group.group_id, after, left))
    return records, left > 0


def refresh_some(
    group: ConsumerGroup, topics: TopicsView, names: Collection[str], now_ms: int, budget: NewsBudget
) -> list[GroupRecord] | None:
    """The same when only topics of these names were created, have grown or were deleted; None: it is too much."""
    change = SubscriptionChange(group, topics)
    for regex, resolved in group.regexes.items():
        if budget.is_spent or len(names) > MATCHES_MAX:
            return None
        known = len(change.records)
        before = set(resolved.topics)
        matched = matching_topics(regex, names)
        gone = {name for name in matched if topics.topic(name) is None}
        new = [name for name in matched if name not in before and name not in gone]
        if new:
            # Rare enough to ask which topics may be subscribed to at all.
            new = list(set(new) & set(topics.names()))
        change.resolve_anew(regex, tuple(sorted((before - gone) | set(new))), now_ms)
        budget.take_expression()
        budget.take_records(change.records[known:])
    return _records(change)


def _records(change: SubscriptionChange) -> list[GroupRecord]:
    group = change.group
    metadata_hash = change.metadata_hash(anew=True)
    if metadata_hash == group.metadata_hash:
        return list(change.records)
    return [*change.records, ConsumerGroupStored(group.group_id, group.epoch + 1, metadata_hash)]


def _size(record: GroupRecord) -> int:
    """At most what the record takes in the log: four bytes a character; names of topics have only plain ones."""
    size = _RECORD_BYTES + 4 * len(record.group_id)
    if isinstance(record, RegexResolved):
        size += 4 * len(record.regex) + sum(map(len, record.topics)) + 2 * len(record.topics)
    return size
