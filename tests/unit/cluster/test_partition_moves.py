"""Emptying and removing brokers, balancing, and changing the replication factor."""

from collections import Counter

import pytest

from martlet.base.errors import ApiError, ErrorCode
from martlet.base.ids import BrokerId, TopicPartition
from martlet.cluster.image import MetadataImage
from martlet.cluster.liveness import read_states
from martlet.cluster.partition_moves import (
    MOVES_MAX,
    decide_balance,
    decide_drains,
    decide_replication_factor,
    held_by,
    plan_drain,
    plan_drain_end,
    plan_removal,
)
from martlet.cluster.partition_plans import Decision, plan_partitions
from martlet.cluster.reassignment import decide_wish, is_moving
from tests.unit.cluster.controlled_cluster import ControlledCluster

_ONE = BrokerId(1)


def _drain(cluster: ControlledCluster, broker: int) -> None:
    plan = plan_drain(BrokerId(broker), cluster.image, cluster.states, now_ms=5)
    assert plan is not None
    cluster.commit(plan)


def _work(cluster: ControlledCluster, moves_max: int = MOVES_MAX, imbalance_percent: int = 10) -> None:
    for _ in range(60):
        if not len(cluster.round(moves_max=moves_max, imbalance_percent=imbalance_percent)) + cluster.catch_up():
            return
    raise AssertionError("the moves do not end")


def _moving(cluster: ControlledCluster) -> int:
    return sum(is_moving(partition) for _, partition in cluster.partitions())


def test_a_drained_broker_gives_all_it_holds_to_the_others_and_is_removed() -> None:
    cluster = ControlledCluster({1: "a", 2: "a", 3: "b", 4: "b"})
    cluster.place_topic("t", 8, 2)
    _drain(cluster, 1)
    assert plan_drain(_ONE, cluster.image, cluster.states, now_ms=6) is None, "it is marked already"
    with pytest.raises(ApiError, match="still holds 4 partitions"):
        plan_removal(_ONE, cluster.image)
    _work(cluster)
    assert held_by(cluster.image, _ONE) == []
    held = Counter(broker for _, partition in cluster.partitions() for broker in partition.replicas)
    assert held == {2: 8, 3: 4, 4: 4}, "one replica of each stays in each rack"
    with pytest.raises(ApiError, match="running"):
        plan_removal(_ONE, cluster.image)
    cluster.stop(1)
    cluster.commit(plan_removal(_ONE, cluster.image))
    assert [record.id for record in cluster.image.brokers()] == [2, 3, 4]
    assert cluster.image.drain(_ONE) is None


def test_cls_21_no_more_partitions_move_at_a_time_than_asked_for() -> None:
    cluster = ControlledCluster(dict.fromkeys(range(1, 5)))
    cluster.place_topic("t", 12, 2)
    _drain(cluster, 1)
    cluster.round(moves_max=2)
    assert _moving(cluster) == 2
    cluster.round(moves_max=2)
    assert _moving(cluster) == 2
    _work(cluster, moves_max=2)
    assert held_by(cluster.image, _ONE) == []


def test_cls_22_a_drain_that_cannot_end_is_refused() -> None:
    cluster = ControlledCluster({1: None, 2: None, 3: None})
    cluster.place_topic("t", 2, 3)
    with pytest.raises(ApiError, match="only 2 other brokers") as caught:
        plan_drain(_ONE, cluster.image, cluster.states, now_ms=5)
    assert caught.value.code is ErrorCode.INVALID_REPLICATION_FACTOR
    with pytest.raises(ApiError, match="no broker 7"):
        plan_drain(BrokerId(7), cluster.image, cluster.states, now_ms=5)


def test_a_drain_waits_for_brokers_that_are_down() -> None:
    cluster = ControlledCluster({1: None, 2: None, 3: None})
    cluster.place_topic("t", 3, 2)
    _drain(cluster, 1)
    cluster.stop(3)
    _work(cluster)
    assert held_by(cluster.image, _ONE) != []
    assert decide_drains(cluster.image, cluster.states, moves_max=9) == []
    cluster.start(3, clean=True)
    _work(cluster)
    assert held_by(cluster.image, _ONE) == []


def test_a_dead_broker_can_be_drained_and_removed() -> None:
    cluster = ControlledCluster({1: None, 2: None, 3: None})
    cluster.place_topic("t", 6, 2)
    cluster.stop(1)
    _drain(cluster, 1)
    _work(cluster)
    cluster.commit(plan_removal(_ONE, cluster.image))
    assert cluster.image.broker(_ONE) is None


def test_two_brokers_are_drained_at_once() -> None:
    cluster = ControlledCluster(dict.fromkeys(range(1, 6)))
    cluster.place_topic("t", 10, 2)
    _drain(cluster, 1)
    _drain(cluster, 2)
    _work(cluster)
    assert held_by(cluster.image, _ONE) == held_by(cluster.image, BrokerId(2)) == []


def test_a_drain_is_ended_by_taking_the_mark_away() -> None:
    cluster = ControlledCluster({1: None, 2: None})
    assert plan_drain_end(_ONE, cluster.image) is None
    _drain(cluster, 1)
    plan = plan_drain_end(_ONE, cluster.image)
    assert plan is not None
    cluster.commit(plan)
    assert cluster.states.draining == frozenset()


def test_cls_20_a_broker_is_not_removed_undrained_nor_when_it_came_back() -> None:
    cluster = ControlledCluster({1: None, 2: None})
    cluster.stop(1)
    with pytest.raises(ApiError, match="not drained"):
        plan_removal(_ONE, cluster.image)
    with pytest.raises(ApiError, match="no broker 7"):
        plan_removal(BrokerId(7), cluster.image)
    _drain(cluster, 1)
    plan = plan_removal(_ONE, cluster.image)
    cluster.start(1)
    assert not cluster.offer(plan)


def test_a_broker_that_was_added_gets_its_share() -> None:
    cluster = ControlledCluster({1: None, 2: None, 3: None})
    cluster.place_topic("t", 12, 2)
    assert decide_balance(cluster.image, cluster.states) == []
    cluster.racks[4] = None
    cluster.start(4)
    decisions = decide_balance(cluster.image, cluster.states, moves_max=100)
    assert sum(is_moving(decision.after) for decision in decisions) == 6
    for plan in plan_partitions(decisions, cluster.image):
        assert cluster.offer(plan.commit)
    assert decide_balance(cluster.image, cluster.states, moves_max=100) == [], "what is on its way counts"
    _work(cluster, imbalance_percent=0)
    assert Counter(broker for _, one in cluster.partitions() for broker in one.replicas) == {1: 6, 2: 6, 3: 6, 4: 6}
    assert Counter(partition.leader for _, partition in cluster.partitions()) == {1: 3, 2: 3, 3: 3, 4: 3}


def test_a_replication_factor_that_cannot_be_is_refused() -> None:
    cluster = ControlledCluster({1: None, 2: None, 3: None})
    cluster.place_topic("t", 2, 2)
    topic = cluster.image.topic("t")
    assert topic is not None

    def refusal(factor: int) -> ErrorCode:
        with pytest.raises(ApiError) as caught:
            decide_replication_factor(topic, factor, cluster.image, cluster.states)
        return caught.value.code

    assert refusal(0) is ErrorCode.INVALID_REPLICATION_FACTOR
    assert refusal(4) is ErrorCode.INVALID_REPLICATION_FACTOR
    for plan in plan_partitions(decide_replication_factor(topic, 3, cluster.image, cluster.states), cluster.image):
        cluster.commit(plan.commit)
    assert refusal(2) is ErrorCode.REASSIGNMENT_IN_PROGRESS


def test_cls_20_a_move_decided_before_a_broker_was_drained_does_not_bring_it_back_into_use() -> None:
    cluster = ControlledCluster({1: None, 2: None, 3: None})
    cluster.make_topic("t", [[1]])
    cluster.stop(3)
    old = cluster.snapshot()
    (late,) = plan_partitions([_wish(old, 3)], old)
    plan = plan_drain(BrokerId(3), cluster.image, cluster.states, now_ms=0)
    assert plan is not None
    cluster.commit(plan)
    removal = plan_removal(BrokerId(3), cluster.image)
    assert not cluster.offer(late.commit)
    assert cluster.offer(removal)


def _wish(image: MetadataImage, *replicas: int) -> Decision:
    decision = decide_wish((TopicPartition("t", 0), replicas), image, read_states(image))
    assert decision is not None
    return decision
