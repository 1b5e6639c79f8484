"""The decisions about topics: given what is known and what is wished, what to commit so that it becomes so.

Rules: pure functions from records to `CommitPlan`s, or an ApiError saying why not. Ids and times come in as
arguments. Carrying a plan out, and trying again when a comparison is lost, is `broker/administration/topic_admin.py`.

How it works: every plan compares the `mod_revision` of what it is based on, so a plan made from old knowledge fails
as a whole. Partitions are written in batches that fit a commit. A topic of one batch is made by one commit. A
larger one begins with an `unfinished` record (the intent), each batch compares that intent, and the last
commit writes the topic's record and removes the intent: the topic appears at once or never, and what a dead
maker left can be removed without harming a living one. Growth works alike, guarded by the topic's own record. Every
commit also compares the brokers that are given replicas (CLS-45).

Invariants:
CLS-43 a topic is visible only with all its partitions (CLS-7);
CLS-44 a partition begins at leader epoch 0 under an id that no topic had before.

Proved by: tests/unit/cluster/test_topic_decisions.py, tests/unit/broker/administration/test_topic_admin.py
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final

from martlet.base.errors import ApiError, ErrorCode
from martlet.base.ids import Member, TopicId
from martlet.base.invariant import invariant
from martlet.cluster.controller_decisions import topic_rules
from martlet.cluster.image import MetadataImage
from martlet.cluster.keys import partition_key, partition_prefix, topic_key, unfinished_key
from martlet.cluster.records import PartitionRecord, TopicRecord, UnfinishedRecord, encode_record
from martlet.cluster.store import CommitPlan
from martlet.cluster.topic_names import (
    check_topic_name,
    companion_id,
    is_internal_topic,
    looks_internal,
    queue_state_topic,
)
from martlet.cluster.topic_placement import Layout, bad_assignment, check_layout, choose_layout
from martlet.configs.changes import replace_topic_configs
from martlet.configs.effective import NO_LAYERS, BrokerLayers

PARTITIONS_PER_COMMIT: Final = 100
"""Partitions written by one commit; leaves space for the guards within the store's limit of 128 operations."""

UNSET: Final = -1
"""Partition count or replication factor left to the broker's default."""


@dataclass(frozen=True, slots=True)
class TopicDefaults:
    """What a topic gets when its maker does not say, and how large it may be."""

    partition_count: int = 1
    replication_factor: int = 1
    partition_count_max: int = 10_000


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicWish:
    """A topic as a client wants it, unchecked."""

    name: str
    partition_count: int = UNSET
    replication_factor: int = UNSET
    assignments: Mapping[int, Sequence[int]] = field(default_factory=dict)
    """Replicas by partition, preferred leader first; empty lets the broker choose."""
    configs: Mapping[str, str | None] = field(default_factory=dict)
    by_broker: bool = False
    """Wished by Martlet itself, which alone may make internal topics and makes do with as many replicas as brokers."""


@dataclass(frozen=True, slots=True)
class TopicDesign:
    """A topic's records to be written: all of them for a new topic, those to be added for one that grows."""

    record: TopicRecord
    partitions: tuple[PartitionRecord, ...]
    guards: Mapping[str, int] = field(default_factory=dict)
    """What each of its commits compares about the brokers that are given replicas."""

    @property
    def is_large(self) -> bool:
        """Whether it takes more than one commit."""
        return len(self.partitions) > PARTITIONS_PER_COMMIT


# --- making a topic


def design_topic(
    wish: TopicWish,
    image: MetadataImage,
    defaults: TopicDefaults,
    *,
    topic_id: TopicId,
    now_ms: int,
    layers: BrokerLayers = NO_LAYERS,
) -> TopicDesign:
    """Check the wish against the rules and the cluster, and lay the topic out."""
    _check_new_name(wish, image)
    layout = _assigned(wish, image, defaults) if wish.assignments else _placed(wish, image, defaults, topic_id)
    record = TopicRecord(
        name=wish.name,
        id=topic_id,
        partition_count=len(layout.placed),
        replication_factor=layout.replication_factor,
        configs=replace_topic_configs(wish.configs, layers),
        internal=is_internal_topic(wish.name),
        created_at_ms=now_ms,
    )
    return TopicDesign(record, _partitions(record, layout, 0, layers), layout.guards)


def plan_topic(design: TopicDesign) -> CommitPlan:
    """The one commit that makes a topic of one batch."""
    invariant(not design.is_large, "a topic made by one commit fits it")
    key = topic_key(design.record.name)
    puts = {key: encode_record(design.record), **_puts(design.partitions)}
    return CommitPlan(compares={key: 0, **design.guards}, puts=puts)


def plan_large_topic_start(design: TopicDesign, maker: Member) -> CommitPlan:
    """The first commit of a large topic: the intent. Its revision guards the rest."""
    key = unfinished_key(design.record.id)
    intent = UnfinishedRecord(design.record.id, design.record.name, maker)
    return CommitPlan(compares={key: 0, topic_key(design.record.name): 0}, puts={key: encode_record(intent)})


def plan_large_topic_rest(design: TopicDesign, intent_revision: int) -> Iterator[CommitPlan]:
    """The portions of a large topic and, last, the commit that makes it visible."""
    intent, key = unfinished_key(design.record.id), topic_key(design.record.name)
    guards = {intent: intent_revision, **design.guards}
    for batch in _batches(design.partitions):
        yield CommitPlan(compares=guards, puts=_puts(batch))
    yield CommitPlan(compares={**guards, key: 0}, puts={key: encode_record(design.record)}, deletes=(intent,))


def plan_unfinished_removal(intent: UnfinishedRecord) -> CommitPlan:
    """Remove all that was written of a topic whose making ended halfway."""
    key = unfinished_key(intent.topic_id)
    return CommitPlan(
        compares={key: intent.mod_revision},
        deletes=(key,),
        delete_prefixes=(partition_prefix(intent.topic_id),),
    )


# --- changing a topic


def design_growth(
    topic: TopicRecord,
    image: MetadataImage,
    defaults: TopicDefaults,
    *,
    partition_count: int,
    assignments: Sequence[Sequence[int]] = (),
    layers: BrokerLayers = NO_LAYERS,
) -> TopicDesign:
    """The partitions to add so that the topic has `partition_count`; `assignments` are those of the new ones."""
    if topic.internal:
        raise ApiError(ErrorCode.INVALID_REQUEST, f"{topic.name} is internal: its partitions cannot be changed")
    if partition_count <= topic.partition_count:
        raise ApiError(
            ErrorCode.INVALID_PARTITIONS,
            f"topic {topic.name} has {topic.partition_count} partitions; {partition_count} would not be more",
        )
    _check_partition_count(partition_count, defaults)
    indexes = range(topic.partition_count, partition_count)
    existing = [partition.replicas for partition in image.partitions(topic.name)]
    if assignments:
        if len(assignments) != len(indexes):
            raise bad_assignment(f"{len(indexes)} partitions are added, but {len(assignments)} are assigned")
        if any(len(replicas) != topic.replication_factor for replicas in assignments):
            raise bad_assignment(f"every partition of this topic must have {topic.replication_factor} replicas")
        layout = check_layout(image, assignments)
    else:
        layout = choose_layout(
            image,
            count=len(indexes),
            factor=topic.replication_factor,
            start=topic.partition_count,
            existing=existing,
        )
    partitions = _partitions(topic, layout, topic.partition_count, layers)
    return TopicDesign(replace(topic, partition_count=partition_count), partitions, layout.guards)


def plan_growth(design: TopicDesign) -> Iterator[CommitPlan]:
    """The portions of new partitions; the last commit also counts them, which makes them visible."""
    key = topic_key(design.record.name)
    guard = {key: design.record.mod_revision, **design.guards}
    *early, last = _batches(design.partitions)
    for batch in early:
        yield CommitPlan(compares=guard, puts=_puts(batch))
    yield CommitPlan(compares=guard, puts={key: encode_record(design.record), **_puts(last)})


def plan_topic_configs(topic: TopicRecord, configs: Mapping[str, str]) -> CommitPlan:
    """Give the topic these settings, already checked, in place of those it has."""
    key = topic_key(topic.name)
    return CommitPlan(compares={key: topic.mod_revision}, puts={key: encode_record(replace(topic, configs=configs))})


def plan_deletion(topic: TopicRecord) -> CommitPlan:
    """Delete the topic with all its partitions, uncounted ones included."""
    if topic.internal:
        raise ApiError(ErrorCode.INVALID_REQUEST, f"{topic.name} is internal and cannot be deleted")
    key = topic_key(topic.name)
    # Its queues go with it, a companion that is only half made included.
    companion = topic_key(queue_state_topic(topic.id))
    prefixes = (partition_prefix(topic.id), partition_prefix(companion_id(topic.id)))
    return CommitPlan({key: topic.mod_revision}, deletes=(key, companion), delete_prefixes=prefixes)


# --- the rules


def known_topic(image: MetadataImage, name: str | None, topic_id: TopicId | None = None) -> TopicRecord:
    """The topic of this id or, without an id, of this name; raises ApiError when there is none."""
    if topic_id is not None:
        topic = image.topic_by_id(topic_id)
        if topic is None:
            raise ApiError(ErrorCode.UNKNOWN_TOPIC_ID)
        return topic
    topic = image.topic(name or "")
    if topic is None:
        raise ApiError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"there is no topic named {(name or '')[:249]!r}")
    return topic


def _check_new_name(wish: TopicWish, image: MetadataImage) -> None:
    check_topic_name(wish.name)
    if looks_internal(wish.name) and not wish.by_broker:
        raise ApiError(
            ErrorCode.INVALID_TOPIC_EXCEPTION,
            f'{wish.name} is, apart from "." and "_", the name of an internal topic, which only the broker makes',
        )
    other = image.topic_colliding_with(wish.name)
    if other is None:
        return
    if other.name == wish.name:
        raise ApiError(ErrorCode.TOPIC_ALREADY_EXISTS, f"topic {wish.name} exists already")
    raise ApiError(
        ErrorCode.INVALID_TOPIC_EXCEPTION,
        f'{wish.name} differs only in "." and "_" from the existing topic {other.name}, and metrics could not '
        "tell them apart",
    )


def _placed(wish: TopicWish, image: MetadataImage, defaults: TopicDefaults, topic_id: TopicId) -> Layout:
    count = defaults.partition_count if wish.partition_count == UNSET else wish.partition_count
    factor = defaults.replication_factor if wish.replication_factor == UNSET else wish.replication_factor
    _check_partition_count(count, defaults)
    # The id is random, so topics start at different brokers without a draw of their own.
    start = int.from_bytes(topic_id[-4:], "big")
    return choose_layout(image, count=count, factor=factor, start=start, fewer_will_do=wish.by_broker)


def _assigned(wish: TopicWish, image: MetadataImage, defaults: TopicDefaults) -> Layout:
    if wish.partition_count != UNSET or wish.replication_factor != UNSET:
        raise ApiError(
            ErrorCode.INVALID_REQUEST,
            "give either the replicas of each partition or the numbers of partitions and replicas, not both",
        )
    _check_partition_count(len(wish.assignments), defaults)
    if sorted(wish.assignments) != list(range(len(wish.assignments))):
        raise bad_assignment("the assigned partitions must be numbered from 0 without gaps")
    return check_layout(image, [wish.assignments[index] for index in range(len(wish.assignments))])


def _partitions(topic: TopicRecord, layout: Layout, first: int, layers: BrokerLayers) -> tuple[PartitionRecord, ...]:
    min_in_sync = topic_rules(topic, layers).min_in_sync
    return tuple(
        layout.partition(topic.id, index, replicas, min_in_sync) for index, replicas in enumerate(layout.placed, first)
    )


def _check_partition_count(count: int, defaults: TopicDefaults) -> None:
    if not 1 <= count <= defaults.partition_count_max:
        raise ApiError(
            ErrorCode.INVALID_PARTITIONS,
            f"a topic has from 1 to {defaults.partition_count_max} partitions, not {count}",
        )


# --- the records


def _batches(partitions: Sequence[PartitionRecord]) -> Iterator[Sequence[PartitionRecord]]:
    for start in range(0, len(partitions), PARTITIONS_PER_COMMIT):
        yield partitions[start : start + PARTITIONS_PER_COMMIT]


def _puts(partitions: Sequence[PartitionRecord]) -> dict[str, bytes]:
    return {partition_key(record.topic_id, record.partition): encode_record(record) for record in partitions}
