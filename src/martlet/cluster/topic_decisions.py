"""The decisions about topics: given what is known and what is wished, what to commit so that it becomes so.

Rules: pure functions from records to `CommitPlan`s, or an ApiError saying why not. Ids and times come in as
arguments. Carrying a plan out, and trying again when a comparison is lost, is `martlet.broker.topic_admin`.

How it works: every plan compares the `mod_revision` of what it is based on, so a plan made from old knowledge fails
as a whole. Partitions are written in portions that fit a commit. A topic of one portion is made by one commit. A
larger one begins with an `unfinished` record (the intent), each portion compares that intent, and the last
commit writes the topic's record and removes the intent: the topic appears at once or never, and what a dead
maker left can be removed without harming a living one. Growth works alike, guarded by the topic's own record.

Invariants:
C1 a topic is visible only with all its partitions (K1 of `keys.py`);
C2 a partition begins at leader epoch 0 under an id that no topic had before.

Proved by: tests/unit/cluster/test_topic_decisions.py, tests/unit/broker/test_topic_admin.py
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final

from martlet.base.errors import ApiError, ErrorCode
from martlet.base.ids import BrokerId, Incarnation, LeaderEpoch, Member, TopicId
from martlet.base.invariant import invariant
from martlet.cluster.config_changes import replace_topic_configs
from martlet.cluster.configs import NO_LAYERS, BrokerLayers
from martlet.cluster.image import MetadataImage
from martlet.cluster.keys import partition_key, partition_prefix, topic_key, unfinished_key
from martlet.cluster.placement import place_replicas
from martlet.cluster.records import (
    PartitionRecord,
    TopicRecord,
    UnfinishedRecord,
    encode_partition,
    encode_topic,
    encode_unfinished,
)
from martlet.cluster.store import CommitPlan
from martlet.cluster.topic_names import check_topic_name, is_internal_topic, looks_internal

PORTION: Final = 100
"""Partitions written by one commit; leaves room for the guards within the store's limit of 128 operations."""

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
    """A topic as somebody wants it, unchecked."""

    name: str
    partition_count: int = UNSET
    replication_factor: int = UNSET
    assignments: Mapping[int, Sequence[int]] = field(default_factory=dict)
    """Replicas by partition, preferred leader first; empty lets the broker choose."""
    configs: Mapping[str, str | None] = field(default_factory=dict)
    by_broker: bool = False
    """Wished by Martlet itself, which alone may make internal topics."""


@dataclass(frozen=True, slots=True)
class TopicDesign:
    """A topic's records to be written: all of them for a new topic, those to be added for one that grows."""

    record: TopicRecord
    partitions: tuple[PartitionRecord, ...]

    @property
    def is_large(self) -> bool:
        """Whether it takes more than one commit."""
        return len(self.partitions) > PORTION


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
    incarnations = image.incarnations()
    placed = _assigned(wish, incarnations, defaults) if wish.assignments else _placed(wish, image, defaults, topic_id)
    record = TopicRecord(
        name=wish.name,
        id=topic_id,
        partition_count=len(placed),
        replication_factor=len(placed[0]),
        configs=replace_topic_configs(wish.configs, layers),
        internal=is_internal_topic(wish.name),
        created_at_ms=now_ms,
    )
    partitions = tuple(_new_partition(topic_id, index, placed[index], incarnations) for index in range(len(placed)))
    return TopicDesign(record, partitions)


def plan_topic(design: TopicDesign) -> CommitPlan:
    """The one commit that makes a topic of one portion."""
    invariant(not design.is_large, "a topic made by one commit fits it")
    key = topic_key(design.record.name)
    return CommitPlan(compares={key: 0}, puts={key: encode_topic(design.record), **_puts(design.partitions)})


def plan_large_topic_start(design: TopicDesign, maker: Member) -> CommitPlan:
    """The first commit of a large topic: the intent. Its revision guards the rest."""
    key = unfinished_key(design.record.id)
    intent = UnfinishedRecord(design.record.id, design.record.name, maker)
    return CommitPlan(compares={key: 0, topic_key(design.record.name): 0}, puts={key: encode_unfinished(intent)})


def plan_large_topic_rest(design: TopicDesign, intent_revision: int) -> Iterator[CommitPlan]:
    """The portions of a large topic and, last, the commit that makes it visible."""
    intent, key = unfinished_key(design.record.id), topic_key(design.record.name)
    for portion in _portions(design.partitions):
        yield CommitPlan(compares={intent: intent_revision}, puts=_puts(portion))
    yield CommitPlan(
        compares={intent: intent_revision, key: 0}, puts={key: encode_topic(design.record)}, deletes=(intent,)
    )


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
    incarnations = image.incarnations()
    indexes = range(topic.partition_count, partition_count)
    if assignments:
        if len(assignments) != len(indexes):
            raise _bad_assignment(f"{len(indexes)} partitions are added, but {len(assignments)} are assigned")
        placed = [_checked_replicas(replicas, incarnations) for replicas in assignments]
        _check_same_factor(placed, topic.replication_factor)
    else:
        _check_replication_factor(topic.replication_factor, len(incarnations))
        brokers = list(incarnations)
        first = image.partitions(topic.name)[0].replicas[0]
        start = brokers.index(first) if first in brokers else 0
        placed = place_replicas(brokers, indexes=indexes, replication_factor=topic.replication_factor, start=start)
    partitions = tuple(
        _new_partition(topic.id, index, replicas, incarnations) for index, replicas in zip(indexes, placed, strict=True)
    )
    return TopicDesign(replace(topic, partition_count=partition_count), partitions)


def plan_growth(design: TopicDesign) -> Iterator[CommitPlan]:
    """The portions of new partitions; the last commit also counts them, which makes them visible."""
    key = topic_key(design.record.name)
    guard = {key: design.record.mod_revision}
    *early, last = _portions(design.partitions)
    for portion in early:
        yield CommitPlan(compares=guard, puts=_puts(portion))
    yield CommitPlan(compares=guard, puts={key: encode_topic(design.record), **_puts(last)})


def plan_topic_configs(topic: TopicRecord, configs: Mapping[str, str]) -> CommitPlan:
    """Give the topic these settings, already checked, in place of those it has."""
    key = topic_key(topic.name)
    return CommitPlan(compares={key: topic.mod_revision}, puts={key: encode_topic(replace(topic, configs=configs))})


def plan_deletion(topic: TopicRecord) -> CommitPlan:
    """Delete the topic with all its partitions, uncounted ones included."""
    if topic.internal:
        raise ApiError(ErrorCode.INVALID_REQUEST, f"{topic.name} is internal and cannot be deleted")
    key = topic_key(topic.name)
    return CommitPlan(compares={key: topic.mod_revision}, deletes=(key,), delete_prefixes=(partition_prefix(topic.id),))


# --- the rules


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


def _placed(
    wish: TopicWish, image: MetadataImage, defaults: TopicDefaults, topic_id: TopicId
) -> list[tuple[BrokerId, ...]]:
    count = defaults.partition_count if wish.partition_count == UNSET else wish.partition_count
    factor = defaults.replication_factor if wish.replication_factor == UNSET else wish.replication_factor
    _check_partition_count(count, defaults)
    brokers = list(image.incarnations())
    _check_replication_factor(factor, len(brokers))
    # The id is random, so topics start at different brokers without a draw of their own.
    start = int.from_bytes(topic_id[-4:], "big") % len(brokers)
    return place_replicas(brokers, indexes=range(count), replication_factor=factor, start=start)


def _assigned(
    wish: TopicWish, incarnations: Mapping[BrokerId, Incarnation], defaults: TopicDefaults
) -> list[tuple[BrokerId, ...]]:
    if wish.partition_count != UNSET or wish.replication_factor != UNSET:
        raise ApiError(
            ErrorCode.INVALID_REQUEST,
            "give either the replicas of each partition or the numbers of partitions and replicas, not both",
        )
    _check_partition_count(len(wish.assignments), defaults)
    if sorted(wish.assignments) != list(range(len(wish.assignments))):
        raise _bad_assignment("the assigned partitions must be numbered from 0 without gaps")
    placed = [_checked_replicas(wish.assignments[index], incarnations) for index in range(len(wish.assignments))]
    _check_same_factor(placed, len(placed[0]))
    return placed


def _check_partition_count(count: int, defaults: TopicDefaults) -> None:
    if not 1 <= count <= defaults.partition_count_max:
        raise ApiError(
            ErrorCode.INVALID_PARTITIONS,
            f"a topic has from 1 to {defaults.partition_count_max} partitions, not {count}",
        )


def _check_replication_factor(factor: int, broker_count: int) -> None:
    if not 1 <= factor <= broker_count:
        brokers = "is 1 broker" if broker_count == 1 else f"are {broker_count} brokers"
        raise ApiError(
            ErrorCode.INVALID_REPLICATION_FACTOR, f"a replication factor of {factor} is not possible: there {brokers}"
        )


def _checked_replicas(replicas: Sequence[int], incarnations: Mapping[BrokerId, Incarnation]) -> tuple[BrokerId, ...]:
    if not replicas:
        raise _bad_assignment("each assigned partition needs at least one broker")
    if len(set(replicas)) != len(replicas):
        raise _bad_assignment(f"a broker is named twice in the replicas {list(replicas)}")
    for replica in replicas:
        if replica not in incarnations:
            raise _bad_assignment(f"there is no broker {replica} in this cluster")
    return tuple(BrokerId(replica) for replica in replicas)


def _check_same_factor(placed: Sequence[Sequence[BrokerId]], factor: int) -> None:
    if any(len(replicas) != factor for replicas in placed):
        raise _bad_assignment(f"every partition of this topic must have {factor} replicas")


def _bad_assignment(detail: str) -> ApiError:
    return ApiError(ErrorCode.INVALID_REPLICA_ASSIGNMENT, detail)


# --- the records


def _new_partition(
    topic_id: TopicId, index: int, replicas: tuple[BrokerId, ...], incarnations: Mapping[BrokerId, Incarnation]
) -> PartitionRecord:
    return PartitionRecord(
        topic_id=topic_id,
        partition=index,
        replicas=replicas,
        leader=replicas[0],
        leader_epoch=LeaderEpoch(0),
        isr=tuple(Member(broker, incarnations[broker]) for broker in replicas),
    )


def _portions(partitions: Sequence[PartitionRecord]) -> Iterator[Sequence[PartitionRecord]]:
    for start in range(0, len(partitions), PORTION):
        yield partitions[start : start + PORTION]


def _puts(partitions: Sequence[PartitionRecord]) -> dict[str, bytes]:
    return {partition_key(record.topic_id, record.partition): encode_partition(record) for record in partitions}
