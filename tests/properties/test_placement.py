"""Placement and balance on random brokers, racks and topics: even, spread over racks, and with no needless move."""

from collections import Counter
from collections.abc import Iterable, Sequence
from itertools import product

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from martlet.base.ids import BrokerId, TopicPartition
from martlet.cluster.partition_targets import plan_onto
from martlet.cluster.placement import Site, place_partitions, rack_crowding
from martlet.cluster.replica_balance import plan_balance, plan_emptying, plan_replication_factor

_RACKS = st.sampled_from(["a", "b", "c"])
_SITES = st.lists(_RACKS, min_size=1, max_size=6).map(
    lambda racks: [Site(BrokerId(number), rack) for number, rack in enumerate(racks, 1)]
)
_EQUAL_SITES = st.tuples(st.integers(1, 3), st.integers(1, 3)).map(
    lambda size: [Site(BrokerId(number), "abc"[number % size[0]]) for number in range(size[0] * size[1])]
)
_RACKLESS = st.integers(1, 7).map(lambda count: [Site(BrokerId(number)) for number in range(count)])


def spread(counts: Iterable[int]) -> int:
    values = list(counts)
    return max(values) - min(values)


def held(placed: Iterable[Sequence[BrokerId]], sites: Sequence[Site]) -> dict[BrokerId, int]:
    counts = Counter(broker for replicas in placed for broker in replicas)
    return {site.broker: counts[site.broker] for site in sites}


def led(placed: Iterable[Sequence[BrokerId]], sites: Sequence[Site]) -> dict[BrokerId, int]:
    return held([replicas[:1] for replicas in placed], sites)


def best_crowding(sites: Sequence[Site], factor: int) -> int:
    """What the most even spread over these racks comes to."""
    sizes = Counter(site.rack for site in sites)
    shares: Counter[str | None] = Counter()
    for _ in range(factor):
        shares[min((rack for rack in sizes if shares[rack] < sizes[rack]), key=lambda rack: shares[rack])] += 1
    return sum(share * share for share in shares.values())


@given(sites=_SITES, count=st.integers(1, 40), data=st.data())
@settings(deadline=None)
def test_cls_28_every_partition_is_spread_over_racks_as_evenly_as_they_allow(
    sites: list[Site], count: int, data: st.DataObject
) -> None:
    factor = data.draw(st.integers(1, len(sites)))
    placed = place_partitions(sites, count=count, replication_factor=factor, start=data.draw(st.integers(0, 1_000_000)))
    assert len(placed) == count
    for replicas in placed:
        assert len(set(replicas)) == factor
        assert rack_crowding(replicas, dict(sites)) == best_crowding(sites, factor)
    for rack in {site.rack for site in sites}:
        members = [site for site in sites if site.rack == rack]
        assert spread(held(placed, members).values()) <= 1, "CLS-29: brokers of a rack hold the same"


@given(sites=_EQUAL_SITES | _RACKLESS, count=st.integers(1, 40), data=st.data())
@settings(deadline=None)
def test_cls_29_cls_30_over_equal_racks_replicas_and_leaders_differ_by_one_at_most(
    sites: list[Site], count: int, data: st.DataObject
) -> None:
    factor = data.draw(st.integers(1, len(sites)))
    load = {site.broker: data.draw(st.integers(0, 9)) for site in sites}
    start = data.draw(st.integers(0, 1_000_000))
    placed = place_partitions(sites, count=count, replication_factor=factor, cluster_load=load, start=start)
    assert spread(held(placed, sites).values()) <= 1
    assert spread(led(placed, sites).values()) <= 1


@given(sites=_EQUAL_SITES, count=st.integers(1, 20), more=st.integers(1, 20), data=st.data())
@settings(deadline=None)
def test_partitions_added_later_keep_the_topic_even(
    sites: list[Site], count: int, more: int, data: st.DataObject
) -> None:
    factor = data.draw(st.integers(1, len(sites)))
    first = place_partitions(sites, count=count, replication_factor=factor)
    added = place_partitions(sites, count=more, replication_factor=factor, existing=first)
    assert spread(held([*first, *added], sites).values()) <= 1
    # The leaders of what exists stay, so it may not come out even.
    assert spread(led([*first, *added], sites).values()) <= 2


def _clusterwide(sites: Sequence[Site], data: st.DataObject) -> dict[TopicPartition, tuple[BrokerId, ...]]:
    placed: dict[TopicPartition, tuple[BrokerId, ...]] = {}
    for topic in ("t", "u", "v"):
        factor = data.draw(st.integers(1, len(sites)))
        count = data.draw(st.integers(0, 12))
        chosen = place_partitions(sites, count=count, replication_factor=factor, start=data.draw(st.integers(0, 9)))
        placed.update({TopicPartition(topic, index): replicas for index, replicas in enumerate(chosen)})
    return placed


@given(sites=_RACKLESS, added=st.integers(0, 3), data=st.data())
@settings(deadline=None)
def test_cls_36_after_brokers_were_added_all_hold_the_same_after_the_fewest_moves(
    sites: list[Site], added: int, data: st.DataObject
) -> None:
    placed = _clusterwide(sites, data)
    grown = [*sites, *(Site(BrokerId(100 + number)) for number in range(added))]
    moves = plan_balance(placed, grown)
    after = {**placed, **moves}
    assert spread(held(after.values(), grown).values()) <= 1
    before = held(placed.values(), grown)
    share, extra = divmod(sum(before.values()), len(grown))
    shares = sorted(before, key=lambda broker: -before[broker])
    needed = sum(max(0, before[broker] - share - (place < extra)) for place, broker in enumerate(shares))
    moved = sum(len(set(placed[partition]) - set(replicas)) for partition, replicas in moves.items())
    assert moved == needed
    assert plan_balance(after, grown) == {}, "CLS-34: what is balanced stays"


@given(count=st.integers(2, 6), partitions=st.integers(1, 40), data=st.data())
@settings(deadline=None)
def test_a_topic_of_several_replicas_gets_even_leaders_when_a_broker_was_added(
    count: int, partitions: int, data: st.DataObject
) -> None:
    sites = [Site(BrokerId(number)) for number in range(count)]
    factor = data.draw(st.integers(2, count))
    chosen = place_partitions(sites, count=partitions, replication_factor=factor)
    placed = {TopicPartition("t", index): replicas for index, replicas in enumerate(chosen)}
    grown = [*sites, Site(BrokerId(100))]
    after = {**placed, **plan_balance(placed, grown)}
    assert spread(led(after.values(), grown).values()) <= 1


@given(sites=_SITES, added=_RACKS, data=st.data())
@settings(deadline=None)
def test_cls_35_balancing_makes_no_partition_worse_spread_over_racks(
    sites: list[Site], added: str, data: st.DataObject
) -> None:
    placed = _clusterwide(sites, data)
    grown = [*sites, Site(BrokerId(100), added)]
    racks = dict(grown)
    moves = plan_balance(placed, grown)
    for partition, replicas in moves.items():
        assert len(set(replicas)) == len(placed[partition])
        assert rack_crowding(replicas, racks) <= rack_crowding(placed[partition], racks)
    after = {**placed, **moves}
    before_spread = spread(held(placed.values(), grown).values())
    assert spread(held(after.values(), grown).values()) <= max(1, before_spread)
    assert plan_balance(after, grown) == {}


@given(sites=_SITES.filter(lambda sites: len(sites) > 1), data=st.data())
@settings(deadline=None)
def test_an_emptied_broker_holds_nothing_and_the_others_share_it(sites: list[Site], data: st.DataObject) -> None:
    broker = data.draw(st.sampled_from(sites)).broker
    others = [site for site in sites if site.broker != broker]
    placed = {
        partition: replicas for partition, replicas in _clusterwide(sites, data).items() if len(replicas) <= len(others)
    }
    racks = dict(sites)
    moves = plan_emptying(placed, broker, others)
    assert set(moves) == {partition for partition, replicas in placed.items() if broker in replicas}
    for partition, replicas in moves.items():
        assert broker not in replicas
        assert len(set(replicas)) == len(placed[partition])
        assert set(placed[partition]) - set(replicas) == {broker}, "CLS-34: nothing else moves"
        best = min(
            rack_crowding([*(one for one in placed[partition] if one != broker), site.broker], racks)
            for site in others
            if site.broker not in placed[partition]
        )
        assert rack_crowding(replicas, racks) == best


@pytest.mark.parametrize("count", range(2, 6))
def test_no_other_choice_would_empty_a_broker_more_evenly(count: int) -> None:
    sites = [Site(BrokerId(number)) for number in range(count)]
    for partitions, factor in product(range(1, 7), range(1, count)):
        chosen = place_partitions(sites, count=partitions, replication_factor=factor)
        placed = {TopicPartition("t", index): replicas for index, replicas in enumerate(chosen)}
        moves = plan_emptying(placed, BrokerId(0), sites[1:])
        kept = held(placed.values(), sites[1:])
        targets = [
            [site.broker for site in sites[1:] if site.broker not in replicas]
            for replicas in placed.values()
            if BrokerId(0) in replicas
        ]
        best = min(spread([kept[broker] + choice.count(broker) for broker in kept]) for choice in product(*targets))
        assert spread(held({**placed, **moves}.values(), sites[1:]).values()) == best


@given(count=st.integers(2, 7), partitions=st.integers(1, 30), data=st.data())
@settings(deadline=None)
def test_a_broker_without_racks_is_emptied_evenly(count: int, partitions: int, data: st.DataObject) -> None:
    sites = [Site(BrokerId(number)) for number in range(count)]
    factor = data.draw(st.integers(1, count - 1))
    chosen = place_partitions(sites, count=partitions, replication_factor=factor)
    placed = {TopicPartition("t", index): replicas for index, replicas in enumerate(chosen)}
    moves = plan_emptying(placed, BrokerId(0), sites[1:])
    # Each replica of the emptied broker moves once and nothing else does, so one more than perfect may remain.
    assert spread(held({**placed, **moves}.values(), sites[1:]).values()) <= 2


@given(sites=_SITES, data=st.data())
@settings(deadline=None)
def test_another_replication_factor_keeps_the_preferred_leader_and_what_is_there(
    sites: list[Site], data: st.DataObject
) -> None:
    placed = _clusterwide(sites, data)
    factor = data.draw(st.integers(1, len(sites)))
    moves = plan_replication_factor(placed, factor, sites, held(placed.values(), sites))
    for partition, replicas in {**placed, **moves}.items():
        before = placed[partition]
        assert len(set(replicas)) == factor
        assert replicas[0] == before[0]
        assert set(replicas) <= set(before) or set(before) <= set(replicas), "CLS-34: nothing else moves"


@given(sites=_SITES, data=st.data())
@settings(deadline=None)
def test_cls_26_cls_27_partitions_are_brought_onto_the_named_brokers_once_and_for_all(
    sites: list[Site], data: st.DataObject
) -> None:
    everybody = [BrokerId(number) for number in range(len(sites) + 3)]
    size = data.draw(st.integers(1, len(everybody)))
    replicas = st.lists(st.sampled_from(everybody), min_size=size, max_size=size, unique=True).map(tuple)
    placed = {
        TopicPartition(topic, index): one
        for topic in ("t", "u")
        for index, one in enumerate(data.draw(st.lists(replicas, max_size=12)))
    }
    named = data.draw(st.lists(st.sampled_from(sites), min_size=1, unique=True))
    factor = data.draw(st.integers(1, len(named)))
    moves = plan_onto(placed, named, factor=factor)
    after = placed | moves
    brokers = {site.broker for site in named}
    assert all(set(one) <= brokers and len(set(one)) == len(one) == factor for one in after.values())
    assert plan_onto(after, named) == plan_onto(after, named, factor=factor) == {}
