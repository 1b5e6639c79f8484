"""Moves of many partitions at once: emptying and removing a broker, balancing, changing the replication factor.

Rules: pure. Here is decided which partitions move and how many at a time; where to is in `replica_balance.py`, and each
single move is one of `reassignment.py`, so that all of them are listed, throttled and cancelled alike.

How it works: a drain is a mark in the store (`drain/<id>`). While it stands, nothing new is placed on the broker, and
the controller keeps moving what is left on it, a few partitions at a time. When it holds nothing and its process has
stopped, it can be removed, which deletes its registration.

Invariants:
CLS-20 a broker is removed only when no partition names it and no process of it is alive;
CLS-21 at no time do more partitions move than asked for;
CLS-22 a drain that cannot end for want of brokers is refused before it begins.

Proved by: tests/unit/cluster/test_partition_moves.py, tests/properties/test_controller.py
"""

from collections import Counter
from typing import Final

from martlet.base.errors import ApiError, ErrorCode
from martlet.base.ids import BrokerId
from martlet.cluster.controller_decisions import topic_rules
from martlet.cluster.image import MetadataImage
from martlet.cluster.keys import broker_config_key, broker_key, drain_key, live_key
from martlet.cluster.liveness import BrokerStates
from martlet.cluster.partition_plans import Decision
from martlet.cluster.placement import sites_of
from martlet.cluster.reassignment import all_wished, decide_start, is_moving
from martlet.cluster.records import DrainRecord, PartitionRecord, TopicRecord, encode_record
from martlet.cluster.replica_balance import Moves, plan_balance, plan_emptying, plan_replication_factor
from martlet.cluster.store import CommitPlan
from martlet.cluster.topic_names import topic_of_queue_state
from martlet.configs.effective import NO_LAYERS, BrokerLayers

MOVES_MAX: Final = 50
"""Partitions that move at the same time by default."""


# --- emptying and removing a broker


def plan_drain(broker: BrokerId, image: MetadataImage, states: BrokerStates, *, now_ms: int) -> CommitPlan | None:
    """Mark the broker as to be emptied; None when it is marked already."""
    record = image.broker(broker)
    if record is None:
        raise ApiError(ErrorCode.RESOURCE_NOT_FOUND, f"there is no broker {broker} in this cluster")
    if broker in states.draining:
        return None
    left = [one for one in image.brokers() if one.id != broker and one.id not in states.draining]
    largest = max((len(replicas) for replicas in all_wished(image).values() if broker in replicas), default=0)
    if largest > len(left):
        copies = "1 replica" if largest == 1 else f"{largest} replicas"
        others = "no other broker" if not left else f"only {len(left)} other broker{'s' * (len(left) > 1)}"
        raise ApiError(
            ErrorCode.INVALID_REPLICATION_FACTOR,
            f"broker {broker} holds partitions with {copies}, and {others} could take them: add a broker or lower the "
            "replication factor first",
        )
    compares = {broker_key(broker): record.mod_revision, drain_key(broker): 0}
    return CommitPlan(compares, {drain_key(broker): encode_record(DrainRecord(broker, now_ms))})


def plan_drain_end(broker: BrokerId, image: MetadataImage) -> CommitPlan | None:
    """Take the mark away: the broker keeps what it still holds and may get more; None without a mark."""
    mark = image.drain(broker)
    if mark is None:
        return None
    return CommitPlan({drain_key(broker): mark.mod_revision}, deletes=(drain_key(broker),))


def decide_drains(
    image: MetadataImage, states: BrokerStates, layers: BrokerLayers = NO_LAYERS, *, moves_max: int = MOVES_MAX
) -> list[Decision]:
    """The next moves away from brokers that are to be emptied; none when too few others are alive."""
    wished = _placed(image)
    moves: Moves = {}
    sites = sites_of(states.placeable)
    for broker in sorted(states.draining):
        # A partition that finds no place now waits for a broker to return.
        held = {
            partition: replicas
            for partition, replicas in (wished | moves).items()
            if broker not in replicas or any(site.broker not in replicas for site in sites)
        }
        moves |= plan_emptying(held, broker, sites)
    return _start(moves, image, states, layers, moves_max)


def held_by(image: MetadataImage, broker: BrokerId) -> list[tuple[str, PartitionRecord]]:
    """The partitions that name the broker as a replica, moves under way included."""
    return [
        (topic.name, partition)
        for topic in image.topics()
        for partition in image.partitions(topic.name)
        if broker in partition.replicas
    ]


def plan_removal(broker: BrokerId, image: MetadataImage) -> CommitPlan:
    """Forget a broker for good (CLS-20): its registration, its settings and its mark."""
    record = image.broker(broker)
    if record is None:
        raise ApiError(ErrorCode.RESOURCE_NOT_FOUND, f"there is no broker {broker} in this cluster")
    held = held_by(image, broker)
    if held:
        topic, partition = held[0]
        raise ApiError(
            ErrorCode.INVALID_REQUEST,
            f"broker {broker} still holds {len(held)} partitions, one is {topic}-{partition.partition}: drain it first",
        )
    if image.live(broker) is not None:
        raise ApiError(ErrorCode.INVALID_REQUEST, f"broker {broker} is running: stop it first")
    mark = image.drain(broker)
    if mark is None:
        # The mark keeps new topics away while the removal is on its way.
        raise ApiError(ErrorCode.INVALID_REQUEST, f"broker {broker} is not drained: drain it first")
    compares = {broker_key(broker): record.mod_revision, live_key(broker): 0, drain_key(broker): mark.mod_revision}
    return CommitPlan(compares, deletes=(broker_key(broker), drain_key(broker), broker_config_key(broker)))


# --- balance and replication factor


def decide_balance(
    image: MetadataImage, states: BrokerStates, layers: BrokerLayers = NO_LAYERS, *, moves_max: int = MOVES_MAX
) -> list[Decision]:
    """The next moves towards an even load, as after a broker was added."""
    return _start(plan_balance(_placed(image), sites_of(states.placeable)), image, states, layers, moves_max)


def decide_replication_factor(
    topic: TopicRecord, factor: int, image: MetadataImage, states: BrokerStates, layers: BrokerLayers = NO_LAYERS
) -> list[Decision]:
    """Moves that give every partition of the topic this number of replicas."""
    sites = sites_of(states.placeable)
    if not 1 <= factor <= max(len(sites), topic.replication_factor):
        raise ApiError(
            ErrorCode.INVALID_REPLICATION_FACTOR,
            f"a replication factor of {factor} is not possible: {len(sites)} brokers can take replicas now",
        )
    if any(is_moving(partition) for partition in image.partitions(topic.name)):
        raise ApiError(ErrorCode.REASSIGNMENT_IN_PROGRESS, f"partitions of {topic.name} are being moved")
    everything = all_wished(image)
    load = Counter(broker for replicas in everything.values() for broker in replicas)
    placed = {partition: replicas for partition, replicas in everything.items() if partition.topic == topic.name}
    if any(len(set(replicas) | {site.broker for site in sites}) < factor for replicas in placed.values()):
        raise ApiError(ErrorCode.INVALID_REPLICATION_FACTOR, f"too few brokers are alive for {factor} replicas")
    moves = plan_replication_factor(placed, factor, sites, load)
    return _start(moves, image, states, layers, len(moves))


def _placed(image: MetadataImage) -> Moves:
    """Where partitions are to lie, without those that follow others."""
    wished = all_wished(image)
    return {partition: wished[partition] for partition in wished if topic_of_queue_state(partition.topic) is None}


def _start(
    moves: Moves, image: MetadataImage, states: BrokerStates, layers: BrokerLayers, moves_max: int
) -> list[Decision]:
    """Begin as many of these moves as may be under way at once (CLS-21); what moves already is left alone."""
    under_way = sum(is_moving(partition) for topic in image.topics() for partition in image.partitions(topic.name))
    decisions: list[Decision] = []
    for (name, index), replicas in sorted(moves.items()):
        topic, partition = image.topic(name), image.partition(name, index)
        if topic is None or partition is None or is_moving(partition):
            continue
        decision = decide_start(name, partition, replicas, states, topic_rules(topic, layers))
        if decision is None:
            continue
        if is_moving(decision.after):
            if under_way >= moves_max:
                continue
            under_way += 1
        decisions.append(decision)
    return decisions
