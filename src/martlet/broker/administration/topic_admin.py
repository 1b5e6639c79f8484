"""Carries the cluster's decisions out: makes, changes and deletes topics, registers brokers, takes ids.

Rules: what to commit is decided by the pure functions of `martlet.cluster`; here are only the reading before, the
commit, and what follows from its answer. Every method either returns after this broker's own image has the change, or
raises: ApiError for what the client must be told, a failed or full disk of the store included.

How it works: a decision is made from the image and compares the revisions it is based on. If another commit was
faster, the image is brought up to it and the decision is made again. If a commit's outcome is unknown, the image is
brought up to the store's present revision first; decisions are such that making one twice does no harm (the
same topic id is used again, ids of a block are skipped, settings are set to the same).

Invariants: C1–C2 of `topic_decisions.py`, B1–B3 of `broker_decisions.py`.

Proved by: tests/unit/broker/test_topic_admin.py, tests/unit/broker/test_topic_admin_faults.py
"""

import logging
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Final

from martlet.base.clock import Clock
from martlet.base.errors import ApiError, ErrorCode, StorageFailure
from martlet.base.ids import NO_BROKER, NO_TOPIC_ID, BrokerId, Incarnation, Member, TopicId
from martlet.base.invariant import invariant
from martlet.base.randomness import IdSource
from martlet.broker.membership.metadata_feed import MetadataFeed
from martlet.cluster.broker_decisions import (
    Registration,
    is_registered_as,
    plan_broker_configs,
    plan_group_configs,
    plan_own_elections,
    plan_producer_ids,
    plan_registration,
)
from martlet.cluster.keys import (
    CLUSTER_KEY,
    INCARNATION_COUNTER_KEY,
    PRODUCER_ID_COUNTER_KEY,
    UNFINISHED_PREFIX,
    broker_key,
    unfinished_key,
)
from martlet.cluster.records import BrokerRecord, TopicRecord, decode_broker, decode_unfinished
from martlet.cluster.store import (
    CommitPlan,
    CommitResult,
    Entry,
    MetaStore,
    StoreClosed,
    StoreRefused,
    StoreReplaced,
    StoreUnavailable,
    UnknownOutcome,
    commit_plan,
)
from martlet.cluster.topic_decisions import (
    TopicDefaults,
    TopicDesign,
    TopicWish,
    design_growth,
    design_topic,
    plan_deletion,
    plan_growth,
    plan_large_topic_rest,
    plan_large_topic_start,
    plan_topic,
    plan_topic_configs,
    plan_unfinished_removal,
)
from martlet.configs.changes import (
    ConfigChange,
    alter_broker_configs,
    alter_group_configs,
    alter_topic_configs,
    replace_broker_configs,
    replace_group_configs,
    replace_topic_configs,
    unknown_broker_names,
)
from martlet.configs.effective import NO_LAYERS, BrokerLayers

logger = logging.getLogger(__name__)

PRODUCER_ID_BLOCK: Final = 1_000

_ATTEMPTS_MAX: Final = 20
"""A decision that loses its comparison so often meets something else than rivals."""

_NOBODY: Final = Member(NO_BROKER, Incarnation(0))


class TopicAdmin:
    """One broker's hand on the metadata store; safe to call from many tasks of its event loop."""

    def __init__(
        self,
        store: MetaStore,
        feed: MetadataFeed,
        ids: IdSource,
        clock: Clock,
        defaults: TopicDefaults | None = None,
        layers: Callable[[], BrokerLayers] = lambda: NO_LAYERS,
    ) -> None:
        self._store = store
        self._image = feed.image
        self._wait_applied = feed.wait_applied
        self._ids = ids
        self._clock = clock
        self._defaults = defaults or TopicDefaults()
        self._layers = layers
        self._me = _NOBODY

    # --- topics

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
            await self._carry_out(partial(self._plan_small, wish, topic_id))
        logger.info("topic %s was created", wish.name)
        return self._known_topic(None, topic_id)

    async def delete_topic(self, name: str | None = None, *, topic_id: TopicId | None = None) -> TopicRecord:
        """Delete a topic by name or by id, and return what it was."""
        topic = self._known_topic(name, topic_id)

        def decide() -> CommitPlan | None:
            current = self._image.topic_by_id(topic.id)
            return plan_deletion(current) if current is not None else None

        await self._carry_out(decide)
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
        topic = self._known_topic(name, None)
        for attempt in range(_ATTEMPTS_MAX):
            topic = self._known_topic(None, topic.id)
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
            if await self._commit_all(plan_growth(design)):
                logger.info("topic %s has grown to %d partitions", name, partition_count)
                return self._known_topic(None, topic.id)
        raise _too_many_attempts()

    async def alter_topic_configs(
        self, name: str, changes: Sequence[ConfigChange], *, validate_only: bool = False
    ) -> TopicRecord:
        """Change some of a topic's settings (IncrementalAlterConfigs)."""
        return await self._set_topic_configs(
            name, lambda stored: alter_topic_configs(stored, changes, self._layers()), validate_only
        )

    async def replace_topic_configs(
        self, name: str, configs: Mapping[str, str | None], *, validate_only: bool = False
    ) -> TopicRecord:
        """Give a topic exactly these settings (AlterConfigs)."""
        return await self._set_topic_configs(
            name, lambda _: replace_topic_configs(configs, self._layers()), validate_only
        )

    # --- brokers

    async def alter_broker_configs(
        self, broker: BrokerId | None, changes: Sequence[ConfigChange], *, validate_only: bool = False
    ) -> None:
        """Change some run-time settings of a broker, or of all brokers when None (IncrementalAlterConfigs)."""
        await self._set_broker_configs(
            broker, lambda stored: alter_broker_configs(stored, changes, self._layers()), validate_only
        )

    async def replace_broker_configs(
        self, broker: BrokerId | None, configs: Mapping[str, str | None], *, validate_only: bool = False
    ) -> None:
        """Give a broker, or all of them when None, exactly these run-time settings (AlterConfigs)."""
        await self._set_broker_configs(broker, lambda _: replace_broker_configs(configs), validate_only)

    # --- groups

    async def alter_group_configs(
        self, group: str, changes: Sequence[ConfigChange], *, validate_only: bool = False
    ) -> None:
        """Change some of a group's settings (IncrementalAlterConfigs); there need be no such group yet."""
        await self._set_group_configs(
            group, lambda stored: alter_group_configs(stored, changes, self._layers()), validate_only
        )

    async def replace_group_configs(
        self, group: str, configs: Mapping[str, str | None], *, validate_only: bool = False
    ) -> None:
        """Give a group exactly these settings (AlterConfigs)."""
        await self._set_group_configs(group, lambda _: replace_group_configs(configs, self._layers()), validate_only)

    # --- registration

    async def register_broker(self, registration: Registration) -> BrokerRecord:
        """Register this process under a new incarnation; the first one of all makes the cluster."""
        new_cluster_id, new_replica_secret = self._ids.text_id(), self._ids.text_id()
        for _ in range(_ATTEMPTS_MAX):
            broker = await self._get(broker_key(registration.id))
            if broker is not None and is_registered_as(registration, broker):
                await self._wait_applied(broker.mod_revision)
                self._me = Member(registration.id, decode_broker(broker).incarnation)
                return self._own_record()
            plan = plan_registration(
                registration,
                cluster=await self._get(CLUSTER_KEY),
                broker=broker,
                counter=await self._get(INCARNATION_COUNTER_KEY),
                new_cluster_id=new_cluster_id,
                new_replica_secret=new_replica_secret,
                now_ms=self._clock.now_ms(),
            )
            if await self._commit(plan.commit) is not None:
                self._me = Member(plan.broker.id, plan.broker.incarnation)
                return self._own_record()
        raise _too_many_attempts()

    async def elect_own_partitions(self) -> int:
        """Take over, under a new leader epoch, what this broker led before it was started; say how many."""
        for _ in range(_ATTEMPTS_MAX):
            broker = self._own_record()
            partitions = [each for topic in self._image.topics() for each in self._image.partitions(topic.name)]
            plans = list(plan_own_elections(partitions, broker))
            if await self._commit_all(plans, wait_for_each=False):
                await self._remove_unfinished()
                return sum(len(plan.puts) for plan in plans)
        raise _too_many_attempts()

    async def allocate_producer_ids(self, count: int = PRODUCER_ID_BLOCK) -> range:
        """Take ids that nobody has had or will have."""
        for _ in range(_ATTEMPTS_MAX):
            plan, block = plan_producer_ids(await self._get(PRODUCER_ID_COUNTER_KEY), count)
            if await self._commit(plan) is not None:
                return block
        raise _too_many_attempts()

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
            for _ in range(_ATTEMPTS_MAX):
                if self._image.topic_by_id(topic_id) is not None or await self._try_large(wish, topic_id):
                    return
            raise _too_many_attempts()
        except ApiError:
            await self._remove_unfinished(topic_id)
            raise

    async def _try_large(self, wish: TopicWish, topic_id: TopicId) -> bool:
        design = self._design(wish, topic_id)
        intent = await self._get(unfinished_key(topic_id))
        if intent is not None:
            return await self._commit_all(plan_large_topic_rest(design, intent.mod_revision))
        started = await self._commit(plan_large_topic_start(design, self._me))
        return started is not None and await self._commit_all(plan_large_topic_rest(design, started.revision))

    async def _remove_unfinished(self, topic_id: TopicId | None = None) -> None:
        """Remove what is left of this topic or, without an id, of all topics whose makers are gone."""
        alive = self._image.incarnations()
        with _retriable():
            listing = await self._store.list(UNFINISHED_PREFIX)
        for intent in map(decode_unfinished, listing.entries):
            abandoned = alive.get(intent.maker.broker) != intent.maker.incarnation
            if intent.topic_id == topic_id or (topic_id is None and abandoned):
                # If the comparison fails, the topic was finished or somebody else has removed it.
                await self._commit(plan_unfinished_removal(intent))

    # --- settings

    async def _set_topic_configs(
        self, name: str, compute: Callable[[Mapping[str, str]], Mapping[str, str]], validate_only: bool
    ) -> TopicRecord:
        def decide() -> CommitPlan | None:
            topic = self._known_topic(name, None)
            configs = compute(topic.configs)
            return None if validate_only or configs == topic.configs else plan_topic_configs(topic, configs)

        await self._carry_out(decide)
        return self._known_topic(name, None)

    async def _set_broker_configs(
        self, broker: BrokerId | None, compute: Callable[[Mapping[str, str]], Mapping[str, str]], validate_only: bool
    ) -> None:
        def decide() -> CommitPlan | None:
            stored = self._image.broker_config_record(broker)
            configs = compute(stored.configs)
            return None if validate_only or configs == stored.configs else plan_broker_configs(stored, configs)

        before = self._image.broker_configs(broker)
        await self._carry_out(decide)
        for name in unknown_broker_names(self._image.broker_configs(broker)):
            if name not in before:
                logger.warning("the broker setting %r is kept, but unknown here: it has no effect", name[:80])

    async def _set_group_configs(
        self, group: str, compute: Callable[[Mapping[str, str]], Mapping[str, str]], validate_only: bool
    ) -> None:
        def decide() -> CommitPlan | None:
            stored = self._image.group_config_record(group)
            configs = compute(stored.configs)
            return None if validate_only or configs == stored.configs else plan_group_configs(stored, configs)

        await self._carry_out(decide)

    # --- lookups

    def _known_topic(self, name: str | None, topic_id: TopicId | None) -> TopicRecord:
        if topic_id is not None:
            topic = self._image.topic_by_id(topic_id)
            if topic is None:
                raise ApiError(ErrorCode.UNKNOWN_TOPIC_ID)
            return topic
        topic = self._image.topic(name or "")
        if topic is None:
            raise ApiError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"there is no topic named {(name or '')[:249]!r}")
        return topic

    def _own_record(self) -> BrokerRecord:
        invariant(self._me != _NOBODY, "a broker registers before it acts as one")
        record = self._image.broker(self._me.broker)
        if record is None or record.incarnation != self._me.incarnation:
            raise ApiError(
                ErrorCode.STALE_BROKER_EPOCH, f"broker {self._me.broker} was registered anew by another process"
            )
        return record

    # --- commits

    async def commit(self, plan: CommitPlan) -> bool:
        """Carry out a decision made from the image; False, the image being up to date, when it must be made again."""
        return await self._commit(plan) is not None

    async def catch_up(self) -> int:
        """Bring the image to what the store holds now; returns the revision of that."""
        with _retriable():
            revision = (await self._store.list(CLUSTER_KEY)).revision
            await self._wait_applied(revision)
        return revision

    async def _carry_out(self, decide: Callable[[], CommitPlan | None]) -> None:
        """Commit what is decided, deciding again whenever something else was faster; None: nothing to do."""
        for _ in range(_ATTEMPTS_MAX):
            plan = decide()
            if plan is None or await self._commit(plan) is not None:
                return
        raise _too_many_attempts()

    async def _commit_all(self, plans: Iterable[CommitPlan], *, wait_for_each: bool = True) -> bool:
        """Commit one plan after the other; False when one was not carried out, the rest being left out."""
        last: CommitResult | None = None
        for plan in plans:
            last = await self._commit(plan, wait=wait_for_each)
            if last is None:
                return False
        if last is not None:
            await self._wait_applied(last.revision)
        return True

    async def _commit(self, plan: CommitPlan, *, wait: bool = True) -> CommitResult | None:
        """The result once the image has it; None, with the image up to date, when it must be decided again."""
        with _retriable():
            try:
                result = await commit_plan(self._store, plan)
            except UnknownOutcome as error:
                logger.warning("metadata: %s; reading back", error)
                await self.catch_up()
                return None
            if wait or not result.succeeded:
                await self._wait_applied(result.revision)
        return result if result.succeeded else None

    async def _get(self, key: str) -> Entry | None:
        with _retriable():
            return await self._store.get(key)


@contextmanager
def _retriable() -> Iterator[None]:
    """A store out of reach, without space, or closed because the broker stops: the client may try again later.

    One that refuses us, or is another one by now, needs a person; whoever follows it ends the broker.
    """
    try:
        yield
    except (StoreUnavailable, StoreClosed) as error:
        raise ApiError(ErrorCode.REQUEST_TIMED_OUT, str(error)) from error
    except (StorageFailure, StoreRefused, StoreReplaced) as error:
        raise ApiError(ErrorCode.KAFKA_STORAGE_ERROR, str(error)) from error


def _too_many_attempts() -> ApiError:
    return ApiError(ErrorCode.REQUEST_TIMED_OUT, f"the cluster's metadata changed {_ATTEMPTS_MAX} times in between")
