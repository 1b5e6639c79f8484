"""Moving a partition: starting, ending, replacing, cancelling and listing moves, and what is refused."""

from collections.abc import Sequence

import pytest

from martlet.base.errors import ApiError, ErrorCode
from martlet.base.ids import BrokerId, TopicPartition
from martlet.cluster.partition_plans import plan_partitions
from martlet.cluster.reassignment import (
    Reassignment,
    decide_wish,
    earlier_replicas,
    is_moving,
    list_reassignments,
    plan_topic_factor,
    wished_replicas,
)
from martlet.cluster.records import DrainRecord, encode_record
from martlet.cluster.store import CommitPlan
from tests.unit.cluster.controlled_cluster import ControlledCluster

_WHERE = TopicPartition("t", 0)


def _cluster(*replicas: int, minimum: int = 2) -> ControlledCluster:
    cluster = ControlledCluster(dict.fromkeys(range(1, 6)))
    cluster.make_topic("t", [replicas], {"min.insync.replicas": str(minimum)})
    return cluster


def _wish(cluster: ControlledCluster, replicas: Sequence[int] | None, *, factor_may_change: bool = True) -> bool:
    """Whether there was anything to do; it is done."""
    decision = decide_wish((_WHERE, replicas), cluster.image, cluster.states, factor_may_change=factor_may_change)
    if decision is None:
        return False
    (plan,) = plan_partitions([decision], cluster.image)
    assert cluster.offer(plan.commit)
    return True


def _refusal(
    cluster: ControlledCluster, replicas: Sequence[int] | None, *, factor_may_change: bool = True
) -> ErrorCode:
    with pytest.raises(ApiError) as caught:
        _wish(cluster, replicas, factor_may_change=factor_may_change)
    return caught.value.code


def test_a_move_adds_first_and_removes_when_all_added_are_in_sync() -> None:
    cluster = _cluster(1, 2, 3)
    assert _wish(cluster, [4, 5, 3])
    partition = cluster.partition()
    assert partition.replicas == (4, 5, 3, 1, 2)
    assert (partition.adding, partition.removing) == ((4, 5), (1, 2))
    assert (wished_replicas(partition), earlier_replicas(partition)) == ((4, 5, 3), (3, 1, 2))
    assert (partition.leader, partition.leader_epoch) == (1, 0)
    assert cluster.round() == [], "none was added yet in sync"
    shown = Reassignment("t", 0, partition.replicas, partition.adding, partition.removing)
    assert list(list_reassignments(cluster.image)) == [shown]
    cluster.catch_up()
    cluster.settle()
    partition = cluster.partition()
    assert (partition.replicas, partition.isr_ids()) == ((4, 5, 3), [4, 5, 3])
    assert not is_moving(partition)
    assert (partition.leader, partition.leader_epoch) == (4, 1)
    assert list(list_reassignments(cluster.image)) == []


def test_the_leader_stays_in_its_epoch_when_it_is_not_removed() -> None:
    cluster = _cluster(1, 2)
    _wish(cluster, [1, 3])
    cluster.catch_up()
    cluster.settle()
    partition = cluster.partition()
    assert (partition.replicas, partition.leader, partition.leader_epoch) == ((1, 3), 1, 0)


def test_cls_31_a_move_waits_while_too_few_would_remain_in_sync() -> None:
    cluster = _cluster(1, 2, 3)
    cluster.stop(1)
    cluster.settle()
    _wish(cluster, [1, 4])
    cluster.catch_up()
    assert set(cluster.partition().isr_ids()) == {2, 3, 4}
    assert cluster.round() == [], "4 alone would be below the minimum"
    cluster.start(1)
    cluster.catch_up()
    cluster.settle()
    assert (cluster.partition().replicas, set(cluster.partition().isr_ids())) == ((1, 4), {1, 4})


def test_another_order_takes_effect_at_once() -> None:
    cluster = _cluster(1, 2, 3)
    assert _wish(cluster, [3, 2, 1])
    assert cluster.partition().replicas == (3, 2, 1)
    assert not is_moving(cluster.partition())
    assert not _wish(cluster, [3, 2, 1]), "it is so already"
    cluster.settle()
    assert cluster.partition().leader == 3


def test_more_and_fewer_replicas_are_moves_too_unless_the_request_forbids_it() -> None:
    cluster = _cluster(1, 2)
    assert _refusal(cluster, [1, 2, 3], factor_may_change=False) is ErrorCode.INVALID_REPLICATION_FACTOR
    assert _wish(cluster, [1, 2, 3])
    cluster.catch_up()
    cluster.settle()
    topic = cluster.image.topic("t")
    assert topic is not None
    assert (cluster.partition().replicas, topic.replication_factor) == ((1, 2, 3), 3)
    assert _wish(cluster, [2])
    cluster.settle()
    partition = cluster.partition()
    assert (partition.replicas, partition.isr_ids(), partition.leader) == ((2,), [2], 2)
    topic = cluster.image.topic("t")
    assert topic is not None
    assert plan_topic_factor(topic, [partition]) is None, "it is noted"


@pytest.mark.parametrize("replicas", [[], [1, 1], [1, 9], [1, -1]])
def test_replicas_that_cannot_be_are_refused(replicas: list[int]) -> None:
    assert _refusal(_cluster(1, 2), replicas) is ErrorCode.INVALID_REPLICA_ASSIGNMENT


def test_a_draining_broker_takes_no_more_replicas_but_may_keep_those_it_has() -> None:
    cluster = _cluster(1, 2)
    for broker in (2, 3):
        cluster.commit(CommitPlan(puts={f"drain/{broker}": encode_record(DrainRecord(BrokerId(broker)))}))
    assert _refusal(cluster, [1, 3]) is ErrorCode.INVALID_REPLICA_ASSIGNMENT
    assert _wish(cluster, [2, 1])


def test_what_does_not_exist_cannot_be_moved() -> None:
    cluster = _cluster(1, 2)
    for where in (TopicPartition("t", 1), TopicPartition("u", 0)):
        with pytest.raises(ApiError) as caught:
            decide_wish((where, [1]), cluster.image, cluster.states)
        assert caught.value.code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def test_cls_32_a_cancelled_move_leaves_the_earlier_replicas() -> None:
    cluster = _cluster(1, 2, 3)
    assert _refusal(cluster, None) is ErrorCode.NO_REASSIGNMENT_IN_PROGRESS
    _wish(cluster, [4, 5, 1])
    cluster.catch_up([_WHERE])
    assert _wish(cluster, None)
    partition = cluster.partition()
    assert (sorted(partition.replicas), sorted(partition.isr_ids())) == ([1, 2, 3], [1, 2, 3])
    assert (partition.leader, partition.leader_epoch, is_moving(partition)) == (1, 0, False)


def test_cancelling_elects_when_an_added_replica_leads() -> None:
    cluster = _cluster(1, 2, minimum=1)
    _wish(cluster, [4, 5])
    cluster.catch_up()
    for broker in (1, 2):
        cluster.show(broker, leaving=True)
    cluster.round()
    assert cluster.partition().leader in (4, 5)


def test_a_move_is_not_cancelled_when_only_added_replicas_are_complete() -> None:
    cluster = _cluster(1, minimum=1)
    _wish(cluster, [4, 1])
    cluster.catch_up()
    _wish(cluster, [4, 5])
    cluster.stop(1)
    cluster.settle()
    assert cluster.partition().leader == 4
    assert _refusal(cluster, None) is ErrorCode.INVALID_REPLICA_ASSIGNMENT
    assert _refusal(cluster, [5, 1]) is ErrorCode.INVALID_REPLICA_ASSIGNMENT


def test_a_move_replaced_by_another_keeps_what_was_copied() -> None:
    cluster = _cluster(1, 2)
    _wish(cluster, [3, 4])
    cluster.catch_up()
    assert _wish(cluster, [3, 5])
    partition = cluster.partition()
    assert partition.replicas == (3, 5, 1, 2)
    assert (partition.adding, partition.removing) == ((3, 5), (1, 2))
    assert partition.isr_ids() == [3, 1, 2]
    cluster.catch_up()
    cluster.settle()
    assert cluster.partition().replicas == (3, 5)


def test_a_move_goes_on_after_its_leader_died() -> None:
    cluster = _cluster(1, 2, 3)
    _wish(cluster, [4, 5, 3])
    cluster.stop(1)
    for _ in range(5):
        cluster.round()
        cluster.catch_up()
    cluster.settle()
    assert (cluster.partition().replicas, cluster.partition().leader) == ((4, 5, 3), 4)


def test_a_move_is_not_begun_with_a_broker_that_was_removed_meanwhile() -> None:
    cluster = _cluster(1, 2)
    decision = decide_wish((_WHERE, [1, 5]), cluster.image, cluster.states)
    assert decision is not None
    (plan,) = plan_partitions([decision], cluster.image)
    cluster.commit(CommitPlan(deletes=("broker/5", "live/5")))
    assert not cluster.offer(plan.commit)


def test_moves_are_listed_for_those_asked_for() -> None:
    cluster = _cluster(1, 2)
    cluster.make_topic("u", [(1, 2), (2, 1)])
    _wish(cluster, [3, 4])
    assert [each.topic for each in list_reassignments(cluster.image, {"t": [0], "x": [0]})] == ["t"]
    assert list(list_reassignments(cluster.image, {"t": [1], "u": [0, 1]})) == []
