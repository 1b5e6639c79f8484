"""Which topics a consumer group subscribes to, and how a change of its members or of the topics changes that.

A member may name topics or give a regular expression. `SubscriptionChange` collects the records of one change:
expressions that now match other topics, expressions that no member uses any more. The group also stores a hash over the
ids, partition counts and racks of its topics; while the hash stays the same, no new assignment is needed. The hash is a
sum over the topics, so their order does not matter, and it is the same in every process.

When topics change, only groups that subscribe to one of them, and those with expressions, are checked. Comparing every
expression with every topic also covers updates that were missed. Both are bounded, in time and in what one result may
store (`UpdateBudget`): what does not fit is checked a little later, some expressions at a time (`refresh_next`).

Proved by: tests/unit/groups/consumer/test_subscriptions.py
"""

from collections.abc import Collection, Iterable, Sequence
from hashlib import blake2b
from itertools import cycle, islice
from typing import Final

from martlet.groups.consumer.consumer_group import ConsumerGroup, ExpressionsDue, GroupRecord
from martlet.groups.consumer.topic_regex import matching_topics
from martlet.groups.ports import TopicsView
from martlet.groups.records import ConsumerGroupStored, ConsumerMemberStored, RegexRemoved, RegexResolved

_HASH_RANGE = 1 << 64
_HASH_HALF = 1 << 63


class SubscriptionChange:
    """How a group's subscriptions look once some members have changed; nothing of it is stored yet."""

    __slots__ = ("_sources", "_users", "group", "records", "regexes", "topics")

    def __init__(self, group: ConsumerGroup, topics: TopicsView) -> None:
        self.group = group
        self.topics = topics
        self.records: list[GroupRecord] = []
        """Expressions resolved and removed."""
        self.regexes: dict[str, tuple[str, ...]] = {}
        """What the expressions new to the group match."""
        self._sources: dict[str, int] = {}
        self._users: dict[str, int] = {}

    def change(self, before: ConsumerMemberStored | None, after: ConsumerMemberStored | None, now_ms: int) -> None:
        """A member comes (`before` is None), goes (`after` is None) or changes its mind."""
        if before is not None and after is not None and _wants_the_same(before, after):
            return
        for stored, step in ((after, 1), (before, -1)):
            if stored is not None:
                for name in stored.topic_names:
                    self._sources[name] = self._sources.get(name, 0) + step
        for stored, step in ((after, 1), (before, -1)):
            if stored is not None and stored.topic_regex is not None:
                self._use(stored.topic_regex, step, now_ms)

    def resolve_anew(self, regex: str, found: tuple[str, ...], now_ms: int) -> None:
        """The topics have changed: this expression of the group now matches `found`."""
        before = self.group.regexes.get(regex)
        if before is not None and before.topics == found:
            return
        self._resolve(regex, found, now_ms)

    def metadata_hash(self, *, anew: bool = False) -> int:
        """The fingerprint after the change; computed only when topics came or went, or when told to."""
        known = self.group.topic_sources
        after = {name: known.get(name, 0) + step for name, step in self._sources.items() if step}
        same = self.group.metadata_hash and all((count > 0) == (name in known) for name, count in after.items())
        if same and not anew:
            return self.group.metadata_hash
        names = [name for name in known if after.get(name, 1) > 0]
        names += [name for name, count in after.items() if count > 0 and name not in known]
        return hash_of_topics(names, self.topics)

    def _use(self, regex: str, step: int, now_ms: int) -> None:
        users_before = self.group.regex_users.get(regex, 0) + self._users.get(regex, 0)
        self._users[regex] = self._users.get(regex, 0) + step
        if users_before == 0 and step > 0 and regex not in self.group.regexes:
            self._resolve(regex, matching_topics(regex, self.topics.names()), now_ms)
        elif users_before + step == 0:
            self._forget(regex)

    def _resolve(self, regex: str, found: tuple[str, ...], now_ms: int) -> None:
        before = self.group.regexes.get(regex)
        for name in before.topics if before else ():
            self._sources[name] = self._sources.get(name, 0) - 1
        for name in found:
            self._sources[name] = self._sources.get(name, 0) + 1
        self.regexes[regex] = found
        self.records.append(RegexResolved(self.group.group_id, regex, found, now_ms))

    def _forget(self, regex: str) -> None:
        resolved = self.group.regexes.get(regex)
        if resolved is not None:
            for name in resolved.topics:
                self._sources[name] = self._sources.get(name, 0) - 1
            self.records.append(RegexRemoved(self.group.group_id, regex))


def hash_of_topics(names: Iterable[str], topics: TopicsView) -> int:
    """The fingerprint of these topics as they are now, as a signed 64-bit number; never 0."""
    total = 0
    for name in names:
        view = topics.topic(name)
        if view is None:
            continue
        digest = blake2b(digest_size=8)
        digest.update(b"%d %s %s" % (view.partition_count, view.id, name.encode(errors="surrogatepass")))
        if view.racks:
            digest.update(repr([sorted(racks) for racks in view.racks]).encode(errors="surrogatepass"))
        total += int.from_bytes(digest.digest(), "big")
    total %= _HASH_RANGE
    return (total - _HASH_RANGE if total >= _HASH_HALF else total) or 1


def _wants_the_same(one: ConsumerMemberStored, other: ConsumerMemberStored) -> bool:
    return one.topic_names == other.topic_names and one.topic_regex == other.topic_regex


MATCHES_MAX: Final = 20_000
"""Names compared with expressions in one go, which takes about a tenth of a second."""
EXPRESSIONS_MAX: Final = 20
"""Expressions looked at in one go: each may have to be compiled first."""
RECORDS_BYTES_MAX: Final = 4 << 20
"""About what one result may store; more than one record only while it is not reached."""
NEXT_TURN_MS: Final = 50

_RECORD_BYTES: Final = 64


class UpdateBudget:
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


def refresh_next(group: ConsumerGroup, topics: TopicsView, now_ms: int) -> tuple[list[GroupRecord], bool]:
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
    budget = UpdateBudget()
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
    group: ConsumerGroup, topics: TopicsView, names: Collection[str], now_ms: int, budget: UpdateBudget
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
