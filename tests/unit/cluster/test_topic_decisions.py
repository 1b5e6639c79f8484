"""Decisions about topics: what is refused and with which error, and what is committed."""

from collections.abc import Mapping, Sequence
from typing import Any

import pytest

from martlet.base.errors import ApiError, ErrorCode
from martlet.base.ids import BrokerId, Incarnation, Member
from martlet.cluster.keys import partition_key, topic_key, unfinished_key
from martlet.cluster.records import TopicRecord, UnfinishedRecord, decode_record
from martlet.cluster.store import COMMIT_OPERATIONS_MAX, CommitPlan
from martlet.cluster.topic_decisions import (
    TopicDefaults,
    TopicDesign,
    TopicWish,
    design_growth,
    design_topic,
    plan_deletion,
    plan_growth,
    plan_large_topic_rest,
    plan_large_topic_start,
    plan_topic,
    plan_topic_configs,
    plan_unfinished_removal,
)
from tests.unit.cluster.images import FollowedStore, topic_id

_DEFAULTS = TopicDefaults(partition_count=2, replication_factor=1)
_MAKER = Member(BrokerId(1), Incarnation(10))


def _design(store: FollowedStore, name: str = "t", number: int = 1, **wishes: Any) -> TopicDesign:
    wish = TopicWish(name=name, **wishes)
    return design_topic(wish, store.image, _DEFAULTS, topic_id=topic_id(number), now_ms=99)


def _make(store: FollowedStore, name: str, number: int, **wishes: Any) -> TopicRecord:
    store.commit(plan_topic(_design(store, name, number, **wishes)))
    made = store.image.topic(name)
    assert made is not None
    return made


def _refused(store: FollowedStore, code: ErrorCode, sentence: str, **wishes: Any) -> None:
    with pytest.raises(ApiError, match=sentence) as caught:
        _design(store, **wishes)
    assert caught.value.code is code


def test_a_bare_name_takes_the_defaults() -> None:
    made = _make(FollowedStore([1]), "t", 1)
    assert (made.partition_count, made.replication_factor, made.configs, made.internal) == (2, 1, {}, False)
    assert made.created_at_ms == 99


def test_cls_44_a_new_partition_is_led_by_its_first_replica_at_epoch_zero() -> None:
    store = FollowedStore([1, 2, 3])
    _make(store, "t", 1, partition_count=3, replication_factor=2)
    for record in store.image.partitions("t"):
        assert record.leader == record.replicas[0]
        assert record.leader_epoch == 0
        assert record.isr == tuple(Member(broker, Incarnation(broker * 10)) for broker in record.replicas)
    assert {record.leader for record in store.image.partitions("t")} == {1, 2, 3}


def test_replicas_are_placed_as_assigned() -> None:
    store = FollowedStore([1, 2])
    made = _make(store, "t", 1, assignments={1: [1, 2], 0: [2, 1]})
    assert (made.partition_count, made.replication_factor) == (2, 2)
    assert [record.replicas for record in store.image.partitions("t")] == [(2, 1), (1, 2)]


@pytest.mark.parametrize("count", [0, -2, 10_001])
def test_a_partition_count_out_of_range_is_refused(count: int) -> None:
    _refused(FollowedStore([1]), ErrorCode.INVALID_PARTITIONS, "from 1 to 10000", partition_count=count)


@pytest.mark.parametrize(("factor", "brokers", "sentence"), [(3, [1], "there is 1 broker"), (3, [1, 2], "2 brokers")])
def test_a_replication_factor_beyond_the_brokers_names_how_many_there_are(
    factor: int, brokers: list[int], sentence: str
) -> None:
    store = FollowedStore(brokers)
    _refused(store, ErrorCode.INVALID_REPLICATION_FACTOR, sentence, replication_factor=factor)
    _refused(store, ErrorCode.INVALID_REPLICATION_FACTOR, "not possible", replication_factor=0)


def test_a_cluster_without_brokers_makes_no_topic() -> None:
    _refused(FollowedStore(), ErrorCode.INVALID_REPLICATION_FACTOR, "there are 0 brokers")


@pytest.mark.parametrize(
    ("assignments", "sentence"),
    [
        ({1: [1]}, "from 0 without gaps"),
        ({0: [1], 2: [1]}, "from 0 without gaps"),
        ({0: []}, "at least one broker"),
        ({0: [1, 1]}, "named twice"),
        ({0: [7]}, "no broker 7"),
        ({0: [1], 1: [1, 2]}, "must have 1 replicas"),
    ],
)
def test_a_wrong_assignment_is_refused(assignments: Mapping[int, Sequence[int]], sentence: str) -> None:
    _refused(FollowedStore([1, 2]), ErrorCode.INVALID_REPLICA_ASSIGNMENT, sentence, assignments=assignments)


def test_an_assignment_beside_numbers_is_refused() -> None:
    store = FollowedStore([1])
    _refused(store, ErrorCode.INVALID_REQUEST, "not both", assignments={0: [1]}, partition_count=1)


def test_configs_are_checked_before_anything_is_made() -> None:
    _refused(FollowedStore([1]), ErrorCode.INVALID_CONFIG, r"retention\.ms", configs={"retention.ms": "x"})


def test_a_name_in_use_or_too_like_one_is_refused() -> None:
    store = FollowedStore([1])
    _make(store, "a.b", 1)
    _refused(store, ErrorCode.TOPIC_ALREADY_EXISTS, "exists already", name="a.b")
    _refused(store, ErrorCode.INVALID_TOPIC_EXCEPTION, r"existing topic a\.b", name="a_b")
    _refused(store, ErrorCode.INVALID_TOPIC_EXCEPTION, "only ASCII", name="a b")


def test_names_that_collide_cannot_both_be_committed_even_when_decided_at_once() -> None:
    store = FollowedStore([1])
    first, second = plan_topic(_design(store, "a.b", 1)), plan_topic(_design(store, "a_b", 2))
    assert first.compares[topic_key("a.b")] == second.compares[topic_key("a_b")] == 0
    store.commit(first)
    with pytest.raises(AssertionError, match="would fail"):
        store.commit(second)


def test_internal_topics_are_made_by_the_broker_only() -> None:
    store = FollowedStore([1])
    _refused(store, ErrorCode.INVALID_TOPIC_EXCEPTION, "internal", name="__consumer_offsets")
    for lookalike in ("_.consumer_offsets", "..consumer.offsets", "__transaction.state"):
        _refused(store, ErrorCode.INVALID_TOPIC_EXCEPTION, "internal", name=lookalike)
    made = _make(store, "__consumer_offsets", 1, by_broker=True)
    assert made.internal
    with pytest.raises(ApiError, match="cannot be deleted"):
        plan_deletion(made)
    with pytest.raises(ApiError, match="cannot be changed"):
        design_growth(made, store.image, _DEFAULTS, partition_count=5)


def test_cls_43_a_large_topic_is_invisible_until_its_last_commit() -> None:
    store = FollowedStore([1])
    design = _design(store, partition_count=250)
    assert design.is_large
    store.commit(plan_large_topic_start(design, _MAKER))
    plans = list(plan_large_topic_rest(design, store.revision))
    assert len(plans) == 4
    for plan in plans[:-1]:
        assert max(len(plan.compares), len(plan.puts)) <= COMMIT_OPERATIONS_MAX
        assert not store.commit(plan).topics
    delta = store.commit(plans[-1])
    assert [made.name for made in delta.topics_created] == ["t"]
    assert len(delta.partitions) == 250
    assert unfinished_key(topic_id(1)) not in store.entries


def test_a_large_topic_that_was_swept_away_cannot_go_on() -> None:
    store = FollowedStore([1])
    design = _design(store, partition_count=150)
    store.commit(plan_large_topic_start(design, _MAKER))
    plans = list(plan_large_topic_rest(design, store.revision))
    store.commit(plans[0])
    intent = decode_record(UnfinishedRecord, store.entries[unfinished_key(topic_id(1))])
    assert (intent.name, intent.maker) == ("t", _MAKER)
    store.commit(plan_unfinished_removal(intent))
    assert not [key for key in store.entries if not key.startswith("broker/")]
    for plan in plans[1:]:
        with pytest.raises(AssertionError, match="would fail"):
            store.commit(plan)


def test_growth_adds_partitions_that_appear_at_once() -> None:
    store = FollowedStore([1])
    made = _make(store, "t", 1)
    plans = list(plan_growth(design_growth(made, store.image, _DEFAULTS, partition_count=252)))
    assert len(plans) == 3
    for plan in plans[:-1]:
        assert not store.commit(plan).partitions
    assert len(store.commit(plans[-1]).partitions) == 250
    assert len(store.image.partitions("t")) == 252


def test_growth_goes_to_the_brokers_that_lack_the_topic() -> None:
    store = FollowedStore([1, 2, 3])
    _make(store, "t", 1, assignments={0: [2]})
    grown = store.image.topic("t")
    assert grown is not None
    for plan in plan_growth(design_growth(grown, store.image, _DEFAULTS, partition_count=3)):
        store.commit(plan)
    leaders = [record.leader for record in store.image.partitions("t")]
    assert (leaders[0], set(leaders[1:])) == (2, {1, 3})


def test_growth_to_fewer_or_as_many_partitions_is_refused() -> None:
    store = FollowedStore([1])
    made = _make(store, "t", 1)
    for count in (2, 1, 0, -1):
        with pytest.raises(ApiError, match="has 2 partitions") as caught:
            design_growth(made, store.image, _DEFAULTS, partition_count=count)
        assert caught.value.code is ErrorCode.INVALID_PARTITIONS


@pytest.mark.parametrize(
    ("assignments", "sentence"),
    [([[1]], "2 partitions are added"), ([[1], [9]], "no broker 9"), ([[1], [1, 2]], "must have 1 replicas")],
)
def test_growth_with_a_wrong_assignment_is_refused(assignments: list[list[int]], sentence: str) -> None:
    store = FollowedStore([1, 2])
    made = _make(store, "t", 1)
    with pytest.raises(ApiError, match=sentence) as caught:
        design_growth(made, store.image, _DEFAULTS, partition_count=4, assignments=assignments)
    assert caught.value.code is ErrorCode.INVALID_REPLICA_ASSIGNMENT


def test_growth_can_be_assigned() -> None:
    store = FollowedStore([1, 2])
    made = _make(store, "t", 1, partition_count=1)
    for plan in plan_growth(design_growth(made, store.image, _DEFAULTS, partition_count=2, assignments=[[2]])):
        store.commit(plan)
    grown = store.image.partition("t", 1)
    assert grown is not None
    assert grown.replicas == (2,)


def test_deletion_is_one_commit_and_takes_uncounted_partitions_too() -> None:
    store = FollowedStore([1])
    made = _make(store, "t", 1)
    growth = list(plan_growth(design_growth(made, store.image, _DEFAULTS, partition_count=150)))
    store.commit(growth[0])
    store.commit(plan_deletion(made))
    assert not [key for key in store.entries if not key.startswith("broker/")]
    with pytest.raises(AssertionError, match="would fail"):
        store.commit(growth[1])


def test_changed_configs_keep_everything_else() -> None:
    store = FollowedStore([1])
    made = _make(store, "t", 1, configs={"retention.ms": "5"})
    delta = store.commit(plan_topic_configs(made, {"segment.ms": "6"}))
    ((before, after),) = delta.topics_changed
    assert (before.configs, after.configs) == ({"retention.ms": "5"}, {"segment.ms": "6"})
    assert after.id == before.id


def test_a_topic_of_one_batch_is_one_commit() -> None:
    plan = plan_topic(_design(FollowedStore([1]), partition_count=100))
    assert isinstance(plan, CommitPlan)
    assert len(plan.puts) == 101
    assert partition_key(topic_id(1), 99) in plan.puts
