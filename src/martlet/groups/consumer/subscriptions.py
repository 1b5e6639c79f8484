"""Which topics a consumer group subscribes to, and how a change of its members or of the topics changes that.

A member may name topics or give a regular expression. The first member that uses an expression has it matched, the last
one has it removed. The group also stores a hash over the ids, partition counts and racks of its topics; while the hash
stays the same, no new assignment is needed. The hash is a sum over the topics, so their order does not matter, and it
is the same in every process.

When topics change, only groups that subscribe to one of them, and those with expressions, are checked. Comparing every
expression with every topic also covers updates that were missed. Both are bounded, in time and in what one result may
store (`UpdateBudget`): what does not fit is checked a little later, some expressions at a time (`refresh_all`).

Proved by: tests/unit/groups/consumer/test_subscriptions.py
"""

from collections.abc import Collection, Iterable, Sequence
from hashlib import blake2b
from itertools import cycle, islice
from typing import Final

from martlet.coordinator.draft import Draft, Overlay
from martlet.groups.consumer.consumer_group import ConsumerGroup, ExpressionsDue, GroupRecord
from martlet.groups.consumer.topic_regex import matching_topics
from martlet.groups.ports import TopicsView
from martlet.groups.records import ConsumerGroupStored, RegexRemoved, RegexResolved

_HASH_RANGE = 1 << 64
_HASH_HALF = 1 << 63


class ConsumerDraft(Draft[ConsumerGroup, GroupRecord]):
    """One handler's work on one consumer group, with the topics that exist now."""

    __slots__ = ("topics",)

    def __init__(self, group: ConsumerGroup, topics: TopicsView, now_ms: int) -> None:
        super().__init__(group, now_ms)
        self.topics = topics


def resolve_if_new(draft: ConsumerDraft, regex: str | None) -> None:
    """A member of the draft may use this expression: the first that does has it matched against all topics."""
    if regex is not None and regex not in draft.state.regexes:
        resolve(draft, regex, matching_topics(regex, draft.topics.names()))


def remove_if_unused(draft: ConsumerDraft, regex: str | None) -> None:
    """A member that used this expression is gone or has another one now: the last that did has it removed."""
    if regex is not None and regex in draft.state.regexes and regex not in draft.state.regex_users:
        draft.record(RegexRemoved(draft.state.group_id, regex))


def resolve(draft: ConsumerDraft, regex: str, found: tuple[str, ...]) -> None:
    """This expression now matches `found`."""
    before = draft.state.regexes.get(regex)
    if before is None or before.topics != found:
        draft.record(RegexResolved(draft.state.group_id, regex, found, draft.now_ms))


def raise_epoch(draft: ConsumerDraft) -> None:
    """The members or their subscriptions have changed; the hash is computed only when topics came or went."""
    known, sources = draft.before.metadata_hash, draft.state.topic_sources
    if not known or not isinstance(sources, Overlay) or sources.has_other_keys:
        known = hash_of_topics(sources, draft.topics)
    draft.record(ConsumerGroupStored(draft.state.group_id, draft.state.epoch + 1, known))


def raise_epoch_if_topics_changed(draft: ConsumerDraft) -> None:
    """The topics may have changed: compute the hash, and compare it with the one stored."""
    group = draft.state
    metadata_hash = hash_of_topics(group.topic_sources, draft.topics)
    if metadata_hash != group.metadata_hash:
        draft.record(ConsumerGroupStored(group.group_id, group.epoch + 1, metadata_hash))


def hash_of_topics(names: Iterable[str], topics: TopicsView) -> int:
    """The hash of these topics as they are now, as a signed 64-bit number; never 0."""
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


MATCHES_MAX: Final = 20_000
"""Names compared with expressions in one go, which takes about a tenth of a second."""
EXPRESSIONS_MAX: Final = 20
"""Expressions matched in one go: each may have to be compiled first."""
RECORDS_BYTES_MAX: Final = 4 << 20
"""About what one result may store; more than one record only while it is not reached."""
NEXT_TURN_MS: Final = 50

_RECORD_BYTES: Final = 64


class UpdateBudget:
    """Counts down what one update of topics may cost; groups that come when it is spent are checked later."""

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


def refresh_all(draft: ConsumerDraft) -> bool:
    """Match expressions of the group against all topics, as many of those due as fit; says whether others are left.

    The expressions go round by name. When none is due, which is the usual case, all of them are.
    """
    after, due_count = draft.before.expressions_due
    regexes = sorted(draft.before.regexes)
    due_count = min(due_count, len(regexes)) or len(regexes)
    start = next((place for place, regex in enumerate(regexes) if regex > after), 0) if after else 0
    names = list(draft.topics.names())
    at_once = max(1, MATCHES_MAX // max(1, len(names)))
    budget = UpdateBudget()
    left = due_count
    for regex in islice(cycle(regexes), start, start + min(due_count, at_once)):
        if budget.is_spent:
            break
        _refresh(draft, regex, matching_topics(regex, names), budget)
        after = regex
        left -= 1
    raise_epoch_if_topics_changed(draft)
    if left or draft.before.expressions_due[1]:
        draft.record(ExpressionsDue(draft.state.group_id, after, left))
    return left > 0


def refresh_some(draft: ConsumerDraft, names: Collection[str], budget: UpdateBudget) -> bool:
    """The same when only topics of these names were created, have grown or were deleted; False when it is too much."""
    for regex, resolved in draft.before.regexes.items():
        if budget.is_spent or len(names) > MATCHES_MAX:
            return False
        before = set(resolved.topics)
        matched = matching_topics(regex, names)
        gone = {name for name in matched if draft.topics.topic(name) is None}
        new = [name for name in matched if name not in before and name not in gone]
        if new:
            # Rare enough to ask which topics may be subscribed to at all.
            new = list(set(new) & set(draft.topics.names()))
        _refresh(draft, regex, tuple(sorted((before - gone) | set(new))), budget)
    raise_epoch_if_topics_changed(draft)
    return True


def _refresh(draft: ConsumerDraft, regex: str, found: tuple[str, ...], budget: UpdateBudget) -> None:
    known = len(draft.records)
    resolve(draft, regex, found)
    budget.take_expression()
    budget.take_records(draft.records[known:])


def _size(record: GroupRecord) -> int:
    """At most what the record takes in the log: four bytes a character; names of topics have only plain ones."""
    size = _RECORD_BYTES + 4 * len(record.group_id)
    if isinstance(record, RegexResolved):
        size += 4 * len(record.regex) + sum(map(len, record.topics)) + 2 * len(record.topics)
    return size
