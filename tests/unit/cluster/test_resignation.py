"""A damaged copy leaves all sets of its partition, and only where another copy is complete."""

from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from martlet.base.ids import BrokerId, Incarnation, LeaderEpoch, Member, TopicId
from martlet.cluster.controller_decisions import TopicRules
from martlet.cluster.keys import broker_key, live_key, partition_key
from martlet.cluster.liveness import BrokerStates
from martlet.cluster.partition_plans import check_change
from martlet.cluster.records import BrokerRecord, PartitionRecord, encode_record
from martlet.cluster.replica_decisions import live_member, store_in_sync
from martlet.cluster.resignation import has_resigned, plan_resignation, resign
from martlet.cluster.store import CommitPlan
from tests.unit.cluster.controlled_cluster import ControlledCluster

_ONE, _TWO, _THREE = (BrokerId(number) for number in (1, 2, 3))
_RULES = TopicRules(min_in_sync=2)


def _cluster() -> ControlledCluster:
    cluster = ControlledCluster({1: "a", 2: "b", 3: "c"})
    cluster.make_topic("t", [(1, 2, 3)], {"min.insync.replicas": "2"})
    return cluster


def _member(cluster: ControlledCluster, broker: int) -> Member:
    record = cluster.image.broker(BrokerId(broker))
    assert record is not None
    return Member(record.id, record.incarnation)


def _plan(cluster: ControlledCluster, broker: int, me: Member | None = None) -> CommitPlan | None:
    me = me or _member(cluster, broker)
    return plan_resignation("t", cluster.partition(), me, cluster.image, cluster.states, _RULES)


def _resign(cluster: ControlledCluster, broker: int) -> PartitionRecord:
    plan = _plan(cluster, broker)
    assert plan is not None
    cluster.commit(plan)
    return cluster.partition()


def _keep_in_sync(cluster: ControlledCluster, *brokers: int) -> None:
    """The leader stores this set."""
    members = [_member(cluster, broker) for broker in brokers]
    key = partition_key(cluster.partition().topic_id, 0)
    after = store_in_sync(cluster.partition(), members, 2)
    cluster.commit(CommitPlan({key: after.mod_revision}, {key: encode_record(after)}))


def test_a_leader_hands_over_to_the_first_of_the_others() -> None:
    after = _resign(_cluster(), 1)
    assert (after.leader, after.leader_epoch, after.isr_ids(), after.elr, after.last_in_sync) == (2, 1, [2, 3], (), ())
    assert after.replicas == (1, 2, 3)
    assert has_resigned(after, _ONE)


def test_under_a_follower_the_leader_stays_and_its_epoch_does_not() -> None:
    after = _resign(_cluster(), 3)
    assert (after.leader, after.leader_epoch, after.isr_ids(), after.elr, after.last_in_sync) == (1, 1, [1, 2], (), ())
    assert has_resigned(after, _THREE)
    assert not has_resigned(after, _TWO)


def test_the_epoch_rises_also_under_a_copy_that_is_in_no_set() -> None:
    cluster = _cluster()
    _keep_in_sync(cluster, 1, 2)
    assert not has_resigned(cluster.partition(), _THREE), "it was in sync, and an unclean election would remember"
    after = _resign(cluster, 3)
    assert (after.leader, after.leader_epoch, after.last_in_sync) == (1, 1, ())


def test_entries_of_earlier_processes_go_too() -> None:
    cluster = _cluster()
    cluster.start(2, clean=True)
    before = cluster.partition()
    assert _member(cluster, 2) not in before.isr, "its entry names the process before, for which it vouches"
    assert _resign(cluster, 2).isr_ids() == [1, 3]


def test_an_eligible_copy_leads_where_no_other_is_in_sync() -> None:
    cluster = _cluster()
    _keep_in_sync(cluster, 1)
    assert {entry.broker for entry in cluster.partition().elr} == {2, 3}
    after = _resign(cluster, 1)
    assert (after.leader, after.isr_ids(), [entry.broker for entry in after.elr]) == (2, [2], [3])


def test_who_resigns_is_not_eligible_though_too_few_are_left() -> None:
    cluster = _cluster()
    _keep_in_sync(cluster, 1, 2)
    after = _resign(cluster, 2)
    assert (after.leader, after.isr_ids(), after.elr, after.last_in_sync) == (1, [1], (), (_member(cluster, 3),))


def test_the_only_complete_copy_stays_until_another_one_is_complete() -> None:
    cluster = _cluster()
    _keep_in_sync(cluster, 1, 2)
    cluster.stop(2)
    assert _plan(cluster, 1) is None, "broker 3 is alive and lacks something"
    cluster.show(2)
    assert _resign(cluster, 1).leader == 2


def test_a_restarted_copy_counts_only_if_it_lost_nothing() -> None:
    cluster = _cluster()
    cluster.stop(3)
    cluster.start(2, clean=False)
    assert _plan(cluster, 1) is None
    cluster.start(3, clean=True)
    assert _resign(cluster, 1).leader == 3


def test_who_leaves_leads_only_where_none_stays() -> None:
    cluster = _cluster()
    cluster.show(2, leaving=True)
    assert _resign(cluster, 1).leader == 3
    cluster = _cluster()
    cluster.stop(3)
    cluster.show(2, leaving=True)
    assert _resign(cluster, 1).leader == 2


def test_the_next_leader_has_space_if_one_has() -> None:
    cluster = _cluster()
    cluster.show(2, full=True)
    assert _resign(cluster, 1).leader == 3


def test_a_broker_whose_disk_is_full_keeps_what_it_has() -> None:
    cluster = _cluster()
    cluster.show(1, full=True)
    assert _plan(cluster, 1) is None
    cluster.show(1)
    assert _plan(cluster, 1) is not None


def test_a_sole_replica_and_a_process_that_is_not_registered_any_more_have_no_plan() -> None:
    cluster = _cluster()
    before = _member(cluster, 1)
    cluster.start(1, clean=True)
    assert _plan(cluster, 1, before) is None
    cluster = ControlledCluster({1: "a"})
    cluster.make_topic("t", [(1,)])
    assert _plan(cluster, 1) is None


def test_it_fails_when_anything_it_relies_on_is_another_thing_meanwhile() -> None:
    cluster = _cluster()
    plan = _plan(cluster, 1)
    assert plan is not None
    key = partition_key(cluster.partition().topic_id, 0)
    assert set(plan.compares) == {key, *(one(broker) for broker in (_ONE, _TWO) for one in (broker_key, live_key))}
    assert plan.puts.keys() == {key}


_MEMBERS = st.builds(Member, st.sampled_from([_ONE, _TWO, _THREE]), st.integers(1, 3).map(Incarnation))
_SETS = st.lists(_MEMBERS, max_size=3, unique_by=lambda entry: entry.broker).map(tuple)


@given(
    isr=_SETS,
    elr=_SETS,
    last=_SETS,
    leader=st.sampled_from([None, _ONE, _TWO, _THREE]),
    alive=st.dictionaries(st.sampled_from([_ONE, _TWO, _THREE]), st.tuples(st.integers(1, 3), st.integers(1, 3))),
    leaving=st.sets(st.sampled_from([_ONE, _TWO, _THREE])),
    me=st.sampled_from([_ONE, _TWO, _THREE]),
    minimum=st.integers(1, 3),
)
def test_whatever_the_sets_are_the_broker_is_in_none_and_a_complete_one_leads(
    isr: tuple[Member, ...],
    elr: tuple[Member, ...],
    last: tuple[Member, ...],
    leader: BrokerId | None,
    alive: dict[BrokerId, tuple[int, int]],
    leaving: set[BrokerId],
    me: BrokerId,
    minimum: int,
) -> None:
    records = {
        broker: BrokerRecord(broker, Incarnation(max(since, now)), clean_since=Incarnation(min(since, now)))
        for broker, (since, now) in alive.items()
    }
    states = BrokerStates(records, leaving=frozenset(leaving & records.keys()))
    before = PartitionRecord(TopicId(bytes(16)), 0, (_ONE, _TWO, _THREE), leader, LeaderEpoch(4), isr, elr, last)
    complete = {live_member(entry, records) for entry in (*isr, *elr) if entry.broker != me} - {None}
    after = resign(before, me, states, TopicRules(min_in_sync=minimum))
    assert (after is None) == (not complete)
    if after is not None:
        check_change(before, after)
        assert after.leader_epoch == before.leader_epoch + 1
        assert has_resigned(after, me)
        assert Member(after.leader, after.leader_incarnation) in complete  # type: ignore[arg-type]
        assert set(after.isr) <= complete
        still_counts = {entry.broker for entry in (*after.isr, *after.elr)}
        assert still_counts <= {entry.broker for entry in (*isr, *elr)} - {me}
        assert replace(after, leader=leader, leader_epoch=LeaderEpoch(4), isr=isr, elr=elr, last_in_sync=last) == before
