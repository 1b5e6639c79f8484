"""Each topic that has subscriptions has a companion, an internal topic in which the state of its queues lies.

A partition and its companion of the same number are a *pair*. A queue is served by the broker that leads both, so the
controller keeps them together: same replicas, and the companion led where the data is led.

How it works: the companion is made when the topic's first subscription is known, grows with it, and is deleted in the
commit that deletes it. Its name and id follow from the topic's id, so making it twice is making it once, and what was
left half made is completed. Its replicas follow the data's by moves of its own. When leaders differ, the data's takes
the companion over as soon as it is in sync for it; elections prefer a broker that is in sync for both.

Invariants:
CLS-48 nothing here changes a data partition; a companion changes as any partition does, by elections and moves;
CLS-49 with all replicas alive and in sync and nothing else to do, every pair comes to lie on the same replicas and
   to be led by one broker.

Proved by: tests/unit/cluster/test_queue_pairs.py, tests/properties/test_queue_pairs.py
"""

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Final

from martlet.base.errors import ApiError
from martlet.base.ids import TopicPartition
from martlet.cluster.controller_decisions import has_leader, topic_rules
from martlet.cluster.image import MetadataImage
from martlet.cluster.keys import partition_key, topic_key
from martlet.cluster.liveness import BrokerStates
from martlet.cluster.partition_plans import Decision, PartitionsPlan
from martlet.cluster.reassignment import decide_start, wished_replicas
from martlet.cluster.records import PartitionRecord, TopicRecord, encode_record
from martlet.cluster.replica_decisions import elect_leader, live_member
from martlet.cluster.store import CommitPlan
from martlet.cluster.subscriptions import covering
from martlet.cluster.topic_names import companion_id, queue_state_topic, topic_of_queue_state
from martlet.cluster.topic_placement import SITES_MAX, layout_of
from martlet.configs.effective import NO_LAYERS, BrokerLayers

_PARTITIONS_PER_COMMIT: Final = 100

_CONFIGS: Final = {
    "cleanup.policy": "delete",
    "compression.type": "producer",
    "max.message.bytes": str(16 << 20),
    "retention.bytes": "-1",
    "retention.ms": "-1",
    "segment.bytes": str(16 << 20),
}
"""The log is cut behind its snapshots, by the broker that leads it, and in no other way."""

_COPIED: Final = (
    "flush.messages",
    "flush.ms",
    "martlet.flush",
    "min.insync.replicas",
    "unclean.leader.election.enable",
)
"""What is promised for the data is promised for the state of its queues."""


def companion_of(image: MetadataImage, topic: TopicRecord) -> TopicRecord | None:
    return image.topic(queue_state_topic(topic.id))


def data_of(image: MetadataImage, companion: str) -> TopicRecord | None:
    """Whose companion a topic is, if it is one."""
    topic_id = topic_of_queue_state(companion)
    return image.topic_by_id(topic_id) if topic_id is not None else None


# --- being there


def plan_companions(
    image: MetadataImage, states: BrokerStates, layers: BrokerLayers = NO_LAYERS
) -> Iterator[PartitionsPlan]:
    """The next commit for each topic whose companion is missing, too small, or has other settings than it should."""
    if not image.subscriptions():
        return
    for topic in image.topics():
        if not topic.internal and any(covering(image, topic.name)):
            commit = plan_companion(topic, image, states, layers)
            if commit is not None:
                yield PartitionsPlan(commit, ())


def plan_companion(
    topic: TopicRecord, image: MetadataImage, states: BrokerStates, layers: BrokerLayers = NO_LAYERS
) -> CommitPlan | None:
    """One commit towards the companion as it should be; None when it is so, or none of its replicas is alive."""
    before = companion_of(image, topic)
    record = _wished(topic, before)
    key = topic_key(record.name)
    guards = {topic_key(topic.name): topic.mod_revision, key: before.mod_revision if before is not None else 0}
    first = before.partition_count if before is not None else 0
    if first >= topic.partition_count:
        return None if record == before else CommitPlan(guards, {key: encode_record(record)})
    partitions = image.partitions(topic.name)[first : first + _PARTITIONS_PER_COMMIT]
    placed = [wished_replicas(partition) for partition in partitions]
    if any(not any(broker in states.staying for broker in replicas) for replicas in placed):
        return None
    if len({broker for replicas in placed for broker in replicas}) > SITES_MAX:
        partitions, placed = partitions[:1], placed[:1]
    layout = layout_of(placed, image, states)
    rules = topic_rules(record, layers)
    puts: dict[str, bytes] = {}
    for partition, replicas in zip(partitions, placed, strict=True):
        begun = layout.partition(record.id, partition.partition, replicas, rules.min_in_sync)
        if any(member.broker == partition.leader for member in begun.isr):
            begun = replace(begun, leader=partition.leader)
        puts[partition_key(record.id, partition.partition)] = encode_record(begun)
    record = replace(record, partition_count=first + len(partitions), replication_factor=len(placed[0]))
    return CommitPlan({**guards, **layout.guards}, {**puts, key: encode_record(record)})


def _wished(topic: TopicRecord, before: TopicRecord | None) -> TopicRecord:
    configs = {**_CONFIGS, **{name: topic.configs[name] for name in _COPIED if name in topic.configs}}
    if before is not None:
        return replace(before, configs=configs)
    name = queue_state_topic(topic.id)
    return TopicRecord(name, companion_id(topic.id), 0, topic.replication_factor, configs, True, topic.created_at_ms)


# --- being together


def decide_pairs(
    image: MetadataImage,
    states: BrokerStates,
    layers: BrokerLayers,
    decided: Mapping[TopicPartition, Decision],
) -> Iterator[Decision]:
    """What brings companions to where their data is; what a round has decided already is left alone."""
    for companion in image.topics():
        topic = data_of(image, companion.name)
        if topic is None:
            continue
        for state, data in zip(image.partitions(companion.name), image.partitions(topic.name), strict=False):
            if TopicPartition(companion.name, state.partition) in decided:
                continue
            same = decided.get(TopicPartition(topic.name, data.partition))
            decision = _together(companion, state, same.after if same is not None else data, states, layers)
            if decision is not None:
                yield decision


def _together(
    companion: TopicRecord, state: PartitionRecord, data: PartitionRecord, states: BrokerStates, layers: BrokerLayers
) -> Decision | None:
    rules = topic_rules(companion, layers)
    # A broker with a full disk could store no acknowledgement, and would be relieved of the companion again.
    is_worth = data.leader not in states.full or state.leader in states.full
    if is_worth and has_leader(data, states) and has_leader(state, states) and data.leader != state.leader:
        staying = states.staying
        if any(entry.broker == data.leader and live_member(entry, staying) is not None for entry in state.isr):
            election = elect_leader(state, staying, rules.min_in_sync, preferred=data.leader)
            return Decision(companion.name, state, election.partition)
    target = wished_replicas(data)
    if wished_replicas(state) == target:
        return None
    try:
        return decide_start(companion.name, state, target, states, rules)
    except ApiError:
        return None  # what it would leave behind is still needed; a later round sees whether that is so
