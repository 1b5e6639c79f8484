"""Decisions about brokers: incarnations, elections at a broker's start, and counters."""

from dataclasses import replace

import pytest

from martlet.base.ids import BrokerId, Incarnation, Member
from martlet.cluster.broker_decisions import (
    Registration,
    RegistrationPlan,
    needs_own_election,
    plan_broker_configs,
    plan_own_elections,
    plan_producer_ids,
    plan_registration,
)
from martlet.cluster.keys import INCARNATION_COUNTER_KEY, broker_key, partition_key
from martlet.cluster.records import BrokerRecord, Endpoint, PartitionRecord
from martlet.cluster.store import COMMIT_OPERATIONS_MAX, CommitPlan
from tests.unit.cluster.images import FollowedStore, partition, puts, topic


def _register(
    store: FollowedStore,
    broker: int = 1,
    *,
    clean: bool = False,
    same_logs: bool = False,
    unread: bool = False,
    gave_up: bool = False,
    new_disk: bool = False,
) -> RegistrationPlan:
    registration = Registration(
        id=BrokerId(broker),
        endpoints=[Endpoint("PLAINTEXT", "127.0.0.1", 9092)],
        rack="r",
        boot_id="b",
        clean=clean,
        same_logs=same_logs,
        unread=unread,
        gave_up=gave_up,
        new_disk=new_disk,
    )
    plan = plan_registration(
        registration,
        cluster=store.entries.get("cluster/id"),
        broker=store.entries.get(broker_key(registration.id)),
        counter=store.entries.get(INCARNATION_COUNTER_KEY),
        new_cluster_id="fresh",
        now_ms=5,
    )
    store.commit(plan.commit)
    return plan


def test_the_first_broker_makes_the_cluster_in_the_commit_that_registers_it() -> None:
    store = FollowedStore()
    plan = _register(store)
    assert store.revision == 1
    assert store.image.cluster_id == "fresh" == plan.cluster.cluster_id
    broker = store.image.broker(BrokerId(1))
    assert broker is not None
    assert broker == plan.broker
    assert (broker.incarnation, broker.rack, broker.clean_since) == (1, "r", None)


def test_cls_8_every_start_has_a_larger_incarnation_than_all_before_in_the_cluster() -> None:
    store = FollowedStore()
    seen = [_register(store, broker).broker.incarnation for broker in (1, 2, 1, 1, 3)]
    assert seen == [1, 2, 3, 4, 5]
    assert store.image.cluster_id == "fresh"


def test_a_process_vouches_for_those_before_it_only_over_proven_restarts() -> None:
    store = FollowedStore()
    _register(store)
    assert _register(store, clean=True).broker.clean_since == 1
    third = _register(store, clean=True).broker
    assert [third.vouches_for(Incarnation(number)) for number in range(5)] == [False, True, True, True, False]
    fourth = _register(store, clean=False).broker
    assert [fourth.vouches_for(Incarnation(number)) for number in range(1, 5)] == [False, False, False, True]


def test_a_process_has_the_logs_of_those_before_it_until_a_start_without_them() -> None:
    store = FollowedStore()
    _register(store)
    second = _register(store, same_logs=True).broker
    assert (second.vouches_for(Incarnation(1)), second.has_logs_of(Incarnation(1))) == (False, True)
    third = _register(store, clean=True).broker
    assert (third.vouches_for(Incarnation(1)), third.has_logs_of(Incarnation(1))) == (False, True)
    fourth = _register(store).broker
    assert [fourth.has_logs_of(Incarnation(number)) for number in range(1, 5)] == [False, False, False, True]
    fifth = _register(store, same_logs=True).broker
    assert [fifth.has_logs_of(Incarnation(number)) for number in range(1, 6)] == [False, False, False, True, True]


@pytest.mark.parametrize("gave_up", [False, True])
def test_a_process_that_cannot_open_its_logs_speaks_for_itself_only_and_a_later_one_for_all(gave_up: bool) -> None:
    store = FollowedStore()
    _register(store)
    second = _register(store, clean=True, unread=True).broker
    assert [second.vouches_for(Incarnation(number)) for number in (1, 2)] == [False, True]
    assert [second.has_logs_of(Incarnation(number)) for number in (1, 2)] == [False, True]
    third = _register(store, clean=True, gave_up=gave_up).broker
    assert [third.vouches_for(Incarnation(number)) for number in (1, 2, 3)] == [not gave_up, True, True]
    assert [third.has_logs_of(Incarnation(number)) for number in (1, 2, 3)] == [not gave_up, True, True]


def test_a_new_disk_is_remembered_over_restarts_and_holds_nothing_from_before_it() -> None:
    store = FollowedStore()
    first = _register(store, new_disk=True).broker
    assert first.new_disk_since is None, "the first start of a broker has no disk before it"
    second = _register(store, new_disk=True).broker
    third = _register(store, clean=True).broker
    for later in (second, third):
        assert later.has_lost_disk_of(first.incarnation)
        assert not later.has_lost_disk_of(second.incarnation)
    assert not needs_own_election(partition(1, 0, incarnation=first.incarnation), third)
    assert needs_own_election(partition(1, 0, incarnation=second.incarnation), third)


def test_a_registration_decided_on_old_knowledge_fails() -> None:
    store = FollowedStore()
    plan = _register(store)
    with pytest.raises(AssertionError, match="would fail"):
        store.commit(plan.commit)


def _broker(incarnation: int = 11) -> BrokerRecord:
    return BrokerRecord(BrokerId(1), Incarnation(incarnation), mod_revision=1)


def _with_isr(record: PartitionRecord, *members: tuple[int, int]) -> PartitionRecord:
    return replace(
        record,
        replicas=tuple(BrokerId(broker) for broker, _ in members) or record.replicas,
        isr=tuple(Member(BrokerId(broker), Incarnation(incarnation)) for broker, incarnation in members),
    )


@pytest.mark.parametrize(
    ("record", "needed"),
    [
        (partition(1, 0, leader=1, incarnation=10), True),
        (partition(1, 0, leader=None, incarnation=10), True),
        (partition(1, 0, leader=1, incarnation=11), False),
        (partition(1, 0, leader=2, incarnation=10), False),
        (_with_isr(partition(1, 0), (2, 20)), False),
        (_with_isr(partition(1, 0), (1, 10), (2, 20)), False),
    ],
)
def test_a_starting_broker_elects_itself_where_only_it_can_hold_the_data(record: PartitionRecord, needed: bool) -> None:
    assert needs_own_election(record, _broker()) is needed


def test_cls_9_an_election_raises_the_epoch_and_names_the_new_incarnation() -> None:
    store = FollowedStore([1])
    store.commit(puts(topic("t", 1, partitions=2), partition(1, 0, epoch=4), partition(1, 1, epoch=7)))
    store.put_broker(1, incarnation=11)
    broker = store.image.broker(BrokerId(1))
    assert broker is not None
    for plan in plan_own_elections(store.image.partitions("t"), broker):
        store.commit(plan)
    elected = store.image.partitions("t")
    assert [record.leader_epoch for record in elected] == [5, 8]
    assert all(record.is_led_by(BrokerId(1), Incarnation(11)) for record in elected)
    assert list(plan_own_elections(elected, broker)) == []


def test_cls_10_a_process_that_was_replaced_elects_no_leader() -> None:
    store = FollowedStore([1])
    store.commit(puts(topic("t", 1), partition(1, 0)))
    store.put_broker(1, incarnation=11)
    old = store.image.broker(BrokerId(1))
    assert old is not None
    plans = list(plan_own_elections(store.image.partitions("t"), old))
    store.put_broker(1, incarnation=12)
    with pytest.raises(AssertionError, match="broker/1 would fail"):
        store.commit(plans[0])


def test_elections_fit_the_stores_commits() -> None:
    partitions = [partition(1, index) for index in range(250)]
    plans = list(plan_own_elections(partitions, _broker()))
    assert [len(plan.puts) for plan in plans] == [100, 100, 50]
    assert all(len(plan.compares) <= COMMIT_OPERATIONS_MAX for plan in plans)
    assert partition_key(partitions[0].topic_id, 249) in plans[2].puts


def test_a_starting_broker_leaves_the_election_to_others_while_another_replica_is_eligible() -> None:
    mine, other = Member(BrokerId(1), Incarnation(10)), Member(BrokerId(2), Incarnation(20))
    record = replace(partition(1, 0), replicas=(BrokerId(1), BrokerId(2)), elr=(mine, other))
    assert not needs_own_election(record, _broker()), "the other one holds everything acknowledged"
    assert needs_own_election(replace(record, elr=(mine,)), replace(_broker(), clean_since=Incarnation(10)))


def test_a_broker_that_may_have_lost_something_does_not_elect_itself_over_other_replicas() -> None:
    record = replace(partition(1, 0), replicas=(BrokerId(1), BrokerId(2)))
    assert not needs_own_election(record, _broker()), "its disk may be a new one: the controller decides, and says so"
    assert needs_own_election(record, replace(_broker(), clean_since=Incarnation(10)))


def test_producer_ids_are_never_given_twice() -> None:
    store = FollowedStore()
    taken: set[int] = set()
    for count in (1000, 1, 1000):
        plan, block = plan_producer_ids(store.entries.get("counter/producer-id"), count)
        store.commit(plan)
        assert len(block) == count
        assert taken.isdisjoint(block)
        taken.update(block)


def test_broker_settings_are_replaced_as_a_whole() -> None:
    store = FollowedStore()
    for configs in ({"log.retention.ms": "5"}, {"log.segment.bytes": "99"}):
        store.commit(plan_broker_configs(store.image.broker_config_record(None), configs))
        assert store.image.broker_configs(None) == configs
    assert store.image.broker_configs(BrokerId(1)) == {}
    assert isinstance(plan_broker_configs(store.image.broker_config_record(None), {}), CommitPlan)
