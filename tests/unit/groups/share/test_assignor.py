"""The simple assignor: everyone has a part, evenly, and keeps it while that is even."""

from martlet.groups.records import Partitions
from martlet.groups.share.assignor import assign
from tests.unit.groups.consumer.sim_topics import SimTopics


def assigned(topics: SimTopics, before: dict[str, Partitions], **subscriptions: str) -> dict[str, Partitions]:
    names = {member: text.split() for member, text in subscriptions.items()}
    views = {name: view for wanted in names.values() for name in wanted if (view := topics.topic(name)) is not None}
    return assign(names, views, before)


def sizes(assignment: dict[str, Partitions]) -> list[int]:
    return sorted(len(partitions) for partitions in assignment.values())


def numbers(partitions: Partitions) -> list[int]:
    return sorted(number for _, number in partitions)


def test_more_partitions_than_members_are_not_shared() -> None:
    given = assigned(SimTopics(orders=7), {}, ann="orders", bob="orders", cid="orders")
    assert sizes(given) == [2, 2, 3]
    assert sorted(number for partitions in given.values() for number in numbers(partitions)) == list(range(7))


def test_more_members_than_partitions_share_them() -> None:
    members = {f"member{number}": "orders" for number in range(8)}
    given = assigned(SimTopics(orders=1), {}, **members)
    assert sizes(given) == [1] * 8
    given = assigned(SimTopics(orders=3), {}, **members)
    shared = [sum(number in numbers(partitions) for partitions in given.values()) for number in range(3)]
    assert shared == [3, 3, 3]
    assert sizes(given)[0] >= 1


def test_what_a_member_has_it_keeps() -> None:
    topics = SimTopics(orders=6)
    before = assigned(topics, {}, ann="orders", bob="orders")
    assert assigned(topics, before, ann="orders", bob="orders") == before
    after = assigned(topics, before, ann="orders", bob="orders", cid="orders")
    assert sizes(after) == [2, 2, 2]
    assert after["ann"] <= before["ann"]
    assert after["bob"] <= before["bob"]


def test_what_a_member_leaves_goes_to_the_others() -> None:
    topics = SimTopics(orders=6)
    before = assigned(topics, {}, ann="orders", bob="orders", cid="orders")
    after = assigned(topics, before, ann="orders", bob="orders")
    assert sizes(after) == [3, 3]
    assert before["ann"] <= after["ann"]


def test_members_get_only_what_they_subscribe_to() -> None:
    topics = SimTopics(orders=2, bills=2)
    given = assigned(topics, {}, ann="orders", bob="orders bills", cid="missing")
    assert {topic for topic, _ in given["ann"]} == {topics.id_of("orders")}
    assert given["cid"] == frozenset()
    assert sizes(given) == [0, 2, 2], "bob has the bills, so ann has the orders"


def test_no_members_and_no_topics_make_an_empty_assignment() -> None:
    assert assign({}, {}, {}) == {}
    assert assigned(SimTopics(), {}, ann="orders") == {"ann": frozenset()}
