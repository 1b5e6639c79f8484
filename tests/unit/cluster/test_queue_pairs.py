"""Companions of topics with subscriptions: they come, grow, move and are led with their data, and go with it."""

from dataclasses import replace

import pytest

from martlet.base.errors import ApiError
from martlet.base.ids import BrokerId, LeaderEpoch, TopicPartition
from martlet.cluster.keys import partition_key, subscription_key
from martlet.cluster.partition_plans import plan_partitions
from martlet.cluster.queue_pairs import companion_of, data_of
from martlet.cluster.reassignment import decide_wish
from martlet.cluster.records import PartitionRecord, SubscriptionRecord, TopicRecord, encode_record
from martlet.cluster.store import CommitPlan
from martlet.cluster.topic_decisions import TopicDefaults, design_growth, plan_deletion, plan_growth
from martlet.cluster.topic_names import is_internal_topic, looks_internal, queue_state_topic, topic_of_queue_state
from tests.unit.cluster.controlled_cluster import ControlledCluster


def _cluster(partitions: int = 2, **configs: str) -> ControlledCluster:
    cluster = ControlledCluster({1: "a", 2: "b", 3: "c"})
    settings = {name.replace("_", "."): value for name, value in configs.items()}
    cluster.make_topic("t", [(1, 2, 3), (2, 3, 1)][:partitions], {"min.insync.replicas": "2", **settings})
    return cluster


def _subscribe(cluster: ControlledCluster, *topics: str) -> None:
    record = SubscriptionRecord("work", "id", topics)
    assert cluster.offer(CommitPlan({}, {subscription_key("work"): encode_record(record)}))


def _topic(cluster: ControlledCluster) -> TopicRecord:
    topic = cluster.image.topic("t")
    assert topic is not None
    return topic


def _companion(cluster: ControlledCluster) -> TopicRecord:
    companion = companion_of(cluster.image, _topic(cluster))
    assert companion is not None
    return companion


def _set(cluster: ControlledCluster, changed: PartitionRecord) -> None:
    cluster.offer(CommitPlan({}, {partition_key(changed.topic_id, changed.partition): encode_record(changed)}))


def _pairs(cluster: ControlledCluster) -> list[tuple[PartitionRecord, PartitionRecord]]:
    image = cluster.image
    return list(zip(image.partitions("t"), image.partitions(_companion(cluster).name), strict=True))


def test_a_topic_gets_its_companion_with_the_first_subscription() -> None:
    cluster = _cluster(martlet_flush="commit")
    cluster.settle()
    assert companion_of(cluster.image, _topic(cluster)) is None
    _subscribe(cluster, "t")
    cluster.settle()
    companion = _companion(cluster)
    assert companion.internal
    assert companion.configs["min.insync.replicas"] == "2"
    assert companion.configs["martlet.flush"] == "commit"
    assert companion.configs["retention.ms"] == "-1"
    assert data_of(cluster.image, companion.name) == _topic(cluster)
    for data, state in _pairs(cluster):
        assert (state.replicas, state.leader, state.isr) == (data.replicas, data.leader, data.isr)


def test_a_companion_has_no_companion_even_when_a_pattern_fits_all_topics() -> None:
    cluster = _cluster()
    record = SubscriptionRecord("work", "id", patterns=("*",))
    cluster.offer(CommitPlan({}, {subscription_key("work"): encode_record(record)}))
    cluster.settle()
    assert len(cluster.image.topics()) == 2


def test_a_companion_grows_with_its_topic_and_takes_its_settings() -> None:
    cluster = _cluster()
    _subscribe(cluster, "t")
    cluster.settle()
    design = design_growth(_topic(cluster), cluster.image, TopicDefaults(), partition_count=4)
    for plan in plan_growth(design):
        assert cluster.offer(plan)
    cluster.settle()
    assert _companion(cluster).partition_count == 4
    assert all(state.leader == data.leader for data, state in _pairs(cluster))


def test_a_companion_goes_with_its_topic_and_cannot_go_alone() -> None:
    cluster = _cluster()
    _subscribe(cluster, "t")
    cluster.settle()
    with pytest.raises(ApiError, match="internal"):
        plan_deletion(_companion(cluster))
    assert cluster.offer(plan_deletion(_topic(cluster)))
    assert cluster.image.topics() == ()


def test_an_election_prefers_a_broker_that_may_lead_both() -> None:
    cluster = _cluster(1)
    _subscribe(cluster, "t")
    cluster.settle()
    state = _companion(cluster).name
    (data, _), *_ = _pairs(cluster)
    record = cluster.partition(state)
    _set(cluster, replace(record, isr=tuple(member for member in record.isr if member.broker != 2)))
    cluster.stop(1)
    cluster.settle()
    (data, queue), *_ = _pairs(cluster)
    assert (data.leader, queue.leader) == (3, 3), "broker 2 comes first in the data, and cannot lead the state"


def test_a_companion_led_elsewhere_is_handed_over_as_soon_as_the_leader_of_the_data_is_in_sync_for_it() -> None:
    cluster = _cluster(1)
    _subscribe(cluster, "t")
    cluster.settle()
    state = _companion(cluster).name
    _set(cluster, replace(cluster.partition(state), leader=BrokerId(2), leader_epoch=LeaderEpoch(1)))
    cluster.round()
    (data, queue), *_ = _pairs(cluster)
    assert (data.leader, queue.leader) == (1, 1)
    assert queue.leader_epoch == 2


def test_names_of_companions_are_internal_and_tell_whose_they_are() -> None:
    cluster = _cluster()
    name = queue_state_topic(_topic(cluster).id)
    assert is_internal_topic(name)
    assert looks_internal(name.replace("_", "."))
    assert topic_of_queue_state(name) == _topic(cluster).id
    assert topic_of_queue_state("__queue_state-x") is None
    assert topic_of_queue_state("t") is None


def test_a_move_of_the_data_takes_the_companion_along() -> None:
    cluster = ControlledCluster({1: "a", 2: "b", 3: "c", 4: "d"})
    cluster.make_topic("t", [(1, 2)], {"min.insync.replicas": "1"})
    _subscribe(cluster, "t")
    cluster.settle()
    wish = (TopicPartition("t", 0), (3, 4))
    decision = decide_wish(wish, cluster.image, cluster.states)
    for plan in plan_partitions([decision] if decision is not None else [], cluster.image):
        assert cluster.offer(plan.commit)
    for _ in range(10):
        cluster.round()
        cluster.catch_up()
    ((data, state),) = _pairs(cluster)
    assert data.replicas == state.replicas == (BrokerId(3), BrokerId(4))
    assert data.leader == state.leader
