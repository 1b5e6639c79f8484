"""What a round of the controller does first, and what it leaves for later."""

from dataclasses import replace

from martlet.base.ids import BrokerId, LeaderEpoch, TopicPartition
from martlet.cluster.controller_round import RoundOptions, asks_for_round, decide_round, plan_round
from martlet.cluster.image import ImageDelta, PartitionChange
from martlet.cluster.partition_plans import plan_partitions
from martlet.cluster.reassignment import decide_wish
from martlet.cluster.records import LogEnd
from martlet.cluster.store import CommitPlan
from tests.unit.cluster.controlled_cluster import ControlledCluster


def _cluster() -> ControlledCluster:
    cluster = ControlledCluster(dict.fromkeys(range(1, 5)))
    cluster.make_topic("t", [(1, 2, 3), (2, 3, 1), (3, 1, 2)])
    return cluster


def test_nothing_is_planned_when_nothing_is_to_be_done() -> None:
    cluster = _cluster()
    assert list(plan_round(cluster.image, cluster.states)) == []


def test_partitions_without_a_leader_come_first() -> None:
    cluster = _cluster()
    cluster.stop(2)
    decisions = decide_round(cluster.image, cluster.states)
    assert [decision.partition for decision in decisions] == [
        TopicPartition("t", 1),
        TopicPartition("t", 0),
        TopicPartition("t", 2),
    ]
    assert decisions[0].is_election


def test_leaders_are_brought_back_only_in_a_quiet_round_and_only_if_wanted() -> None:
    cluster = _cluster()
    cluster.stop(1)
    cluster.settle()
    cluster.start(1)
    cluster.catch_up()
    cluster.stop(3)
    busy = {decision.partition.partition: decision for decision in decide_round(cluster.image, cluster.states)}
    assert (busy[0].is_election, busy[0].after.leader) == (False, 2)
    cluster.round()
    assert decide_round(cluster.image, cluster.states, options=RoundOptions(imbalance_percent=None)) == []
    (decision,) = decide_round(cluster.image, cluster.states)
    assert decision.after.leader == 1


def test_cls_14_a_partition_that_fails_and_moves_is_changed_once() -> None:
    cluster = _cluster()
    wish = decide_wish((TopicPartition("t", 0), [1, 4]), cluster.image, cluster.states)
    assert wish is not None
    for plan in plan_partitions([wish], cluster.image):
        cluster.commit(plan.commit)
    cluster.catch_up()
    cluster.stop(2)
    decisions = decide_round(cluster.image, cluster.states)
    assert len({decision.partition for decision in decisions}) == len(decisions) == 3
    cluster.settle()
    assert cluster.partition().replicas == (BrokerId(1), BrokerId(4))


def test_a_round_is_asked_for_by_brokers_and_leaders_but_not_by_every_in_sync_set() -> None:
    cluster = _cluster()
    before = cluster.partition()
    assert not asks_for_round(ImageDelta(1))
    gone = CommitPlan(deletes=("live/2",))
    assert asks_for_round(cluster.commit(gone))
    (plan, *_) = plan_round(cluster.image, cluster.states)
    assert asks_for_round(cluster.commit(plan.commit)), "a leader has changed"
    after = cluster.partition()
    assert before.isr != after.isr
    assert not asks_for_round(ImageDelta(1, partitions=(PartitionChange("t", before, after),)))
    moving = replace(after, adding=(BrokerId(3),))
    assert asks_for_round(ImageDelta(1, partitions=(PartitionChange("t", after, moving),)))
    assert not asks_for_round(ImageDelta(1, partitions=(PartitionChange("t", moving, None),)))
    offline = replace(after, leader=None)
    assert asks_for_round(ImageDelta(1, partitions=(PartitionChange("t", after, offline),)))
    reported = replace(offline, log_ends=(LogEnd(BrokerId(2), after.isr[0].incarnation, LeaderEpoch(1), 7),))
    assert not asks_for_round(ImageDelta(1, partitions=(PartitionChange("t", offline, reported),))), "only log ends"
