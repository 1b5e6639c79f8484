"""The controller's decisions about partitions: who leads, and who no longer counts as in sync.

Rules: pure functions from the image and the brokers' states to `Decision`s, which `partition_plans.py` turns into
commits. The controller has no knowledge of its own and no power but compare-and-swap: two of them are harmless.

How it works: each partition is decided by itself. If the process that leads is gone, a living replica in sync is
elected, else an eligible one, else none until a candidate returns. A replica that may lack something is elected only
where the topic allows it and no complete one is being waited for, or where it alone was complete and has the logs of
then, perhaps without what a power loss took; not with an empty or damaged disk, since others would truncate what they
still have. If the leader stays, members that are gone, or whose process was replaced by one that does not vouch for
them, leave the in-sync set. A broker that is leaving, or whose disk is full, hands its leaderships over first. A
missing broker that is still waited for (see `liveness.py`) keeps what it has and gets nothing new. Last, leaderships go
back to the first replica of each partition when too many have strayed.

Invariants:
CLS-11 only a broker that is alive is elected; and while a complete replica may return, only a complete one, unless the
   topic allows it, or it alone was complete and has the logs of then or is the only replica; such an election is always
   marked;
CLS-12 the leader epoch changes with every election and with nothing else;
CLS-13 with the image up to date and no broker gone or back since, there is nothing more to decide.

Proved by: tests/unit/cluster/test_controller_decisions.py, tests/properties/test_controller.py
"""

from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from itertools import zip_longest
from typing import Final

from martlet.base.errors import ApiError, ErrorCode
from martlet.base.ids import BrokerId, Member, TopicPartition
from martlet.cluster.image import MetadataImage
from martlet.cluster.keys import partition_key
from martlet.cluster.liveness import BrokerStates
from martlet.cluster.partition_plans import Decision, broker_compares, check_change
from martlet.cluster.records import BrokerRecord, PartitionRecord, TopicRecord, encode_record
from martlet.cluster.replica_decisions import elect_leader, live_member, store_in_sync
from martlet.cluster.store import CommitPlan
from martlet.cluster.topic_names import queue_state_topic, topic_of_queue_state
from martlet.configs.effective import NO_LAYERS, BrokerLayers, effective_topic_config

IMBALANCE_PERCENT: Final = 10
"""A broker may miss so much of the leaderships meant for it before they are brought back."""


@dataclass(frozen=True, slots=True)
class TopicRules:
    """What a topic's settings say about its replicas."""

    min_in_sync: int = 1
    unclean_allowed: bool = False


def topic_rules(topic: TopicRecord, layers: BrokerLayers = NO_LAYERS) -> TopicRules:
    """The rules in force for a topic, on a broker with these layers."""
    config = effective_topic_config(topic.configs, layers)
    return TopicRules(config.number("min.insync.replicas"), config.flag("unclean.leader.election.enable"))


# --- leaders and in-sync sets


def decide_all(image: MetadataImage, states: BrokerStates, layers: BrokerLayers = NO_LAYERS) -> list[Decision]:
    """What is to be done about all partitions now; those without a working leader come first."""
    decisions: list[Decision] = []
    companions = [topic for topic in image.topics() if topic_of_queue_state(topic.name) is not None]
    others = [topic for topic in image.topics() if topic not in companions] if companions else image.topics()
    for topic in others:
        rules = topic_rules(topic, layers)
        states_of_queues = image.partitions(queue_state_topic(topic.id)) if companions else ()
        for partition, other in zip_longest(image.partitions(topic.name), states_of_queues):
            if partition is not None:
                decision = decide_partition(topic.name, partition, states, rules, other)
                if decision is not None:
                    decisions.append(decision)
    decisions += _decide_companions(companions, image, states, layers, decisions)
    return sorted(decisions, key=lambda decision: has_leader(decision.before, states))


def _decide_companions(
    companions: Iterable[TopicRecord],
    image: MetadataImage,
    states: BrokerStates,
    layers: BrokerLayers,
    decided: Iterable[Decision],
) -> Iterator[Decision]:
    """Decided after their data, so that both come to be led by one broker where they can."""
    after = {decision.partition: decision.after for decision in decided} if companions else {}
    for companion in companions:
        topic = image.topic_by_id(topic_of_queue_state(companion.name) or companion.id)
        rules = topic_rules(companion, layers)
        for partition in image.partitions(companion.name):
            data = image.partition(topic.name, partition.partition) if topic is not None else None
            if topic is not None and data is not None:
                data = after.get(TopicPartition(topic.name, partition.partition), data)
            decision = decide_partition(companion.name, partition, states, rules, data)
            if decision is not None:
                yield decision


def decide_partition(
    topic: str,
    partition: PartitionRecord,
    states: BrokerStates,
    rules: TopicRules,
    other: PartitionRecord | None = None,
) -> Decision | None:
    """What is to be done about one partition, if anything; `other` is the one that should be led by the same broker."""
    decision: Decision | None = None
    if not has_leader(partition, states):
        decision = _elect(topic, partition, states, rules, other)
    elif partition.leader in states.leaving:
        decision = _hand_over(topic, partition, states, rules, other)
    elif partition.leader in states.full:
        decision = _relieve(topic, partition, states, rules)
    if decision is None:
        decision = _refresh(topic, partition, states, rules)
    return decision if decision is not None and decision.after != partition else None


def has_leader(partition: PartitionRecord, states: BrokerStates) -> bool:
    """Whether the very process that was elected is alive, or is still waited for."""
    if partition.leader is None:
        return False
    process = states.alive.get(partition.leader) or states.waited_for.get(partition.leader)
    return process is not None and process.incarnation == partition.leader_incarnation


def _elect(
    topic: str,
    partition: PartitionRecord,
    states: BrokerStates,
    rules: TopicRules,
    other: PartitionRecord | None = None,
) -> Decision:
    """A broker that stays, else one that is leaving, else one that may lack something, else none."""
    preferred = with_space(partition, states, other)
    election = elect_leader(partition, states.staying, rules.min_in_sync, preferred=preferred)
    if election.partition.leader is None:
        election = elect_leader(
            partition,
            states.alive,
            rules.min_in_sync,
            unclean_allowed=rules.unclean_allowed and not _may_return(partition, states),
        )
    if election.partition.leader is None and (holder := last_holder(partition, states.alive)) is not None:
        election = elect_leader(partition, {holder.id: holder}, rules.min_in_sync, unclean_allowed=True)
    return Decision(topic, partition, election.partition, election.is_unclean)


def _may_return(partition: PartitionRecord, states: BrokerStates) -> bool:
    """Whether a complete replica is missing, but not yet given up."""
    return any(live_member(entry, states.waited_for) is not None for entry in (*partition.isr, *partition.elr))


def last_holder(partition: PartitionRecord, alive: Mapping[BrokerId, BrokerRecord]) -> BrokerRecord | None:
    """The one broker that was complete last, if it is one and is back with the logs of then.

    It may have come back without proof that it lost nothing: after a power cut no other is likely to have more. With
    an empty or damaged disk others surely have more. A single replica goes on with whatever it has, but not on a new
    disk: that it holds nothing any more is for an operator to accept.
    """
    entries = (*partition.isr, *partition.elr)
    if len({entry.broker for entry in entries}) != 1:
        return None
    holder = alive.get(entries[0].broker)
    if holder is None:
        return None
    has_logs = all(holder.has_logs_of(entry.incarnation) for entry in entries)
    is_sole = len(partition.replicas) == 1 and not any(holder.has_lost_disk_of(entry.incarnation) for entry in entries)
    return holder if has_logs or is_sole else None


def stuck_partitions(
    image: MetadataImage, states: BrokerStates, layers: BrokerLayers = NO_LAYERS
) -> Iterator[tuple[str, PartitionRecord]]:
    """Those without a leader to which no replica can return that would be elected by itself.

    Every one that was complete has since been started with an empty or damaged disk, or after a loss of power. Who
    could not read its logs may be able to when it is started again.
    """
    known = {broker: replace(record, unread=False) for broker, record in {**states.missing, **states.alive}.items()}
    for topic in image.topics():
        for partition in image.partitions(topic.name):
            if partition.leader is not None or topic_rules(topic, layers).unclean_allowed:
                continue
            entries = (*partition.isr, *partition.elr)
            is_hopeless = not any(live_member(entry, known) is not None for entry in entries)
            if is_hopeless and last_holder(partition, known) is None:
                yield topic.name, partition


def _hand_over(
    topic: str,
    partition: PartitionRecord,
    states: BrokerStates,
    rules: TopicRules,
    other: PartitionRecord | None = None,
) -> Decision | None:
    """Another leader in place of one that is leaving; None when no other may lead.

    Those that are waited for would lose their place in the in-sync set by it, which a broker's leaving is worth.
    """
    preferred = with_space(partition, states, other)
    election = elect_leader(partition, states.staying, rules.min_in_sync, preferred=preferred)
    if election.partition.leader is None:
        return None
    return Decision(topic, partition, election.partition)


def _relieve(topic: str, partition: PartitionRecord, states: BrokerStates, rules: TopicRules) -> Decision | None:
    """Another leader in place of one that takes no messages; None when no other in sync does."""
    successor = with_space(partition, states)
    if successor is None or _has_missing_member(partition, states):
        return None
    election = elect_leader(partition, states.staying, rules.min_in_sync, preferred=successor)
    return Decision(topic, partition, election.partition)


def with_space(
    partition: PartitionRecord, states: BrokerStates, other: PartitionRecord | None = None
) -> BrokerId | None:
    """The first replica that is in sync, stays, and has space; None without any.

    With another partition that should be led by the same broker: its leader, else one that may lead it too, goes first.
    """
    staying = states.staying
    in_sync = {entry.broker for entry in partition.isr if live_member(entry, staying) is not None}
    candidates = [broker for broker in partition.replicas if broker in in_sync - states.full]
    if other is not None:
        if other.leader in candidates:
            return other.leader
        both = {entry.broker for entry in other.isr if live_member(entry, staying) is not None}
        candidates.sort(key=lambda broker: broker not in both)
    return next(iter(candidates), None)


def _has_missing_member(partition: PartitionRecord, states: BrokerStates) -> bool:
    """Whether an election would cost a missing broker its place, which a transfer that can wait is not worth."""
    return any(entry.broker in states.waited_for for entry in partition.isr)


def _refresh(topic: str, partition: PartitionRecord, states: BrokerStates, rules: TopicRules) -> Decision | None:
    """The in-sync set without those that are gone.

    An entry for which a later process vouches stays as it is: the leader replaces it once that process has caught up.
    """
    members = [entry for entry in partition.isr if _is_present(entry, states)]
    if not partition.elr and len(members) == len(partition.isr) and not states.leaving:
        return None  # so it is nearly always, for thousands of partitions
    staying = [member for member in members if member.broker not in states.leaving or member.broker == partition.leader]
    # A broker that is leaving goes early only where enough stay in sync without it.
    if len(staying) >= min(rules.min_in_sync, len(partition.replicas)):
        members = staying
    return Decision(topic, partition, store_in_sync(partition, members, rules.min_in_sync))


def _is_present(entry: Member, states: BrokerStates) -> bool:
    return live_member(entry, states.alive) is not None or live_member(entry, states.waited_for) is not None


def departure_is_done(image: MetadataImage, states: BrokerStates, broker: BrokerId) -> bool:
    """Whether a leaving broker may stop: it leads nothing that another could lead."""
    return not any(
        partition.leader == broker and _hand_over(topic.name, partition, states, TopicRules()) is not None
        for topic in image.topics()
        for partition in image.partitions(topic.name)
    )


# --- preferred leaders, and elections on request


def decide_preferred(
    image: MetadataImage,
    states: BrokerStates,
    layers: BrokerLayers = NO_LAYERS,
    *,
    limit_percent: int = IMBALANCE_PERCENT,
) -> Iterator[Decision]:
    """Bring leaderships back to first replicas, for those brokers that miss more than the limit."""
    meant: dict[BrokerId, int] = {}
    strayed: dict[BrokerId, list[tuple[TopicRecord, PartitionRecord]]] = {}
    for topic in image.topics():
        if topic_of_queue_state(topic.name) is not None:
            continue  # led where its data is led
        for partition in image.partitions(topic.name):
            preferred = partition.replicas[0]
            meant[preferred] = meant.get(preferred, 0) + 1
            if partition.leader != preferred:
                strayed.setdefault(preferred, []).append((topic, partition))
    for broker, partitions in sorted(strayed.items()):
        if broker not in states.draining | states.full and len(partitions) * 100 > meant[broker] * limit_percent:
            for topic, partition in partitions:
                decision = _prefer(topic.name, partition, states, topic_rules(topic, layers))
                if decision is not None:
                    yield decision


def _prefer(topic: str, partition: PartitionRecord, states: BrokerStates, rules: TopicRules) -> Decision | None:
    preferred = partition.replicas[0]
    if partition.adding or partition.removing or not has_leader(partition, states):
        return None
    if _has_missing_member(partition, states):
        return None
    staying = states.staying
    if not any(entry.broker == preferred and live_member(entry, staying) is not None for entry in partition.isr):
        return None
    return Decision(
        topic, partition, elect_leader(partition, staying, rules.min_in_sync, preferred=preferred).partition
    )


def decide_requested_election(
    topic: TopicRecord | None,
    partition: PartitionRecord | None,
    states: BrokerStates,
    rules: TopicRules,
    *,
    unclean: bool,
) -> Decision:
    """ElectLeaders for one partition: its preferred leader, or, by an operator's word, anybody alive."""
    if topic is None or partition is None:
        raise ApiError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "there is no such partition")
    where = f"{topic.name}-{partition.partition}"
    if unclean:
        if has_leader(partition, states):
            raise ApiError(ErrorCode.ELECTION_NOT_NEEDED, f"{where} has a leader")
        decision = _elect(topic.name, partition, states, replace(rules, unclean_allowed=True))
        if decision.after.leader is None:
            raise ApiError(ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE, f"no replica of {where} is alive")
        return decision
    preferred = partition.replicas[0]
    if partition.leader == preferred and has_leader(partition, states):
        raise ApiError(ErrorCode.ELECTION_NOT_NEEDED, f"{where} is led by its preferred leader")
    staying = states.staying
    if not any(entry.broker == preferred and live_member(entry, staying) is not None for entry in partition.isr):
        raise ApiError(
            ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE,
            f"broker {preferred}, the preferred leader of {where}, is not alive and in sync",
        )
    if preferred in states.full:
        raise ApiError(
            ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE,
            f"the disk of broker {preferred}, the preferred leader of {where}, is full",
        )
    election = elect_leader(partition, staying, rules.min_in_sync, preferred=preferred)
    return Decision(topic.name, partition, election.partition)


# --- what a leader wants


def plan_in_sync_change(
    partition: PartitionRecord,
    members: Collection[Member],
    image: MetadataImage,
    states: BrokerStates,
    *,
    partition_epoch: int,
    min_in_sync: int,
) -> CommitPlan | None:
    """Store the in-sync set that the partition's leader proposes on the basis of `partition_epoch`.

    None means that the proposal is refused for certain: the partition has changed since, or the leader or an added
    member is not the process that is alive, or is leaving. The same set again is stored as well: it settles what
    an earlier proposal without an answer left open.
    """
    leader = partition.leader
    if partition.mod_revision != partition_epoch or leader is None or partition.leader_incarnation is None:
        return None
    added = set(members) - set(partition.isr)
    relied_on = added | {Member(leader, partition.leader_incarnation)}
    if not all(_is_process_alive(member, states.alive) for member in relied_on):
        return None
    if any(member.broker in states.leaving or member.broker not in partition.replicas for member in added):
        return None
    after = store_in_sync(partition, members, min_in_sync)
    check_change(partition, after)
    key = partition_key(partition.topic_id, partition.partition)
    compares = {key: partition.mod_revision, **broker_compares({member.broker for member in relied_on}, image)}
    return CommitPlan(compares, {key: encode_record(after)})


def _is_process_alive(member: Member, alive: Mapping[BrokerId, BrokerRecord]) -> bool:
    process = alive.get(member.broker)
    return process is not None and process.incarnation == member.incarnation
