"""Where new partitions go."""

from collections import Counter

import pytest

from martlet.base.errors import InvariantViolation
from martlet.base.ids import BrokerId
from martlet.cluster.placement import place_replicas

_BROKERS = [BrokerId(number) for number in (3, 5, 8, 9)]


@pytest.mark.parametrize("factor", [1, 2, 3, 4])
@pytest.mark.parametrize("start", [0, 3, 1_000_003])
def test_replicas_are_distinct_and_leaders_and_replicas_are_spread_evenly(factor: int, start: int) -> None:
    placed = place_replicas(_BROKERS, indexes=range(12), replication_factor=factor, start=start)
    assert all(len(set(replicas)) == factor for replicas in placed)
    assert set(Counter(replicas[0] for replicas in placed).values()) == {3}
    assert set(Counter(broker for replicas in placed for broker in replicas).values()) == {3 * factor}


def test_the_load_of_a_lost_leader_spreads_over_the_others() -> None:
    placed = place_replicas(_BROKERS, indexes=range(12), replication_factor=2, start=0)
    assert {replicas[1] for replicas in placed if replicas[0] == 3} == {5, 8, 9}


def test_one_broker_holds_everything() -> None:
    assert place_replicas([BrokerId(1)], indexes=range(2), replication_factor=1, start=7) == [(1,), (1,)]


def test_more_replicas_than_brokers_is_the_callers_mistake() -> None:
    with pytest.raises(InvariantViolation):
        place_replicas(_BROKERS, indexes=range(1), replication_factor=5, start=0)
