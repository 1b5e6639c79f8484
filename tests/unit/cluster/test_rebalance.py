"""Which replicas move to balance, to empty a broker, and to change their number."""

from collections import Counter

import pytest

from martlet.base.errors import ApiError, ErrorCode, InvariantViolation
from martlet.base.ids import BrokerId, TopicPartition
from martlet.cluster.placement.rebalance import Moves, plan_balance, plan_emptying, plan_onto, plan_replication_factor
from martlet.cluster.placement.spread import Replicas, Site, place_partitions

_SITES = [Site(BrokerId(number)) for number in range(1, 5)]


def _placed(*replicas: tuple[int, ...], topic: str = "t") -> Moves:
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


def test_an_emptied_brokers_leaderships_go_to_whoever_leads_least() -> None:
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


# --- onto named brokers


def _sites(*brokers: int) -> list[Site]:
    return [Site(BrokerId(broker)) for broker in brokers]


def _after(placed: Moves, moves: Moves) -> list[Replicas]:
    return [moves.get(partition, replicas) for partition, replicas in placed.items()]


def test_growing_from_one_broker_to_three_gives_everybody_a_copy_and_a_third_of_the_leaders() -> None:
    placed = _placed(*[(1,)] * 9)
    after = _after(placed, plan_onto(placed, _sites(1, 2, 3), factor=3))
    assert all(set(replicas) == {1, 2, 3} for replicas in after)
    assert Counter(replicas[0] for replicas in after) == {1: 3, 2: 3, 3: 3}


def test_spreading_single_copies_moves_only_what_must_move() -> None:
    placed = _placed(*[(1,)] * 9)
    moves = plan_onto(placed, _sites(1, 2, 3))
    assert len(moves) == 6
    assert Counter(replicas[0] for replicas in _after(placed, moves)) == {1: 3, 2: 3, 3: 3}


def test_brokers_that_are_not_named_lose_the_selection() -> None:
    placed = _placed((1, 2), (2, 3), (3, 1), (1, 3))
    after = _after(placed, plan_onto(placed, _sites(2, 3)))
    assert all(set(replicas) == {2, 3} for replicas in after)
    assert Counter(replicas[0] for replicas in after) == {2: 2, 3: 2}


def test_fewer_copies_keep_those_that_lie_where_they_may_stay() -> None:
    placed = _placed((9, 1, 2), (9, 2, 1))
    moves = plan_onto(placed, _sites(1, 2), factor=1)
    assert all(set(moves[partition]) <= set(placed[partition]) for partition in moves), "nothing is copied"
    assert sorted(replicas for replicas in moves.values()) == [(1,), (2,)]


def test_w5_what_lies_as_it_should_is_left_alone() -> None:
    placed = _placed(*[(1,)] * 7)
    wished = dict(zip(placed, _after(placed, plan_onto(placed, _sites(1, 2, 3, 4), factor=2)), strict=True))
    assert plan_onto(wished, _sites(1, 2, 3, 4), factor=2) == {}
    assert plan_onto(wished, _sites(1, 2, 3, 4)) == {}


def test_copies_go_to_different_racks() -> None:
    sites = [Site(BrokerId(broker), rack) for broker, rack in ((1, "a"), (2, "a"), (3, "b"), (4, "b"))]
    placed = _placed(*[(1,)] * 8)
    after = _after(placed, plan_onto(placed, sites, factor=2))
    rack = dict(sites)
    assert all({rack[broker] for broker in replicas} == {"a", "b"} for replicas in after)
    assert set(Counter(broker for replicas in after for broker in replicas).values()) == {4}


@pytest.mark.parametrize(
    ("brokers", "factor", "code", "sentence"),
    [
        ((), None, ErrorCode.INVALID_REPLICA_ASSIGNMENT, "no broker is named"),
        ((1, 2), 3, ErrorCode.INVALID_REPLICATION_FACTOR, "3 replicas need as many brokers, and 2"),
        ((1,), None, ErrorCode.INVALID_REPLICATION_FACTOR, "t-1 has 2 replicas and cannot lie on 1 brokers"),
    ],
)
def test_too_few_brokers_are_refused(
    brokers: tuple[int, ...], factor: int | None, code: ErrorCode, sentence: str
) -> None:
    with pytest.raises(ApiError, match=sentence) as caught:
        plan_onto(_placed((1,), (1, 2)), _sites(*brokers), factor=factor)
    assert caught.value.code is code


def test_nothing_selected_needs_no_move() -> None:
    assert plan_onto({}, _sites(1, 2)) == {}
