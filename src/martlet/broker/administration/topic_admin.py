"""Creates, grows and deletes topics.

Rules: what to commit is decided by `martlet.cluster`. A topic too large for one commit is made in several: a record of
the unfinished topic comes first, so that what its maker leaves behind is removed. The same topic id is used again when
a decision is repeated, so a commit whose answer was lost is recognised.

Invariants: C1–C2 of `topic_decisions.py`.

Proved by: tests/unit/broker/administration/test_topic_admin.py,
tests/unit/broker/administration/test_topic_admin_faults.py
"""

import logging
from collections.abc import Callable, Sequence
from functools import partial

from martlet.base.clock import Clock
from martlet.base.errors import ApiError
from martlet.base.ids import NO_TOPIC_ID, Member, TopicId
from martlet.base.randomness import IdSource
from martlet.broker.membership.metadata_changes import MetadataChanges
from martlet.cluster.keys import UNFINISHED_PREFIX, unfinished_key
from martlet.cluster.records import TopicRecord, UnfinishedRecord, decode_record
from martlet.cluster.store import CommitPlan
from martlet.cluster.topic_decisions import (
    TopicDefaults,
    TopicDesign,
    TopicWish,
    design_growth,
    design_topic,
    known_topic,
    plan_deletion,
    plan_growth,
    plan_large_topic_rest,
    plan_large_topic_start,
    plan_topic,
    plan_unfinished_removal,
)
from martlet.configs.effective import NO_LAYERS, BrokerLayers

logger = logging.getLogger(__name__)


class TopicAdmin:
    """Safe to call from many tasks of one event loop."""

    def __init__(
        self,
        changes: MetadataChanges,
        me: Member,
        ids: IdSource,
        clock: Clock,
        defaults: TopicDefaults | None = None,
        layers: Callable[[], BrokerLayers] = lambda: NO_LAYERS,
    ) -> None:
        self._changes = changes
        self._image = changes.image
        self._me = me
        self._ids = ids
        self._clock = clock
        self._defaults = defaults or TopicDefaults()
        self._layers = layers

    async def create_topic(self, wish: TopicWish | str, *, validate_only: bool = False) -> TopicRecord:
        """Make a topic; a bare name takes every default. `validate_only` makes nothing: its record has no id."""
        if isinstance(wish, str):
            wish = TopicWish(name=wish)
        if validate_only:
            return self._design(wish, NO_TOPIC_ID).record
        topic_id = self._ids.topic_id()
        if self._design(wish, topic_id).is_large:
            await self._create_large(wish, topic_id)
        else:
            await self._changes.execute(partial(self._plan_small, wish, topic_id))
        logger.info("topic %s was created", wish.name)
        return known_topic(self._image, None, topic_id)

    async def delete_topic(self, name: str | None = None, *, topic_id: TopicId | None = None) -> TopicRecord:
        """Delete a topic by name or by id, and return what it was."""
        topic = known_topic(self._image, name, topic_id)

        def decide() -> CommitPlan | None:
            current = self._image.topic_by_id(topic.id)
            return plan_deletion(current) if current is not None else None

        await self._changes.execute(decide)
        logger.info("topic %s was deleted", topic.name)
        return topic

    async def create_partitions(
        self,
        name: str,
        partition_count: int,
        *,
        assignments: Sequence[Sequence[int]] = (),
        validate_only: bool = False,
    ) -> TopicRecord:
        """Let a topic grow to that many partitions; `assignments` are the replicas of the new ones."""
        topic = known_topic(self._image, name)
        for attempt in self._changes.attempts():
            topic = known_topic(self._image, None, topic.id)
            if attempt and topic.partition_count == partition_count:
                return topic  # a commit whose answer was lost did happen
            design = design_growth(
                topic,
                self._image,
                self._defaults,
                partition_count=partition_count,
                assignments=assignments,
                layers=self._layers(),
            )
            if validate_only:
                return design.record
            if await self._changes.commit_all(plan_growth(design)):
                logger.info("topic %s has grown to %d partitions", name, partition_count)
                break
        return known_topic(self._image, None, topic.id)

    # --- the steps of making a topic

    def _design(self, wish: TopicWish, topic_id: TopicId) -> TopicDesign:
        return design_topic(
            wish,
            self._image,
            self._defaults,
            topic_id=topic_id,
            now_ms=self._clock.now_ms(),
            layers=self._layers(),
        )

    def _plan_small(self, wish: TopicWish, topic_id: TopicId) -> CommitPlan | None:
        if self._image.topic_by_id(topic_id) is not None:
            return None  # a commit whose answer was lost did happen
        return plan_topic(self._design(wish, topic_id))

    async def _create_large(self, wish: TopicWish, topic_id: TopicId) -> None:
        try:
            for _ in self._changes.attempts():
                if self._image.topic_by_id(topic_id) is not None or await self._try_large(wish, topic_id):
                    return
        except ApiError:
            await self._remove_unfinished(lambda _, unfinished: unfinished == topic_id)
            raise

    async def _try_large(self, wish: TopicWish, topic_id: TopicId) -> bool:
        design = self._design(wish, topic_id)
        intent = await self._changes.get(unfinished_key(topic_id))
        if intent is not None:
            return await self._changes.commit_all(plan_large_topic_rest(design, intent.mod_revision))
        started = await self._changes.commit(plan_large_topic_start(design, self._me))
        return started is not None and await self._changes.commit_all(plan_large_topic_rest(design, started.revision))

    async def remove_abandoned(self) -> None:
        """Remove what is left of topics whose makers are gone."""
        alive = self._image.incarnations()
        await self._remove_unfinished(lambda maker, _: alive.get(maker.broker) != maker.incarnation)

    async def _remove_unfinished(self, is_meant: Callable[[Member, TopicId], bool]) -> None:
        for entry in await self._changes.list(UNFINISHED_PREFIX):
            intent = decode_record(UnfinishedRecord, entry)
            if is_meant(intent.maker, intent.topic_id):
                # If the comparison fails, the topic was finished, or another broker has removed it.
                await self._changes.commit(plan_unfinished_removal(intent))
