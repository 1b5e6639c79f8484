"""Moving partitions to other brokers: starting, following, cancelling and listing reassignments.

Rules: pure functions from records to `Decision`s, or an ApiError saying why not; `partition_plans.py` makes commits of
them. Which replicas to wish for is in `replica_balance.py`, whole brokers are in `partition_moves.py`.

How it works: a move is part of the partition's own record. While it lasts, `replicas` are the wished ones followed by
those that will go (`removing`), and `adding` are those that were not there before. Added replicas copy from the leader
like any follower and join the in-sync set when complete. As soon as all of them are in sync, the removed
ones are dropped in one commit, which also elects another leader where the leader is among them. A move that is
replaced by another one keeps what it has copied, as far as the new one still wants it. Nothing is deleted on any broker
but by learning that it is no replica any more.

Invariants:
CLS-31 replicas are dropped only when all that are added are in sync, or when the move is cancelled or replaced; and
   never a complete one when fewer complete ones than the minimum in sync would remain;
CLS-32 a cancelled move leaves the replicas that were there before it;
CLS-33 without a failure every move ends: added replicas that are in sync lead to the last commit.

Proved by: tests/unit/cluster/test_reassignment.py, tests/properties/test_controller.py
"""

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple

from martlet.base.errors import ApiError, ErrorCode
from martlet.base.ids import BrokerId, TopicPartition
from martlet.cluster.controller_decisions import TopicRules, has_leader, topic_rules
from martlet.cluster.image import MetadataImage
from martlet.cluster.keys import topic_key
from martlet.cluster.liveness import BrokerStates
from martlet.cluster.partition_plans import Decision
from martlet.cluster.placement import Replicas
from martlet.cluster.records import PartitionRecord, TopicRecord, encode_record
from martlet.cluster.replica_decisions import elect_leader, live_member, store_in_sync
from martlet.cluster.store import CommitPlan
from martlet.configs.effective import NO_LAYERS, BrokerLayers


class Reassignment(NamedTuple):
    """A move under way, as ListPartitionReassignments shows it."""

    topic: str
    partition: int
    replicas: Replicas
    adding: Replicas
    removing: Replicas


def is_moving(partition: PartitionRecord) -> bool:
    return bool(partition.adding or partition.removing)


def wished_replicas(partition: PartitionRecord) -> Replicas:
    """Where the partition lies when its move is done."""
    return tuple(broker for broker in partition.replicas if broker not in partition.removing)


def earlier_replicas(partition: PartitionRecord) -> Replicas:
    """Where the partition lay before its move, and lies again if that is cancelled."""
    return tuple(broker for broker in partition.replicas if broker not in partition.adding)


def all_wished(image: MetadataImage) -> dict[TopicPartition, Replicas]:
    """Every partition's replicas as they will be once all moves are done."""
    return {
        TopicPartition(topic.name, partition.partition): wished_replicas(partition)
        for topic in image.topics()
        for partition in image.partitions(topic.name)
    }


def list_reassignments(
    image: MetadataImage, wanted: Mapping[str, Collection[int]] | None = None
) -> Iterator[Reassignment]:
    """The moves under way: all of them, or those of the wanted partitions; what does not exist is passed over."""
    for topic in image.topics() if wanted is None else [one for one in image.topics() if one.name in wanted]:
        for partition in image.partitions(topic.name):
            if is_moving(partition) and (wanted is None or partition.partition in wanted[topic.name]):
                yield Reassignment(
                    topic.name, partition.partition, partition.replicas, partition.adding, partition.removing
                )


# --- moves on request


def decide_wish(
    wish: tuple[TopicPartition, Sequence[int] | None],
    image: MetadataImage,
    states: BrokerStates,
    layers: BrokerLayers = NO_LAYERS,
    *,
    factor_may_change: bool = True,
) -> Decision | None:
    """AlterPartitionReassignments for one partition: move it to these brokers, or cancel its move when None.

    None is the answer when there is nothing to do; an ApiError says what is wrong with the wish.
    """
    (name, index), replicas = wish
    topic, partition = image.topic(name), image.partition(name, index)
    if topic is None or partition is None:
        raise ApiError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"there is no partition {name}-{index}")
    rules = topic_rules(topic, layers)
    if replicas is None:
        return decide_cancel(name, partition, states, rules)
    target = _checked_target(partition, replicas, image, states)
    if not factor_may_change and len(target) != len(earlier_replicas(partition)):
        raise ApiError(
            ErrorCode.INVALID_REPLICATION_FACTOR,
            f"{name}-{index} has {len(earlier_replicas(partition))} replicas, and the request does not allow "
            f"{len(target)}",
        )
    return decide_start(name, partition, target, states, rules)


def decide_start(
    topic: str, partition: PartitionRecord, target: Replicas, states: BrokerStates, rules: TopicRules
) -> Decision | None:
    """Begin the move to brokers that have been checked, in place of a move under way; None when it is so already."""
    abandoned = [broker for broker in partition.adding if broker not in target]
    earlier = earlier_replicas(partition)
    adding = tuple(broker for broker in target if broker not in earlier)
    removing = tuple(broker for broker in earlier if broker not in target)
    moved = replace(partition, replicas=(*target, *removing), adding=adding, removing=removing)
    after = _without(moved, abandoned, states, rules)
    if after is None:
        raise _bad_target(f"too few replicas but those on the brokers {abandoned}, which are left out, are complete")
    return None if after == partition else Decision(topic, partition, after)


def decide_cancel(topic: str, partition: PartitionRecord, states: BrokerStates, rules: TopicRules) -> Decision:
    """Go back to the replicas before the move (CLS-32)."""
    where = f"{topic}-{partition.partition}"
    if not is_moving(partition):
        raise ApiError(ErrorCode.NO_REASSIGNMENT_IN_PROGRESS, f"no move of {where} is under way")
    back = replace(partition, replicas=earlier_replicas(partition), adding=(), removing=())
    after = _without(back, partition.adding, states, rules)
    if after is None:
        raise _bad_target(f"the move of {where} cannot be cancelled: too few of the earlier replicas are complete")
    return Decision(topic, partition, after)


def _checked_target(
    partition: PartitionRecord, replicas: Sequence[int], image: MetadataImage, states: BrokerStates
) -> Replicas:
    if not replicas:
        raise _bad_target("a partition needs at least one replica")
    if len(set(replicas)) != len(replicas):
        raise _bad_target(f"a broker is named twice in the replicas {list(replicas)}")
    for replica in map(BrokerId, replicas):
        if image.broker(replica) is None:
            raise _bad_target(f"there is no broker {replica} in this cluster")
        if replica in states.draining and replica not in partition.replicas:
            raise _bad_target(f"broker {replica} is being drained and takes no more replicas")
    return tuple(BrokerId(replica) for replica in replicas)


def _bad_target(detail: str) -> ApiError:
    return ApiError(ErrorCode.INVALID_REPLICA_ASSIGNMENT, detail)


# --- following a move


def decide_all_progress(
    image: MetadataImage, states: BrokerStates, layers: BrokerLayers = NO_LAYERS
) -> Iterator[Decision]:
    """Finish every move that can be finished."""
    for topic in image.topics():
        for partition in image.partitions(topic.name):
            if is_moving(partition):
                decision = decide_progress(topic.name, partition, states, topic_rules(topic, layers))
                if decision is not None:
                    yield decision


def decide_progress(topic: str, partition: PartitionRecord, states: BrokerStates, rules: TopicRules) -> Decision | None:
    """The end of a move, when the time for it has come (CLS-31)."""
    if not is_moving(partition) or not has_leader(partition, states):
        return None
    target = wished_replicas(partition)
    in_sync = {entry.broker for entry in partition.isr if live_member(entry, states.alive) is not None}
    remaining = [broker for broker in target if broker in in_sync]
    if not in_sync.issuperset(partition.adding) or len(remaining) < min(rules.min_in_sync, len(target)):
        return None
    done = replace(partition, replicas=target, adding=(), removing=())
    after = _without(done, partition.removing, states, rules)
    return Decision(topic, partition, after) if after is not None else None


def _without(
    partition: PartitionRecord, dropped: Collection[BrokerId], states: BrokerStates, rules: TopicRules
) -> PartitionRecord | None:
    """The partition without these brokers in any set, under another leader if need be.

    None when no other may lead, or when it would take away a complete copy that is still needed (CLS-31).
    """
    reduced = replace(
        partition,
        isr=tuple(entry for entry in partition.isr if entry.broker not in dropped),
        elr=tuple(entry for entry in partition.elr if entry.broker not in dropped),
        last_in_sync=tuple(entry for entry in partition.last_in_sync if entry.broker not in dropped),
    )
    kept = _complete_count(reduced, states)
    if kept < min(rules.min_in_sync, len(reduced.replicas), _complete_count(partition, states)):
        return None
    if partition.leader is None:
        return reduced if reduced.isr or reduced.elr else None
    if partition.leader not in dropped:
        return store_in_sync(reduced, reduced.isr, rules.min_in_sync)
    for candidates in (states.staying, states.alive):
        election = elect_leader(reduced, candidates, rules.min_in_sync)
        if election.partition.leader is not None:
            return election.partition
    return None


def _complete_count(partition: PartitionRecord, states: BrokerStates) -> int:
    """How many copies hold everything acknowledged; those of missing brokers, which may return with it, count."""
    known = {**states.missing, **states.alive}
    return sum(live_member(entry, known) is not None for entry in (*partition.isr, *partition.elr))


def plan_topic_factor(topic: TopicRecord, partitions: Sequence[PartitionRecord]) -> CommitPlan | None:
    """Note in the topic's record how many replicas its partitions have, once all have the same other number."""
    factors = {len(partition.replicas) for partition in partitions}
    if any(map(is_moving, partitions)) or len(factors) != 1 or factors == {topic.replication_factor}:
        return None
    key = topic_key(topic.name)
    after = replace(topic, replication_factor=factors.pop())
    return CommitPlan({key: topic.mod_revision}, {key: encode_record(after)})
