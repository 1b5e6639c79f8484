"""Where new topics go in a cluster whose brokers come, go, leave and are drained."""

from collections import Counter
from typing import Any

import pytest

from martlet.base.errors import ApiError, ErrorCode
from martlet.base.ids import BrokerId
from martlet.cluster.keys import broker_key, drain_key, live_key
from martlet.cluster.partition_moves import plan_drain
from martlet.cluster.store import COMMIT_OPERATIONS_MAX, CommitPlan
from martlet.cluster.topic_decisions import (
    TopicDefaults,
    TopicDesign,
    TopicWish,
    design_growth,
    design_topic,
    plan_growth,
    plan_large_topic_rest,
    plan_topic,
)
from martlet.cluster.topic_placement import SITES_MAX, choose_layout
from tests.unit.cluster.controlled_cluster import ControlledCluster
from tests.unit.cluster.images import topic_id


def _design(cluster: ControlledCluster, name: str = "t", **wishes: Any) -> TopicDesign:
    number = topic_id(len(cluster.image.topics()) + 1)
    return design_topic(TopicWish(name=name, **wishes), cluster.image, TopicDefaults(), topic_id=number, now_ms=0)


def _replicas(design: TopicDesign) -> list[tuple[BrokerId, ...]]:
    return [partition.replicas for partition in design.partitions]


def _drain(cluster: ControlledCluster, broker: int) -> None:
    plan = plan_drain(BrokerId(broker), cluster.image, cluster.states, now_ms=0)
    assert plan is not None
    cluster.commit(plan)


def _refused(cluster: ControlledCluster, code: ErrorCode, sentence: str, **wishes: Any) -> None:
    with pytest.raises(ApiError, match=sentence) as caught:
        _design(cluster, **wishes)
    assert caught.value.code is code


def test_replicas_of_a_partition_lie_in_different_racks() -> None:
    racks = {1: "a", 2: "a", 3: "b", 4: "b", 5: "c", 6: "c"}
    design = _design(ControlledCluster(dict(racks)), partition_count=12, replication_factor=3)
    assert all({racks[broker] for broker in replicas} == {"a", "b", "c"} for replicas in _replicas(design))
    assert set(Counter(partition.leader for partition in design.partitions).values()) == {2}


def test_a_broker_that_is_drained_leaving_or_gone_gets_nothing_new() -> None:
    cluster = ControlledCluster(dict.fromkeys(range(1, 6)))
    _drain(cluster, 1)
    cluster.show(2, leaving=True)
    cluster.stop(3)
    design = _design(cluster, partition_count=10, replication_factor=2)
    assert {broker for replicas in _replicas(design) for broker in replicas} == {4, 5}


def test_cls_45_a_commit_fails_when_a_chosen_broker_has_changed_since() -> None:
    def changed(change: str) -> bool:
        cluster = ControlledCluster({1: None, 2: None, 3: None})
        plan = plan_topic(_design(cluster, partition_count=3, replication_factor=2))
        match change:
            case "stopped":
                cluster.stop(2)
            case "restarted":
                cluster.start(2)
            case "leaving":
                cluster.show(2, leaving=True)
            case "drained":
                _drain(cluster, 2)
            case "joined":
                cluster.racks[4] = None
                cluster.start(4)
        return cluster.offer(plan)

    assert not any(map(changed, ("stopped", "restarted", "leaving", "drained")))
    assert changed("joined")


def test_cls_45_every_commit_of_a_large_topic_and_of_growth_compares_the_brokers() -> None:
    cluster = ControlledCluster({1: None, 2: None})
    wanted = {key(BrokerId(broker)) for broker in (1, 2) for key in (broker_key, live_key, drain_key)}
    large = _design(cluster, partition_count=250, replication_factor=2)
    plans = [*plan_large_topic_rest(large, 1)]
    cluster.make_topic("t", [[1, 2]])
    topic = cluster.image.topic("t")
    assert topic is not None
    plans += plan_growth(design_growth(topic, cluster.image, TopicDefaults(), partition_count=150))
    assert len(plans) == 6
    assert all(wanted <= plan.compares.keys() for plan in plans)


def test_brokers_that_are_away_fill_up_and_are_not_in_sync() -> None:
    cluster = ControlledCluster({1: None, 2: None, 3: None})
    cluster.stop(2)
    cluster.commit(plan_topic(_design(cluster, partition_count=4, replication_factor=3)))
    for partition in cluster.image.partitions("t"):
        assert set(partition.replicas) == {1, 2, 3}
        assert partition.replicas[-1] == 2
        assert set(partition.isr_ids()) == {1, 3}
        assert partition.leader in (1, 3)
    cluster.start(2)
    cluster.catch_up()
    assert all(len(partition.isr) == 3 for partition in cluster.image.partitions("t"))


@pytest.mark.parametrize(("min_in_sync", "eligible"), [(1, []), (2, [2, 3]), (3, [2, 3])])
def test_where_fewer_are_in_sync_than_must_be_a_new_partition_can_be_led_by_those_away(
    min_in_sync: int, eligible: list[int]
) -> None:
    cluster = ControlledCluster({1: None, 2: None, 3: None})
    cluster.stop(2)
    cluster.stop(3)
    configs = {"min.insync.replicas": str(min_in_sync)}
    cluster.commit(plan_topic(_design(cluster, configs=configs, partition_count=2, replication_factor=3)))
    topic = cluster.image.topic("t")
    assert topic is not None
    *_, growth = plan_growth(design_growth(topic, cluster.image, TopicDefaults(), partition_count=4))
    cluster.commit(growth)
    for partition in cluster.image.partitions("t"):
        assert partition.isr_ids() == [1]
        assert sorted(member.broker for member in partition.elr) == eligible
    cluster.stop(1)
    cluster.start(1)  # with an empty disk
    cluster.start(2, clean=True)
    cluster.settle()
    leaders = {partition.leader for partition in cluster.image.partitions("t")}
    assert leaders == ({2} if eligible else {None})


def test_more_replicas_than_registered_brokers_is_refused_naming_the_drained_ones() -> None:
    cluster = ControlledCluster({1: None, 2: None, 3: None})
    _refused(cluster, ErrorCode.INVALID_REPLICATION_FACTOR, "there are 3 brokers$", replication_factor=4)
    _drain(cluster, 3)
    _refused(cluster, ErrorCode.INVALID_REPLICATION_FACTOR, "2 brokers besides 1 being drained", replication_factor=3)


def test_a_cluster_whose_only_broker_is_leaving_makes_no_topic() -> None:
    cluster = ControlledCluster({1: None})
    cluster.show(1, leaving=True)
    _refused(cluster, ErrorCode.INVALID_REPLICATION_FACTOR, "about to stop")


def test_an_internal_topic_makes_do_with_the_brokers_there_are_and_others_do_not() -> None:
    cluster = ControlledCluster({1: None, 2: None})
    design = _design(cluster, "__consumer_offsets", by_broker=True, replication_factor=3, partition_count=50)
    assert design.record.replication_factor == 2
    _refused(cluster, ErrorCode.INVALID_REPLICATION_FACTOR, "2 brokers", replication_factor=3)


def test_an_assignment_may_name_a_broker_that_is_away_but_not_only_such() -> None:
    cluster = ControlledCluster({1: None, 2: None, 3: None})
    cluster.stop(2)
    made = _design(cluster, assignments={0: [2, 1]})
    assert (made.partitions[0].leader, made.partitions[0].isr_ids()) == (1, [1])
    code = ErrorCode.INVALID_REPLICA_ASSIGNMENT
    _refused(cluster, code, "none of the brokers", assignments={0: [1, 3], 1: [2]} | {0: [1]})
    _drain(cluster, 3)
    _refused(cluster, code, "broker 3 is being drained", assignments={0: [1, 3]})


def test_growth_evens_out_what_the_topic_has() -> None:
    cluster = ControlledCluster({1: None, 2: None, 3: None})
    cluster.make_topic("t", [[1, 2], [1, 2]])
    topic = cluster.image.topic("t")
    assert topic is not None
    design = design_growth(topic, cluster.image, TopicDefaults(), partition_count=6)
    held = Counter(broker for replicas in [(1, 2), (1, 2), *_replicas(design)] for broker in replicas)
    assert set(held.values()) == {4}


def test_thousands_of_partitions_are_as_even_as_few() -> None:
    cluster = ControlledCluster({1: "a", 2: "b", 3: "c", 4: "a", 5: "b", 6: "c"})
    layout = choose_layout(cluster.image, count=6_000, factor=3, start=5)
    assert set(Counter(broker for replicas in layout.placed for broker in replicas).values()) == {3_000}
    leaders = Counter(replicas[0] for replicas in layout.placed)
    assert max(leaders.values()) - min(leaders.values()) <= 6_000 // 400 + 1


def test_cls_47_a_topic_in_a_very_large_cluster_takes_the_emptiest_brokers_of_all_racks() -> None:
    cluster = ControlledCluster({broker: f"rack-{broker % 3}" for broker in range(1, 61)})
    cluster.make_topic("heavy", [[broker] for broker in range(1, 21)])
    layout = choose_layout(cluster.image, count=300, factor=3, start=0)
    used = {broker for replicas in layout.placed for broker in replicas}
    assert used == set(range(21, 61))
    assert len(layout.guards) == 3 * SITES_MAX < COMMIT_OPERATIONS_MAX
    assert all(len({broker % 3 for broker in replicas}) == 3 for replicas in layout.placed)


def test_cls_47_an_assignment_to_too_many_brokers_is_refused() -> None:
    cluster = ControlledCluster(dict.fromkeys(range(1, SITES_MAX + 2)))
    assignments = {index: [index + 1] for index in range(SITES_MAX + 1)}
    _refused(cluster, ErrorCode.INVALID_REPLICA_ASSIGNMENT, "at most 40 brokers", assignments=assignments)


def test_when_no_broker_has_shown_itself_all_registered_brokers_count() -> None:
    cluster = ControlledCluster({1: None, 2: None})
    for broker in (1, 2):
        cluster.commit(CommitPlan(deletes=(live_key(BrokerId(broker)),)))
    design = _design(cluster, replication_factor=2)
    assert len(design.partitions[0].isr) == 2
