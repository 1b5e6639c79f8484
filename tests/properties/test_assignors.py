"""Properties of the assignors: complete, balanced, sticky, near, whatever the members and topics are."""

from collections import Counter
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from martlet.base.ids import TopicId
from martlet.groups.consumer.assignors import ASSIGNORS
from martlet.groups.consumer.assignors.specification import MemberSpecification
from martlet.groups.ports import TopicView
from martlet.groups.records import NO_PARTITIONS, Partitions

RACKS = ("east", "north", "west")
Members = dict[str, MemberSpecification]
Topics = dict[str, TopicView]
Outcome = dict[str, Partitions]

both = pytest.mark.parametrize("name", sorted(ASSIGNORS))


@st.composite
def some_topics(draw: st.DrawFn, *, racks: bool = False) -> Topics:
    topics: Topics = {}
    for number in range(draw(st.integers(1, 4))):
        name, count = f"t{number}", draw(st.integers(0, 9))
        homes = [frozenset(draw(st.sets(st.sampled_from(RACKS), min_size=1, max_size=2))) for _ in range(count)]
        topics[name] = TopicView(TopicId(name.encode().ljust(16)), name, count, tuple(homes) if racks else ())
    return topics


@st.composite
def some_members(draw: st.DrawFn, topics: Topics, *, alike: bool = False, racks: bool = False) -> Members:
    """Members, who already hold partitions in some way or other: as an assignor left them, or any old way."""
    names = sorted(topics)
    everything = frozenset(names)
    count = draw(st.integers(1, 8))
    members: Members = {}
    for number in range(count):
        subscription = everything if alike else frozenset(draw(st.sets(st.sampled_from([*names, "missing"]))))
        rack = draw(st.sampled_from((*RACKS, None))) if racks else None
        members[f"m{number}"] = MemberSpecification(subscription, NO_PARTITIONS, rack, f"m{number}")
    held: dict[str, set[tuple[TopicId, int]]] = {member: set() for member in members}
    for view in topics.values():
        for partition in range(view.partition_count + 1):  # one that does not exist any more
            holder = draw(st.sampled_from([None, *members]))
            if holder is not None:
                held[holder].add((view.id, partition))
    return {id_: one._replace(partitions=frozenset(held[id_])) for id_, one in members.items()}


def wanted(members: Members, topics: Topics) -> set[tuple[TopicId, int]]:
    names = {name for one in members.values() for name in one.topics if name in topics}
    return {(topics[name].id, number) for name in names for number in range(topics[name].partition_count)}


def after(members: Members, outcome: Outcome) -> Members:
    return {id_: one._replace(partitions=outcome[id_]) for id_, one in members.items()}


def moves(before: Members, outcome: Outcome) -> int:
    """Partitions that one member held and another holds now."""
    holder = {partition: id_ for id_, one in before.items() for partition in one.partitions}
    return sum(holder.get(partition, id_) != id_ for id_, partitions in outcome.items() for partition in partitions)


@both
@given(data=st.data(), topics=some_topics(racks=True))
def test_every_partition_goes_to_exactly_one_member_that_wants_it(
    name: str, data: st.DataObject, topics: Topics
) -> None:
    members = data.draw(some_members(topics, racks=True))
    outcome = ASSIGNORS[name](members, topics)
    assert set(outcome) == set(members)
    given_out = Counter(partition for partitions in outcome.values() for partition in partitions)
    assert set(given_out) == wanted(members, topics)
    assert max(given_out.values(), default=1) == 1
    for id_, partitions in outcome.items():
        ids = {topics[topic].id for topic in members[id_].topics if topic in topics}
        assert {topic_id for topic_id, _ in partitions} <= ids


@both
@given(data=st.data(), topics=some_topics(racks=True))
def test_its_own_outcome_is_left_as_it_is(name: str, data: st.DataObject, topics: Topics) -> None:
    members = data.draw(some_members(topics, racks=True))
    outcome = ASSIGNORS[name](members, topics)
    again = ASSIGNORS[name](after(members, outcome), topics)
    assert again == outcome
    assert all(again[id_] is outcome[id_] for id_ in members), "unchanged partitions are the same object"


@given(data=st.data(), topics=some_topics(racks=True))
def test_uniform_gives_members_with_equal_wishes_equal_loads(data: st.DataObject, topics: Topics) -> None:
    members = data.draw(some_members(topics, alike=True, racks=True))
    loads = [len(partitions) for partitions in ASSIGNORS["uniform"](members, topics).values()]
    assert max(loads) - min(loads) <= 1


@given(data=st.data(), topics=some_topics(racks=True))
def test_uniform_leaves_no_move_that_would_even_out_loads(data: st.DataObject, topics: Topics) -> None:
    members = data.draw(some_members(topics, racks=True))
    outcome = ASSIGNORS["uniform"](members, topics)
    names = {view.id: name for name, view in topics.items()}
    for id_, partitions in outcome.items():
        for topic_id in {topic_id for topic_id, _ in partitions}:
            for other, specification in members.items():
                if names[topic_id] in specification.topics:
                    assert len(partitions) - len(outcome[other]) <= 1, (id_, other)


@given(data=st.data(), topics=some_topics(racks=True))
def test_range_is_even_in_each_topic_and_alike_in_like_topics(data: st.DataObject, topics: Topics) -> None:
    members = data.draw(some_members(topics, racks=True))
    outcome = ASSIGNORS["range"](members, topics)
    splits: dict[tuple[frozenset[str], int], dict[str, set[int]]] = {}
    for name, view in topics.items():
        subscribers = frozenset(id_ for id_, one in members.items() if name in one.topics)
        split = {id_: {number for topic_id, number in outcome[id_] if topic_id == view.id} for id_ in subscribers}
        if subscribers:
            loads = [len(numbers) for numbers in split.values()]
            assert max(loads) - min(loads) <= 1
            assert splits.setdefault((subscribers, view.partition_count), split) == split


@given(topics=some_topics(), count=st.integers(1, 6))
def test_range_begins_with_ranges_in_the_order_of_members(topics: Topics, count: int) -> None:
    members = {f"m{number}": MemberSpecification(frozenset(topics), NO_PARTITIONS) for number in range(count)}
    outcome = ASSIGNORS["range"](members, topics)
    for view in topics.values():
        dealt = [number for id_ in members for topic_id, number in sorted(outcome[id_]) if topic_id == view.id]
        assert dealt == list(range(view.partition_count))


@both
@given(topics=some_topics(), count=st.integers(1, 8))
def test_a_new_member_takes_only_its_share(name: str, topics: Topics, count: int) -> None:
    everything = frozenset(topics)
    members = {f"m{number}": MemberSpecification(everything, NO_PARTITIONS, None, "m") for number in range(count)}
    members = after(members, ASSIGNORS[name](members, topics))
    grown = {**members, "new": MemberSpecification(everything, NO_PARTITIONS, None, "n")}
    outcome = ASSIGNORS[name](grown, topics)
    assert moves(members, outcome) == len(outcome["new"])


@both
@given(topics=some_topics(), count=st.integers(2, 8), data=st.data())
def test_only_the_partitions_of_a_member_that_leaves_move(
    name: str, topics: Topics, count: int, data: st.DataObject
) -> None:
    everything = frozenset(topics)
    members = {f"m{number}": MemberSpecification(everything, NO_PARTITIONS, None, "m") for number in range(count)}
    members = after(members, ASSIGNORS[name](members, topics))
    gone = members.pop(data.draw(st.sampled_from(sorted(members))))
    outcome = ASSIGNORS[name](members, topics)
    assert moves({**members, "gone": gone}, outcome) == len(gone.partitions)


@both
@given(topics=some_topics(), more=st.integers(1, 5), count=st.integers(1, 6))
def test_new_partitions_move_no_old_ones(name: str, topics: Topics, more: int, count: int) -> None:
    members = {f"m{number}": MemberSpecification(frozenset(topics), NO_PARTITIONS) for number in range(count)}
    members = after(members, ASSIGNORS[name](members, topics))
    grown = {topic: replace(view, partition_count=view.partition_count + more) for topic, view in topics.items()}
    assert moves(members, ASSIGNORS[name](members, grown)) == 0


@given(data=st.data(), topics=some_topics(racks=True))
def test_uniform_leaves_no_exchange_that_would_bring_partitions_home(data: st.DataObject, topics: Topics) -> None:
    """No two members could swap a partition each so that more of them are in their racks."""
    members = data.draw(some_members(topics, alike=True, racks=True))
    outcome = ASSIGNORS["uniform"](members, topics)
    views = {view.id: view for view in topics.values()}

    def near(id_: str, partition: tuple[TopicId, int]) -> bool:
        return members[id_].rack in views[partition[0]].racks[partition[1]]

    for one, held in outcome.items():
        for other, theirs in outcome.items():
            if members[one].rack is None or members[other].rack is None:
                continue
            for mine in held:
                for yours in theirs:
                    now = near(one, mine) + near(other, yours)
                    assert near(one, yours) + near(other, mine) <= now, (one, mine, other, yours)
