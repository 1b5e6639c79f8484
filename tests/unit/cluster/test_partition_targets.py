"""Bringing a selection of partitions onto named brokers."""

from collections import Counter

import pytest

from martlet.base.errors import ApiError, ErrorCode
from martlet.base.ids import BrokerId, TopicPartition
from martlet.cluster.partition_targets import copies_to_make, plan_onto
from martlet.cluster.placement import Replicas, Site
from martlet.cluster.replica_balance import Moves


def _placed(*replicas: tuple[int, ...]) -> Moves:
    return {TopicPartition("t", index): tuple(map(BrokerId, one)) for index, one in enumerate(replicas)}


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
    assert not [copies for partition in moves if (copies := copies_to_make(placed[partition], moves[partition]))]
    assert sorted(replicas for replicas in moves.values()) == [(1,), (2,)]


def test_cls_27_what_lies_as_it_should_is_left_alone() -> None:
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
