"""What a change of members does to the topics a group asks for: expressions to resolve or to forget, a new fingerprint.

The fingerprint of the subscribed topics tells whether anything changed that an assignment depends on: their ids,
numbers of partitions and racks. It is a sum over the topics, so their order does not matter, and the same everywhere.

Proved by: tests/unit/groups/consumer/test_subscriptions.py
"""

from collections.abc import Iterable
from hashlib import blake2b

from martlet.groups.consumer.group import ConsumerGroup, GroupRecord
from martlet.groups.consumer.topic_regex import matching_topics
from martlet.groups.records import ConsumerMemberStored, RegexRemoved, RegexResolved
from martlet.groups.topics import TopicsView

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
