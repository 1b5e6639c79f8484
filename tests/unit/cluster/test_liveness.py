"""Who is alive, as the store says it, and from when on a missing broker counts as gone."""

import pytest

from martlet.base.errors import InvariantViolation
from martlet.base.ids import BrokerId, Incarnation, Member
from martlet.cluster.image import LiveChange, MetadataImage
from martlet.cluster.keys import drain_key, live_key
from martlet.cluster.liveness import FencingGuard, plan_alive, plan_controller_role, read_states
from martlet.cluster.records import DrainRecord, LiveRecord, encode_record
from martlet.cluster.store import CommitPlan
from tests.unit.cluster.controlled_cluster import ControlledCluster

_ONE, _TWO, _THREE, _FOUR = (BrokerId(number) for number in (1, 2, 3, 4))


def test_the_image_follows_living_processes_drains_and_the_controller() -> None:
    cluster = ControlledCluster({1: None, 2: None})
    first = cluster.image.live(_ONE)
    assert first == LiveRecord(_ONE, Incarnation(1))
    assert first is not None
    assert cluster.image.live_revision(_ONE) == first.mod_revision > 0
    gone = cluster.commit(CommitPlan(deletes=(live_key(_ONE),)))
    assert gone.live == (LiveChange(first, None),)
    assert (cluster.image.live(_ONE), cluster.image.live_revision(_ONE)) == (None, 0)
    marked = cluster.commit(CommitPlan(puts={drain_key(_TWO): encode_record(DrainRecord(_TWO, 7))}))
    assert marked.drains == (_TWO,)
    assert cluster.image.drain(_TWO) == DrainRecord(_TWO, 7)
    again = cluster.commit(CommitPlan(puts={drain_key(_TWO): encode_record(DrainRecord(_TWO, 7))}))
    assert again.drains == (), "CLS-3: nothing has changed"
    broker = cluster.image.broker(_TWO)
    assert broker is not None
    role = plan_controller_role(broker, cluster.image)
    assert role is not None
    assert cluster.commit(role).controller
    assert cluster.image.controller is not None
    assert cluster.image.controller.holder == Member(_TWO, broker.incarnation)
    assert plan_controller_role(broker, cluster.image) is None, "there is a controller"
    loaded = MetadataImage()
    delta = loaded.load(cluster.store.listing())
    assert (delta.controller, delta.drains, len(delta.live)) == (True, (_TWO,), 1)
    assert (loaded.live(_TWO), loaded.controller) == (cluster.image.live(_TWO), cluster.image.controller)


def test_cls_17_alive_is_whose_registration_and_lease_name_the_same_process() -> None:
    cluster = ControlledCluster({1: None, 2: None, 3: None, 4: None})
    cluster.lose_lease(2)
    cluster.show(3, leaving=True)
    cluster.commit(CommitPlan(puts={drain_key(_FOUR): encode_record(DrainRecord(_FOUR))}))
    states = cluster.states
    assert sorted(states.alive) == [1, 3, 4]
    assert sorted(states.missing) == [2]
    assert states.leaving == {3}
    assert states.draining == {4}
    assert sorted(states.staying) == [1, 4]
    assert [record.id for record in states.placeable] == [1]
    cluster.store.put_broker(1, incarnation=99)
    assert 1 in cluster.states.missing, "the lease is that of an earlier process"


def test_a_process_that_was_replaced_cannot_show_itself() -> None:
    cluster = ControlledCluster({1: None})
    old = cluster.image.broker(_ONE)
    assert old is not None
    plan = plan_alive(old, cluster.image.live(_ONE))
    cluster.start(1)
    assert not cluster.offer(plan)
    with pytest.raises(InvariantViolation, match="CLS-17"):
        plan_alive(old, cluster.image.live(_ONE))


def test_a_leaving_or_missing_process_does_not_become_controller() -> None:
    cluster = ControlledCluster({1: None})
    broker = cluster.image.broker(_ONE)
    assert broker is not None
    cluster.show(1, leaving=True)
    assert plan_controller_role(broker, cluster.image) is None
    cluster.lose_lease(1)
    assert plan_controller_role(broker, cluster.image) is None


def test_of_two_that_want_the_role_one_gets_it() -> None:
    cluster = ControlledCluster({1: None, 2: None})
    plans = [plan_controller_role(record, cluster.image) for record in cluster.image.brokers()]
    assert [plan is not None and cluster.offer(plan) for plan in plans] == [True, False]


def test_cls_18_no_broker_is_fenced_in_the_first_lease_of_a_controller() -> None:
    guard = FencingGuard(lease_ms=3_000, now_ms=10_000, per_second=5)
    assert guard.check({_ONE}, 12_999) == frozenset()
    assert guard.next_check_at_ms({_ONE}, 12_999) == 13_000
    assert guard.check({_ONE}, 13_000) == {1}
    assert guard.next_check_at_ms({_ONE}, 13_000) is None


def test_cls_18_after_the_store_was_away_everybody_gets_a_whole_lease_again() -> None:
    guard = FencingGuard(lease_ms=3_000, now_ms=0, per_second=5)
    assert guard.check({_ONE}, 5_000) == {1}
    guard.began(6_000)
    assert guard.fenced == frozenset()
    assert guard.check({_ONE, _TWO}, 8_999) == frozenset()
    assert guard.check({_ONE, _TWO}, 9_000) == {1, 2}


def test_cls_18_no_more_are_fenced_per_second_than_allowed() -> None:
    guard = FencingGuard(lease_ms=1_000, now_ms=0, per_second=1)
    everybody = {_ONE, _TWO, _THREE}
    assert guard.check(everybody, 1_000) == {1}
    assert guard.check(everybody, 1_999) == {1}
    assert guard.next_check_at_ms(everybody, 1_999) == 2_000
    assert guard.check(everybody, 2_000) == {1, 2}
    assert guard.check(everybody, 9_000) == {1, 2, 3}


def test_cls_19_who_shows_itself_is_not_fenced_any_more() -> None:
    guard = FencingGuard(lease_ms=1_000, now_ms=0)
    assert guard.check({_ONE, _TWO}, 1_000) == {1, 2}
    assert guard.check({_TWO}, 1_100) == {2}
    assert guard.check({_ONE, _TWO}, 1_200) == {2}, "and waits for its turn when it is missing again"


def test_who_is_not_fenced_yet_is_waited_for() -> None:
    cluster = ControlledCluster({1: None, 2: None, 3: None})
    cluster.lose_lease(1)
    cluster.lose_lease(2)
    states = read_states(cluster.image).holding_back({_TWO})
    assert sorted(states.waited_for) == [1]
    assert sorted(states.alive) == [3]
