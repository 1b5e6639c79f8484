"""Who leads when brokers fail, return and leave, and what the commits of these decisions compare."""

from dataclasses import replace

import pytest

from martlet.base.errors import ApiError, ErrorCode, InvariantViolation
from martlet.base.ids import BrokerId, Incarnation, LeaderEpoch, Member
from martlet.cluster.controller_decisions import (
    TopicRules,
    decide_all,
    decide_partition,
    decide_preferred,
    decide_requested_election,
    departure_is_done,
    plan_in_sync_change,
    stuck_partitions,
    topic_rules,
)
from martlet.cluster.keys import broker_key, live_key, partition_key, topic_key
from martlet.cluster.partition_plans import Decision, plan_partitions
from martlet.cluster.store import COMMIT_OPERATIONS_MAX, CommitPlan
from tests.unit.cluster.controlled_cluster import ControlledCluster

_ONE, _TWO, _THREE = (BrokerId(number) for number in (1, 2, 3))
_RULES = TopicRules(min_in_sync=2)


def _cluster(partitions: int = 1, **configs: str) -> ControlledCluster:
    cluster = ControlledCluster({1: "a", 2: "b", 3: "c"})
    settings = {name.replace("_", "."): value for name, value in configs.items()}
    cluster.make_topic("t", [(1, 2, 3)] * partitions, {"min.insync.replicas": "2", **settings})
    return cluster


def _member(cluster: ControlledCluster, broker: int) -> Member:
    record = cluster.image.broker(BrokerId(broker))
    assert record is not None
    return Member(record.id, record.incarnation)


# --- elections


def test_a_dead_leader_is_replaced_and_leaves_the_in_sync_set() -> None:
    cluster = _cluster()
    cluster.stop(1)
    assert cluster.settle() == 1
    partition = cluster.partition()
    assert (partition.leader, partition.leader_epoch, partition.isr_ids()) == (2, 1, [2, 3])
    assert partition.elr == ()


def test_a_restarted_leader_does_not_go_on_leading() -> None:
    cluster = _cluster()
    cluster.start(1, clean=True)
    cluster.round(imbalance_percent=None)
    partition = cluster.partition()
    assert (partition.leader, partition.leader_epoch) == (1, 1)
    assert partition.leader_incarnation == _member(cluster, 1).incarnation


def test_a_dead_follower_leaves_the_in_sync_set_without_an_election() -> None:
    cluster = _cluster()
    cluster.stop(3)
    cluster.round()
    partition = cluster.partition()
    assert (partition.leader, partition.leader_epoch, partition.isr_ids(), partition.elr) == (1, 0, [1, 2], ())
    cluster.stop(2)
    cluster.round()
    partition = cluster.partition()
    assert (partition.isr_ids(), partition.elr) == ([1], (_member(cluster, 2),))


def test_a_follower_that_restarted_without_proof_leaves_and_one_with_proof_stays() -> None:
    cluster = _cluster()
    before = cluster.partition()
    cluster.start(2, clean=True)
    assert cluster.settle() == 0, "its leader will replace the entry when it has caught up"
    cluster.start(3, clean=False)
    cluster.settle()
    assert cluster.partition().isr == before.isr[:2]


def test_leaders_come_back_when_a_candidate_returns() -> None:
    cluster = _cluster()
    for broker in (1, 2, 3):
        cluster.stop(broker)
    cluster.settle()
    assert cluster.partition().leader is None
    epoch = cluster.partition().leader_epoch
    cluster.start(3, clean=True)
    cluster.settle()
    assert (cluster.partition().leader, cluster.partition().leader_epoch) == (3, epoch + 1)


def test_an_eligible_replica_leads_when_none_in_sync_is_left() -> None:
    cluster = _cluster()
    cluster.stop(1)
    cluster.stop(2)
    cluster.settle()
    assert [member.broker for member in cluster.partition().elr] == [1, 2]
    cluster.stop(3)
    cluster.start(2, clean=True)
    cluster.settle()
    assert (cluster.partition().leader, cluster.partition().isr_ids()) == (2, [2])


def test_cls_11_no_incomplete_replica_leads_unless_the_topic_says_so() -> None:
    cluster = _cluster()
    for broker in (1, 2, 3):
        cluster.start(broker, clean=False)
    cluster.settle()
    assert cluster.partition().leader is None
    reckless = _cluster(unclean_leader_election_enable="true")
    for broker in (1, 2, 3):
        reckless.start(broker, clean=False)
    (decision,) = decide_all(reckless.image, reckless.states)
    assert decision.is_unclean
    (plan,) = plan_partitions([decision], reckless.image)
    assert plan.unclean == [decision]
    assert topic_key("t") in plan.commit.compares, "the topic must still allow it"
    assert {live_key(broker) for broker in (_ONE, _TWO, _THREE)} <= set(plan.commit.compares)


def test_cls_11_no_unclean_election_while_a_complete_replica_may_return() -> None:
    cluster = _cluster(unclean_leader_election_enable="true")
    cluster.stop(1)
    cluster.stop(2)
    cluster.start(3, clean=False)
    waiting = cluster.states.holding_back(())
    partition = replace(cluster.partition(), leader=None)
    assert decide_partition("t", partition, waiting, TopicRules(2, unclean_allowed=True)) is None
    decision = decide_partition("t", partition, cluster.states, TopicRules(2, unclean_allowed=True))
    assert decision is not None
    assert (decision.after.leader, decision.is_unclean) == (3, True)


def test_a_single_replica_goes_on_with_whatever_it_has_and_that_is_marked() -> None:
    cluster = ControlledCluster({1: None, 2: None})
    cluster.make_topic("t", [(1,)])
    cluster.start(1)
    (decision,) = decide_all(cluster.image, cluster.states)
    assert (decision.after.leader, decision.is_unclean) == (1, True)
    cluster.settle()
    assert cluster.partition().leader == 1


def _last_one_in_sync() -> ControlledCluster:
    """Three replicas of which one is enough; 2 and 3 went away and are back, not in sync yet, and then 1 goes."""
    cluster = _cluster(min_insync_replicas="1")
    for follower in (2, 3):
        cluster.stop(follower)
        cluster.settle()
        cluster.start(follower, clean=True)
        cluster.settle()
    assert (cluster.partition().isr_ids(), cluster.partition().elr) == ([1], ())
    cluster.stop(1)
    cluster.settle()
    assert cluster.partition().leader is None
    return cluster


def test_cls_11_the_last_one_in_sync_is_not_elected_with_an_empty_disk() -> None:
    cluster = _last_one_in_sync()
    assert not list(stuck_partitions(cluster.image, cluster.states)), "it may still return with everything"
    cluster.start(1)
    cluster.settle()
    assert cluster.partition().leader is None, "what 2 and 3 hold would be cut off"
    assert [(topic, one.partition) for topic, one in stuck_partitions(cluster.image, cluster.states)] == [("t", 0)]
    cluster.start(1, clean=True)
    cluster.settle()
    assert cluster.partition().leader is None, "a clean stop later does not bring back what was lost before"


def test_cls_11_the_last_one_in_sync_leads_again_with_its_own_logs_and_that_is_marked() -> None:
    cluster = _last_one_in_sync()
    cluster.start(1, same_logs=True)
    assert not list(stuck_partitions(cluster.image, cluster.states))
    (decision,) = decide_all(cluster.image, cluster.states)
    assert (decision.after.leader, decision.is_unclean) == (1, True)


def test_another_replica_that_was_complete_keeps_a_lossy_holder_from_leading() -> None:
    cluster = _cluster()
    cluster.stop(3)
    cluster.settle()
    cluster.stop(2)
    cluster.settle()
    cluster.start(1, same_logs=True)
    cluster.settle()
    assert cluster.partition().leader is None, "2 is eligible and may return with everything"
    assert not list(stuck_partitions(cluster.image, cluster.states))


def test_an_operators_election_prefers_who_was_complete_last_to_an_empty_disk() -> None:
    cluster = _last_one_in_sync()
    cluster.start(1)
    decision = decide_requested_election(
        cluster.image.topic("t"), cluster.partition(), cluster.states, TopicRules(1), unclean=True
    )
    assert decision.is_unclean
    assert decision.after.leader == 3, "the last to leave the in-sync set before 1, the first replica, lost its disk"


def test_a_missing_broker_that_is_waited_for_keeps_what_it_has_and_gets_nothing() -> None:
    cluster = _cluster()
    cluster.lose_lease(1)
    cluster.lose_lease(2)
    waiting = cluster.states.holding_back(())
    assert decide_all(cluster.image, waiting) == []
    half = cluster.states.holding_back({_ONE})
    (decision,) = decide_all(cluster.image, half)
    assert decision.after.leader == 3, "2 is in sync, but who knows"


# --- what a decision's commit compares


def test_a_leader_that_has_come_back_meanwhile_is_not_deposed() -> None:
    cluster = _cluster()
    cluster.lose_lease(1)
    image = cluster.snapshot()
    cluster.show(1)
    assert cluster.round(image) == []
    assert cluster.partition().leader == 1


def test_who_has_died_meanwhile_is_not_elected() -> None:
    cluster = _cluster()
    cluster.stop(1)
    image = cluster.snapshot()
    cluster.stop(2)
    assert cluster.round(image) == []
    cluster.settle()
    assert cluster.partition().leader == 3


def test_cls_25_decisions_are_committed_in_batches_that_fit() -> None:
    cluster = ControlledCluster({1: "a", 2: "b", 3: "c"})
    for number in range(3):
        cluster.make_topic(f"t{number}", [(1, 2, 3)] * 90)
    cluster.stop(1)
    plans = list(plan_partitions(decide_all(cluster.image, cluster.states), cluster.image))
    assert [len(plan.decisions) for plan in plans] == [100, 100, 70]
    assert all(len(plan.commit.compares) <= COMMIT_OPERATIONS_MAX for plan in plans)
    halves = list(plan_partitions(plans[0].decisions, cluster.image, partitions_per_commit=50))
    assert [len(plan.decisions) for plan in halves] == [50, 50]
    assert all(cluster.offer(plan.commit) for plan in plans), "one round's plans do not stand in each other's way"


def test_cls_25_many_brokers_make_batches_smaller() -> None:
    cluster = ControlledCluster(dict.fromkeys(range(40)))
    cluster.make_topic("t", [(broker, (broker + 1) % 40) for broker in range(40)] * 2)
    for broker in range(0, 40, 2):
        cluster.stop(broker)
    plans = list(plan_partitions(decide_all(cluster.image, cluster.states), cluster.image))
    assert sum(len(plan.decisions) for plan in plans) == 80
    assert all(cluster.offer(plan.commit) for plan in plans)


def test_cls_23_cls_24_a_decision_that_breaks_the_rules_is_never_committed() -> None:
    cluster = _cluster()
    before = cluster.partition()
    for wrong in (
        replace(before, leader_epoch=LeaderEpoch(-1)),
        replace(before, leader=_TWO),
        replace(before, isr=before.isr[1:]),
        replace(before, replicas=(_ONE, _TWO)),
        replace(before, elr=(Member(BrokerId(9), Incarnation(9)),)),
    ):
        with pytest.raises(InvariantViolation, match=r"CLS-2[34]"):
            list(plan_partitions([Decision("t", before, wrong)], cluster.image))


# --- leaving


def test_a_leaving_broker_hands_over_its_leaderships_first() -> None:
    cluster = _cluster(partitions=3)
    assert departure_is_done(cluster.image, cluster.states, _TWO)
    cluster.show(1, leaving=True)
    assert not departure_is_done(cluster.image, cluster.states, _ONE)
    cluster.settle()
    assert departure_is_done(cluster.image, cluster.states, _ONE)
    assert {partition.leader for _, partition in cluster.partitions()} == {2}
    assert all(partition.isr_ids() == [2, 3] for _, partition in cluster.partitions())
    cluster.catch_up()
    assert all(partition.isr_ids() == [2, 3] for _, partition in cluster.partitions()), "it is not taken back"


def test_a_leaving_broker_that_alone_can_lead_goes_on_until_it_stops() -> None:
    cluster = ControlledCluster({1: None, 2: None})
    cluster.make_topic("t", [(1,)])
    cluster.show(1, leaving=True)
    assert cluster.settle() == 0
    assert departure_is_done(cluster.image, cluster.states, _ONE)


def test_a_leaving_follower_stays_in_sync_where_it_is_needed_for_the_minimum() -> None:
    cluster = _cluster()
    cluster.stop(3)
    cluster.settle()
    cluster.show(2, leaving=True)
    assert cluster.settle() == 0
    assert cluster.partition().isr_ids() == [1, 2]


# --- full disks


def test_a_leader_with_a_full_disk_hands_over_to_a_replica_with_space_and_stays_in_sync() -> None:
    cluster = _cluster(partitions=3)
    cluster.show(1, full=True)
    cluster.show(2, full=True)
    cluster.settle()
    for _, partition in cluster.partitions():
        assert (partition.leader, partition.leader_epoch, partition.isr_ids()) == (3, 1, [1, 2, 3])


def test_leaderships_do_not_go_back_to_a_full_disk_but_to_one_that_has_space_again() -> None:
    cluster = _cluster(partitions=3)
    cluster.show(1, full=True)
    cluster.settle()
    assert {partition.leader for _, partition in cluster.partitions()} == {2}
    topic = cluster.image.topic("t")
    with pytest.raises(ApiError, match="the disk of broker 1, the preferred leader of t-0, is full") as caught:
        decide_requested_election(topic, cluster.partition(), cluster.states, _RULES, unclean=False)
    assert caught.value.code is ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE
    cluster.show(1, full=False)
    cluster.settle()
    assert {partition.leader for _, partition in cluster.partitions()} == {1}


def test_a_full_disk_goes_on_leading_where_no_replica_in_sync_has_space() -> None:
    cluster = _cluster()
    cluster.make_topic("alone", [(1,)])
    for broker in (1, 2, 3):
        cluster.show(broker, full=True)
    assert cluster.settle() == 0
    cluster.stop(3)
    cluster.settle()
    cluster.show(2, full=True)
    cluster.start(3)
    assert cluster.settle() == 0, "who has space is not in sync"
    assert {partition.leader for _, partition in cluster.partitions()} == {1}


def test_a_full_disk_hands_nothing_over_while_that_would_cost_a_missing_broker_its_place() -> None:
    cluster = _cluster()
    cluster.lose_lease(3)
    cluster.show(1, full=True)
    states = cluster.states
    assert decide_all(cluster.image, states.holding_back(())) == []
    cluster.settle()
    assert (cluster.partition().leader, cluster.partition().isr_ids()) == (2, [1, 2])


def test_of_those_that_may_lead_one_with_space_is_elected() -> None:
    cluster = _cluster()
    cluster.show(2, full=True)
    cluster.stop(1)
    cluster.settle()
    assert (cluster.partition().leader, cluster.partition().isr_ids()) == (3, [2, 3])
    cluster.stop(3)
    cluster.settle()
    assert cluster.partition().leader == 2, "a full disk is better than no leader"


def test_a_leaving_broker_hands_over_to_one_with_space() -> None:
    cluster = _cluster()
    cluster.show(2, full=True)
    cluster.show(1, leaving=True)
    cluster.settle()
    assert cluster.partition().leader == 3
    assert departure_is_done(cluster.image, cluster.states, _ONE)


# --- preferred leaders


def test_leaders_go_back_to_the_first_replica_when_too_many_have_strayed() -> None:
    cluster = _cluster(partitions=10)
    cluster.stop(1)
    cluster.settle()
    cluster.start(1)
    assert list(decide_preferred(cluster.image, cluster.states)) == [], "it is not in sync"
    cluster.catch_up()
    assert list(decide_preferred(cluster.image, cluster.states, limit_percent=100)) == []
    cluster.settle()
    assert {partition.leader for _, partition in cluster.partitions()} == {1}
    assert {partition.leader_epoch for _, partition in cluster.partitions()} == {2}


def test_leaders_are_not_brought_back_to_a_draining_broker_nor_while_a_broker_is_waited_for() -> None:
    cluster = _cluster()
    cluster.stop(1)
    cluster.settle()
    cluster.start(1)
    cluster.catch_up()
    assert len(list(decide_preferred(cluster.image, cluster.states))) == 1
    draining = replace(cluster.states, draining=frozenset({_ONE}))
    assert list(decide_preferred(cluster.image, draining)) == []
    cluster.lose_lease(3)
    assert list(decide_preferred(cluster.image, cluster.states.holding_back(()))) == []


def test_a_requested_election_says_why_not() -> None:
    cluster = _cluster()
    topic = cluster.image.topic("t")

    def refusal(*, unclean: bool) -> ErrorCode:
        with pytest.raises(ApiError) as caught:
            decide_requested_election(topic, cluster.partition(), cluster.states, _RULES, unclean=unclean)
        return caught.value.code

    assert refusal(unclean=False) is ErrorCode.ELECTION_NOT_NEEDED
    assert refusal(unclean=True) is ErrorCode.ELECTION_NOT_NEEDED
    cluster.stop(1)
    cluster.settle()
    assert refusal(unclean=False) is ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE
    cluster.stop(2)
    cluster.stop(3)
    cluster.settle()
    assert refusal(unclean=True) is ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE
    with pytest.raises(ApiError) as caught:
        decide_requested_election(None, None, cluster.states, _RULES, unclean=False)
    assert caught.value.code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    cluster.start(1, clean=False)
    decision = decide_requested_election(topic, cluster.partition(), cluster.states, _RULES, unclean=True)
    assert (decision.after.leader, decision.is_unclean) == (1, True)


def test_a_requested_election_brings_the_preferred_leader() -> None:
    cluster = _cluster()
    cluster.stop(1)
    cluster.settle()
    cluster.start(1)
    cluster.catch_up()
    topic = cluster.image.topic("t")
    decision = decide_requested_election(topic, cluster.partition(), cluster.states, _RULES, unclean=False)
    assert decision.after.leader == 1


# --- what a leader proposes


def _proposal(cluster: ControlledCluster, *members: Member, epoch: int | None = None) -> CommitPlan | None:
    partition = cluster.partition()
    return plan_in_sync_change(
        partition,
        members,
        cluster.image,
        cluster.states,
        partition_epoch=partition.mod_revision if epoch is None else epoch,
        min_in_sync=2,
    )


def test_a_leaders_proposal_compares_the_partition_the_leader_and_whom_it_adds() -> None:
    cluster = _cluster()
    cluster.stop(3)
    cluster.settle()
    cluster.start(3)
    one, two, three = (_member(cluster, broker) for broker in (1, 2, 3))
    plan = _proposal(cluster, one, two, three)
    assert plan is not None
    key = partition_key(cluster.partition().topic_id, 0)
    assert set(plan.compares) == {key, *map(broker_key, (_ONE, _THREE)), *map(live_key, (_ONE, _THREE))}
    cluster.lose_lease(3)
    assert not cluster.offer(plan), "who has lost its lease is not taken into the in-sync set"
    assert _proposal(cluster, one, two, three) is None
    cluster.show(3)
    again = _proposal(cluster, one, two, three)
    assert again is not None
    assert cluster.offer(again)
    assert cluster.partition().isr == (one, two, three)


def test_a_proposal_is_refused_when_it_cannot_be_right() -> None:
    cluster = _cluster()
    one, two, three = (_member(cluster, broker) for broker in (1, 2, 3))
    assert _proposal(cluster, one, two, epoch=1) is None, "the partition has changed since"
    assert _proposal(cluster, one, Member(_TWO, Incarnation(77))) is None, "not the process that is alive"
    cluster.lose_lease(1)
    assert _proposal(cluster, one, two) is None, "the leader is not alive"
    cluster.show(1)
    shrink = _proposal(cluster, one, two)
    assert shrink is not None
    assert cluster.offer(shrink)
    cluster.show(3, leaving=True)
    assert _proposal(cluster, one, two, three) is None, "who is leaving is not taken back"
    same = _proposal(cluster, one, two)
    assert same is not None
    revision = cluster.partition().mod_revision
    assert cluster.offer(same)
    assert cluster.partition().mod_revision > revision, "the same set again settles what was open"


def test_eligible_replicas_are_forgotten_when_the_minimum_is_lowered() -> None:
    cluster = _cluster()
    cluster.stop(2)
    cluster.stop(3)
    cluster.settle()
    assert cluster.partition().elr
    decision = decide_partition("t", cluster.partition(), cluster.states, TopicRules(min_in_sync=1))
    assert decision is not None
    assert decision.after.elr == ()


def test_the_rules_of_a_topic_come_from_its_settings() -> None:
    cluster = _cluster(unclean_leader_election_enable="true")
    topic = cluster.image.topic("t")
    assert topic is not None
    assert topic_rules(topic) == TopicRules(2, unclean_allowed=True)
    assert topic_rules(replace(topic, configs={})) == TopicRules()
