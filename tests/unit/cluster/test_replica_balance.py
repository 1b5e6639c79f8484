"""Which replicas move to balance, to empty a broker, and to change their number."""

from collections import Counter

import pytest

from martlet.base.errors import InvariantViolation
from martlet.base.ids import BrokerId, TopicPartition
from martlet.cluster.placement import Site, place_partitions
from martlet.cluster.replica_balance import plan_balance, plan_emptying, plan_replication_factor

_SITES = [Site(BrokerId(number)) for number in range(1, 5)]


def _placed(*replicas: tuple[int, ...], topic: str = "t") -> dict[TopicPartition, tuple[BrokerId, ...]]:
    return {
        TopicPartition(topic, index): tuple(BrokerId(one) for one in brokers) for index, brokers in enumerate(replicas)
    }


def test_what_is_balanced_does_not_move() -> None:
    assert plan_balance(_placed((1, 2), (2, 3), (3, 4), (4, 1)), _SITES) == {}
    assert plan_balance({}, _SITES) == {}
    assert plan_balance(_placed((1,)), []) == {}


def test_leaders_are_evened_out_without_moving_a_replica() -> None:
    placed = _placed((1, 2), (1, 2), (1, 2), (1, 2))
    moves = plan_balance(placed, _SITES[:2])
    assert Counter(replicas[0] for replicas in {**placed, **moves}.values()) == {1: 2, 2: 2}
    assert all(set(replicas) == {1, 2} for replicas in moves.values())


def test_every_topic_gives_a_little_to_the_new_broker() -> None:
    placed = {
        partition: replicas
        for topic in ("t", "u")
        for partition, replicas in _placed(*[(1, 2, 3)] * 8, topic=topic).items()
    }
    moves = plan_balance(placed, _SITES)
    gained = Counter(partition.topic for partition, replicas in moves.items() if 4 in replicas)
    assert sum(gained.values()) == 12
    assert max(gained.values()) - min(gained.values()) <= 2


def test_a_replica_stays_in_its_rack_when_that_is_needed_for_the_spread() -> None:
    sites = [Site(BrokerId(1), "a"), Site(BrokerId(2), "b"), Site(BrokerId(3), "b")]
    placed = _placed((1, 2), (1, 2), (2, 1), (1, 2))
    after = {**placed, **plan_balance(placed, sites)}
    assert all(1 in replicas for replicas in after.values())
    assert Counter(broker for replicas in after.values() for broker in replicas) == {1: 4, 2: 2, 3: 2}


def test_brokers_that_are_no_places_any_more_are_left_alone() -> None:
    placed = _placed((9, 1), (9, 1), (9, 1), (9, 1))
    after = {**placed, **plan_balance(placed, _SITES)}
    assert all(replicas[0] == 9 for replicas in after.values())
    assert Counter(replicas[1] for replicas in after.values()) == {1: 1, 2: 1, 3: 1, 4: 1}


def test_an_emptied_brokers_leaderships_go_to_the_one_that_leads_least() -> None:
    chosen = place_partitions(_SITES, count=12, replication_factor=2)
    placed = {TopicPartition("t", index): replicas for index, replicas in enumerate(chosen)}
    moves = plan_emptying(placed, BrokerId(1), _SITES[1:])
    after = {**placed, **moves}
    assert Counter(replicas[0] for replicas in after.values()) == {2: 4, 3: 4, 4: 4}
    assert Counter(broker for replicas in after.values() for broker in replicas) == {2: 8, 3: 8, 4: 8}
    with pytest.raises(InvariantViolation):
        plan_emptying(placed, BrokerId(1), _SITES)


def test_fewer_replicas_leave_the_leader_and_the_better_spread_over_racks() -> None:
    sites = [Site(BrokerId(1), "a"), Site(BrokerId(2), "a"), Site(BrokerId(3), "b")]
    moves = plan_replication_factor(_placed((1, 2, 3)), 2, sites, {})
    assert moves == _placed((1, 3))


def test_more_replicas_go_to_racks_that_have_none() -> None:
    sites = [Site(BrokerId(1), "a"), Site(BrokerId(2), "a"), Site(BrokerId(3), "b")]
    assert plan_replication_factor(_placed((1,), (2,)), 2, sites, {}) == _placed((1, 3), (2, 3))


def test_a_broker_that_is_no_place_any_more_goes_first() -> None:
    assert plan_replication_factor(_placed((1, 2, 9)), 2, _SITES, {}) == _placed((1, 2))
