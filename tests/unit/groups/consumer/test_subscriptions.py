"""The hash of topics, and how a change of members changes the topics a group subscribes to."""

from martlet.groups.consumer.consumer_group import ConsumerGroup
from martlet.groups.consumer.subscriptions import (
    ConsumerDraft,
    hash_of_topics,
    raise_epoch,
    remove_if_unused,
    resolve_if_new,
)
from martlet.groups.records import (
    ConsumerGroupStored,
    ConsumerMemberRemoved,
    ConsumerMemberStored,
    RegexRemoved,
    RegexResolved,
)
from tests.unit.groups.consumer.sim_topics import SimTopics

TOPICS = SimTopics(one=1, two=1, three=1)


def draft_of(group: ConsumerGroup) -> ConsumerDraft:
    return ConsumerDraft(group, TOPICS, 5)


def test_the_hash_ignores_order_and_topics_that_do_not_exist() -> None:
    topics = SimTopics(one=1, two=2)
    assert hash_of_topics(["one", "two"], topics) == hash_of_topics(["two", "missing", "one"], topics)
    assert hash_of_topics([], topics) != 0


def test_the_hash_sees_partitions_racks_and_ids() -> None:
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


def test_the_hash_stays_when_no_topic_comes_or_goes() -> None:
    group = ConsumerGroup("g")
    group.replay(ConsumerMemberStored("g", "a", topic_names=("one",)))
    group.replay(ConsumerGroupStored("g", 1, 42))
    draft = draft_of(group)
    draft.record(ConsumerMemberStored("g", "b", topic_names=("one",)))
    raise_epoch(draft)
    assert draft.records[-1] == ConsumerGroupStored("g", 2, 42)
    draft = draft_of(group)
    draft.record(ConsumerMemberRemoved("g", "a"), ConsumerMemberStored("g", "b", topic_names=("one",)))
    raise_epoch(draft)
    assert draft.records[-1] == ConsumerGroupStored("g", 2, 42)
    draft = draft_of(group)
    draft.record(ConsumerMemberRemoved("g", "a"))
    raise_epoch(draft)
    assert draft.records[-1] == ConsumerGroupStored("g", 2, hash_of_topics([], TOPICS))


def test_an_expression_is_matched_by_its_first_user_and_removed_with_its_last() -> None:
    group = ConsumerGroup("g")
    draft = draft_of(group)
    for name in "ab":
        draft.record(ConsumerMemberStored("g", name, topic_regex="t.*"))
        resolve_if_new(draft, "t.*")
    raise_epoch(draft)
    assert draft.records[1] == RegexResolved("g", "t.*", ("three", "two"), 5)
    assert draft.records[3:] == [ConsumerGroupStored("g", 1, hash_of_topics(["two", "three"], TOPICS))]
    for record in draft.records:
        group.replay(record)
    draft = draft_of(group)
    draft.record(ConsumerMemberRemoved("g", "a"))
    remove_if_unused(draft, "t.*")
    assert len(draft.records) == 1
    draft.record(ConsumerMemberRemoved("g", "b"))
    remove_if_unused(draft, "t.*")
    raise_epoch(draft)
    assert draft.records[2:] == [
        RegexRemoved("g", "t.*"),
        ConsumerGroupStored("g", 2, hash_of_topics([], TOPICS)),
    ]
