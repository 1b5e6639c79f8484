"""Makes, alters, pauses and deletes subscriptions: checked here, stored in the metadata, followed by every broker.

Proved by: tests/unit/broker/queueing/test_queue_host.py
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from martlet.base.clock import Clock
from martlet.base.errors import ApiError, ErrorCode
from martlet.base.ids import format_topic_id
from martlet.base.randomness import IdSource
from martlet.broker.membership.metadata_changes import MetadataChanges
from martlet.broker.queueing.subscription_settings import check_settings
from martlet.cluster.image import MetadataImage
from martlet.cluster.records import SubscriptionRecord
from martlet.cluster.store import CommitPlan
from martlet.cluster.subscriptions import check_subscription, covers, plan_subscription
from martlet.cluster.topic_names import is_internal_topic


@dataclass(frozen=True, slots=True)
class SubscriptionWish:
    """What is to be of a subscription; None leaves it as it is."""

    name: str
    topics: Sequence[str] | None = None
    patterns: Sequence[str] | None = None
    settings: Mapping[str, str | None] | None = None
    """Those that change; None takes one away."""
    is_paused: bool | None = None


class SubscriptionAdmin:
    """Safe to call from many tasks of one event loop."""

    def __init__(self, changes: MetadataChanges, clock: Clock, ids: IdSource) -> None:
        self._changes = changes
        self._clock = clock
        self._ids = ids

    @property
    def image(self) -> MetadataImage:
        return self._changes.image

    async def create(self, wish: SubscriptionWish, *, validate_only: bool = False) -> None:
        """A name that is taken is refused."""

        def make(stored: SubscriptionRecord | None) -> SubscriptionRecord:
            if stored is not None:
                raise ApiError(ErrorCode.INVALID_REQUEST, f"there is a subscription {wish.name!r} already")
            return self._changed(self._new(wish.name), wish)

        await self._execute(wish.name, make, validate_only=validate_only)

    async def alter(self, wish: SubscriptionWish, *, validate_only: bool = False) -> None:
        def change(stored: SubscriptionRecord | None) -> SubscriptionRecord:
            return self._changed(_known(stored, wish.name), wish)

        await self._execute(wish.name, change, validate_only=validate_only)

    async def delete(self, name: str, *, validate_only: bool = False) -> None:
        """With all that is known of its messages."""

        def drop(stored: SubscriptionRecord | None) -> None:
            _known(stored, name)

        await self._execute(name, drop, validate_only=validate_only)

    async def ensure(self, name: str, topics: Iterable[str]) -> None:
        """Have a subscription of this name cover the topics, made with defaults where there is none."""
        topics = tuple(topics)
        stored = self.image.subscriptions().get(name)
        if stored is not None and all(covers(stored, topic) for topic in topics):
            return

        def grow(stored: SubscriptionRecord | None) -> SubscriptionRecord:
            record = stored if stored is not None else self._new(name)
            more = [topic for topic in topics if not covers(record, topic)]
            return self._changed(record, SubscriptionWish(name, [*record.topics, *dict.fromkeys(more)]))

        await self._execute(name, grow)

    async def remove_topics(self, name: str, topics: Iterable[str]) -> None:
        """What was known of these topics' messages is forgotten; a subscription of nothing else stays, empty."""
        gone = frozenset(topics)

        def shrink(stored: SubscriptionRecord | None) -> SubscriptionRecord:
            record = _known(stored, name)
            return replace(record, topics=tuple(topic for topic in record.topics if topic not in gone))

        await self._execute(name, shrink)

    async def _execute(
        self,
        name: str,
        decide: Callable[[SubscriptionRecord | None], SubscriptionRecord | None],
        *,
        validate_only: bool = False,
    ) -> None:
        if validate_only:
            decide(self.image.subscriptions().get(name))
            return

        def plan() -> CommitPlan | None:
            stored = self.image.subscriptions().get(name)
            return plan_subscription(stored, decide(stored))

        await self._changes.execute(plan)

    def _new(self, name: str) -> SubscriptionRecord:
        return SubscriptionRecord(name, format_topic_id(self._ids.topic_id()), created_at_ms=self._clock.now_ms())

    def _changed(self, record: SubscriptionRecord, wish: SubscriptionWish) -> SubscriptionRecord:
        topics = record.topics if wish.topics is None else tuple(dict.fromkeys(wish.topics))
        patterns = record.patterns if wish.patterns is None else tuple(dict.fromkeys(wish.patterns))
        settings = dict(record.settings)
        for name, value in (wish.settings or {}).items():
            if value is None:
                settings.pop(name, None)
            else:
                settings[name] = value
        check_subscription(wish.name, topics, patterns)
        check_settings(settings)
        is_paused = record.is_paused if wish.is_paused is None else wish.is_paused
        changed = replace(record, topics=topics, patterns=patterns, settings=settings, is_paused=is_paused)
        self._check_topics(changed, {*topics} - {*record.topics})
        return changed

    def _check_topics(self, record: SubscriptionRecord, added: Iterable[str]) -> None:
        if not record.topics and not record.patterns:
            raise ApiError(ErrorCode.INVALID_REQUEST, f"subscription {record.name!r} names no topic")
        for topic in added:
            if self.image.topic(topic) is None:
                raise ApiError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"there is no topic named {topic!r}")
        target = record.settings.get("dead.letter.topic", "")
        if not target:
            return
        if is_internal_topic(target) or self.image.topic(target) is None:
            detail = f"the dead-letter topic {target[:249]!r} does not exist: create it first"
            raise ApiError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, detail)
        if covers(record, target):
            detail = (
                f"the dead letters of subscription {record.name!r} would come back to it: {target} is one of its topics"
            )
            raise ApiError(ErrorCode.INVALID_CONFIG, detail)


def _known(stored: SubscriptionRecord | None, name: str) -> SubscriptionRecord:
    if stored is None:
        raise ApiError(ErrorCode.GROUP_ID_NOT_FOUND, f"there is no subscription {name[:249]!r}")
    return stored
