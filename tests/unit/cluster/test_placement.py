"""Where new partitions go."""

from collections import Counter

import pytest

from martlet.base.errors import InvariantViolation
from martlet.base.ids import BrokerId, Incarnation
from martlet.cluster.placement import Site, place_partitions, sites_of
from martlet.cluster.records import BrokerRecord

_BROKERS = [BrokerId(number) for number in (3, 5, 8, 9)]


_SITES = [Site(broker) for broker in _BROKERS]


@pytest.mark.parametrize("factor", [1, 2, 3, 4])
@pytest.mark.parametrize("start", [0, 3, 1_000_003])
def test_replicas_are_distinct_and_leaders_and_replicas_are_spread_evenly(factor: int, start: int) -> None:
    placed = place_partitions(_SITES, count=12, replication_factor=factor, start=start)
    assert all(len(set(replicas)) == factor for replicas in placed)
    assert set(Counter(replicas[0] for replicas in placed).values()) == {3}
    assert set(Counter(broker for replicas in placed for broker in replicas).values()) == {3 * factor}


def test_the_load_of_a_lost_leader_spreads_over_the_others() -> None:
    placed = place_partitions(_SITES, count=12, replication_factor=2)
    assert {replicas[1] for replicas in placed if replicas[0] == 3} == {5, 8, 9}


def test_one_broker_holds_everything() -> None:
    assert place_partitions([Site(BrokerId(1))], count=2, replication_factor=1, start=7) == [(1,), (1,)]


def _racks(**racks: str) -> list[Site]:
    return [Site(BrokerId(int(name.removeprefix("b"))), rack) for name, rack in racks.items()]


def test_each_partition_has_a_replica_in_each_rack() -> None:
    sites = _racks(b1="x", b2="x", b3="y", b4="y", b5="z", b6="z")
    placed = place_partitions(sites, count=12, replication_factor=3)
    assert all({dict(sites)[broker] for broker in replicas} == {"x", "y", "z"} for replicas in placed)
    assert set(Counter(broker for replicas in placed for broker in replicas).values()) == {6}
    assert set(Counter(replicas[0] for replicas in placed).values()) == {2}


def test_who_holds_partitions_together_differs_and_so_does_who_takes_over() -> None:
    sites = [Site(broker) for broker in _BROKERS]
    placed = place_partitions(sites, count=12, replication_factor=2)
    assert set(Counter(frozenset(replicas) for replicas in placed).values()) == {2}
    assert len({replicas[1] for replicas in placed if replicas[0] == 3}) == 3
    three = place_partitions(sites[:3], count=12, replication_factor=3)
    assert {replicas[1] for replicas in three if replicas[0] == 3} == {5, 8}


def test_a_small_topic_goes_where_least_is_held_in_all() -> None:
    sites = [Site(broker) for broker in _BROKERS]
    load = {BrokerId(3): 5, BrokerId(5): 2, BrokerId(8): 9, BrokerId(9): 3}
    (only,) = place_partitions(sites, count=1, replication_factor=2, cluster_load=load)
    assert set(only) == {5, 9}


def test_a_new_broker_does_not_get_all_of_a_new_topic() -> None:
    sites = [Site(broker) for broker in _BROKERS]
    load = {BrokerId(3): 50, BrokerId(5): 50, BrokerId(8): 50, BrokerId(9): 0}
    placed = place_partitions(sites, count=8, replication_factor=1, cluster_load=load)
    assert set(Counter(replicas[0] for replicas in placed).values()) == {2}


def test_partitions_that_are_added_go_where_the_topic_has_least() -> None:
    sites = [Site(broker) for broker in _BROKERS]
    existing = [(BrokerId(3), BrokerId(5)), (BrokerId(5), BrokerId(3))]
    (added,) = place_partitions(sites, count=1, replication_factor=2, existing=existing)
    assert set(added) == {8, 9}


def test_sites_are_brokers_with_their_racks_by_id() -> None:
    brokers = [BrokerRecord(BrokerId(number), Incarnation(1), rack=f"r{number}") for number in (2, 1)]
    assert sites_of(brokers) == [Site(BrokerId(1), "r1"), Site(BrokerId(2), "r2")]


def test_more_replicas_than_places_is_the_callers_mistake() -> None:
    with pytest.raises(InvariantViolation):
        place_partitions([Site(BrokerId(1))], count=1, replication_factor=2)
