"""The fingerprint of topics, and what a change of members does to the topics a group asks for."""

from martlet.groups.consumer.consumer_group import ConsumerGroup
from martlet.groups.consumer.subscriptions import SubscriptionChange, hash_of_topics
from martlet.groups.records import ConsumerGroupStored, ConsumerMemberStored, RegexRemoved, RegexResolved
from tests.unit.groups.consumer.sim_topics import SimTopics


def test_the_fingerprint_ignores_order_and_topics_that_do_not_exist() -> None:
    topics = SimTopics(one=1, two=2)
    assert hash_of_topics(["one", "two"], topics) == hash_of_topics(["two", "missing", "one"], topics)
    assert hash_of_topics([], topics) != 0


def test_the_fingerprint_sees_partitions_racks_and_ids() -> None:
    topics = SimTopics(one=1)
    seen = {hash_of_topics(["one"], topics)}
    topics.grow("one", 2)
    seen.add(hash_of_topics(["one"], topics))
    topics.delete("one")
    topics.create("one", 2)
    seen.add(hash_of_topics(["one"], topics))
    topics.delete("one")
    topics.create("one", 2, ["east", "west"])
    seen.add(hash_of_topics(["one"], topics))
    assert len(seen) == 4
    assert all(-(1 << 63) <= value < 1 << 63 for value in seen)


def test_the_fingerprint_stays_when_no_topic_comes_or_goes() -> None:
    topics = SimTopics(one=1)
    group = ConsumerGroup("g")
    group.replay(ConsumerMemberStored("g", "a", topic_names=("one",)))
    group.replay(ConsumerGroupStored("g", 1, 42))
    change = SubscriptionChange(group, topics)
    change.change(None, ConsumerMemberStored("g", "b", topic_names=("one",)), 0)
    assert change.metadata_hash() == 42
    change = SubscriptionChange(group, topics)
    change.change(group.members["a"].stored, None, 0)
    assert change.metadata_hash() == hash_of_topics([], topics)


def test_an_expression_is_resolved_by_its_first_user_and_forgotten_with_its_last() -> None:
    topics = SimTopics(one=1, two=1, three=1)
    group = ConsumerGroup("g")
    first, second = (ConsumerMemberStored("g", name, topic_regex="t.*") for name in "ab")
    change = SubscriptionChange(group, topics)
    change.change(None, first, 5)
    change.change(None, second, 5)
    assert change.records == [RegexResolved("g", "t.*", ("three", "two"), 5)]
    assert change.metadata_hash() == hash_of_topics(["two", "three"], topics)
    for record in (first, second, *change.records):
        group.replay(record)
    change = SubscriptionChange(group, topics)
    change.change(first, None, 6)
    assert change.records == []
    change.change(second, None, 6)
    assert change.records == [RegexRemoved("g", "t.*")]
    assert change.metadata_hash() == hash_of_topics([], topics)
