"""The metadata image follows the store revision by revision and says what has changed."""

import pytest

from martlet.base.errors import InvariantViolation, StorageFailure
from martlet.base.ids import BrokerId
from martlet.cluster.broker_decisions import plan_group_configs
from martlet.cluster.image import ImageDelta, MetadataImage
from martlet.cluster.keys import broker_config_key, partition_key, topic_key
from martlet.cluster.records import ClusterRecord, ConfigRecord, encode_record
from martlet.cluster.store import Change, CommitPlan, Listing
from tests.unit.cluster.images import FollowedStore, partition, puts, topic, topic_id


def _names(delta: ImageDelta) -> tuple[list[str], list[str], list[str]]:
    return (
        [each.name for each in delta.topics_created],
        [each.name for each in delta.topics_deleted],
        [after.name for _, after in delta.topics_changed],
    )


def test_a_topic_made_in_one_revision_is_found_by_name_id_and_partition() -> None:
    store = FollowedStore()
    delta = store.commit(puts(topic("b", 1, partitions=2), partition(1, 0), partition(1, 1)))
    assert _names(delta) == (["b"], [], [])
    assert [(change.topic, change.before) for change in delta.partitions] == [("b", None), ("b", None)]
    image = store.image
    found = image.topic("b")
    assert found is not None
    assert image.topic_by_id(topic_id(1)) == found
    assert image.partition("b", 1) == partition(1, 1)
    assert image.partition("b", 2) is None
    assert image.partition("b", -1) is None
    assert image.partition("c", 0) is None
    assert len(image.partitions("b")) == 2
    assert image.partitions("c") == ()


def test_topics_are_sorted_by_name_and_stay_so() -> None:
    store = FollowedStore()
    for number, name in enumerate(["c", "a", "b"]):
        store.commit(puts(topic(name, number), partition(number, 0)))
        assert [each.name for each in store.image.topics()] == sorted(each.name for each in store.image.topics())
    assert [each.name for each in store.image.topics()] == ["a", "b", "c"]


def test_cls_2_partitions_stay_unseen_until_their_topic_counts_them() -> None:
    store = FollowedStore()
    early = store.commit(puts(partition(1, 0), partition(1, 1), partition(1, 2)))
    assert (early.topics, early.partitions) == ((), ())
    made = store.commit(puts(topic("t", 1, partitions=2)))
    assert len(made.partitions) == 2
    assert store.image.partition("t", 2) is None
    grown = store.commit(puts(topic("t", 1, partitions=3)))
    assert [change.after for change in grown.partitions] == [partition(1, 2)]
    assert _names(grown) == ([], [], ["t"])


def test_cls_2_a_topic_without_its_partitions_is_a_broken_invariant() -> None:
    with pytest.raises(InvariantViolation, match="CLS-2"):
        FollowedStore().commit(puts(topic("t", 1, partitions=2), partition(1, 0)))


def test_deletion_takes_the_topic_and_its_partitions_away() -> None:
    store = FollowedStore()
    store.commit(puts(topic("t", 1), partition(1, 0)))
    delta = store.commit(CommitPlan(deletes=(topic_key("t"),), delete_prefixes=("partition/",)))
    assert _names(delta) == ([], ["t"], [])
    assert [change.after for change in delta.partitions] == [None]
    assert store.image.topic("t") is None
    assert store.image.topic_by_id(topic_id(1)) is None
    assert store.image.topics() == ()


def test_a_topic_made_again_under_its_name_is_one_deleted_and_one_created() -> None:
    store = FollowedStore()
    store.commit(puts(topic("t", 1), partition(1, 0)))
    follower = MetadataImage()
    follower.load(store.listing())
    store.commit(CommitPlan(deletes=(topic_key("t"), partition_key(topic_id(1), 0))))
    store.commit(puts(topic("t", 2), partition(2, 0)))
    delta = follower.load(store.listing())
    assert _names(delta) == (["t"], ["t"], [])
    assert delta.topics[0].after is None, "deletions come first"
    found = follower.topic("t")
    assert found is not None
    assert found.id == topic_id(2)
    assert follower.topic_by_id(topic_id(1)) is None


def test_an_election_changes_one_partition_and_nothing_else() -> None:
    store = FollowedStore()
    store.commit(puts(topic("t", 1, partitions=3), *(partition(1, index) for index in range(3))))
    delta = store.commit(puts(partition(1, 1, epoch=1)))
    assert delta.topics == ()
    assert [(change.before, change.after) for change in delta.partitions] == [
        (partition(1, 1), partition(1, 1, epoch=1))
    ]


def test_cls_3_a_topic_written_again_unchanged_is_no_change_but_its_revision_is_known() -> None:
    store = FollowedStore()
    store.commit(puts(topic("t", 1), partition(1, 0)))
    delta = store.commit(puts(topic("t", 1)))
    assert (delta.topics, delta.partitions) == ((), ())
    found = store.image.topic("t")
    assert found is not None
    assert found.mod_revision == store.revision


def test_cls_3_a_partition_written_again_unchanged_is_a_change_because_its_epoch_is_another() -> None:
    store = FollowedStore()
    store.commit(puts(topic("t", 1), partition(1, 0)))
    [change] = store.commit(puts(partition(1, 0))).partitions
    assert change.before == change.after
    assert change.after is not None
    assert change.after.mod_revision == store.revision


def test_brokers_and_their_settings_are_followed() -> None:
    store = FollowedStore([2, 1])
    assert store.image.incarnations() == {1: 10, 2: 20}
    delta = store.put_broker(1, incarnation=30)
    assert [
        (change.before and change.before.incarnation, change.after and change.after.incarnation)
        for change in delta.brokers
    ] == [(10, 30)]
    for broker in (BrokerId(1), None):
        record = ConfigRecord(broker, {"log.retention.ms": "5"})
        delta = store.commit(CommitPlan(puts={broker_config_key(broker): encode_record(record)}))
        assert delta.broker_configs == (broker,)
        assert store.image.broker_configs(broker) == {"log.retention.ms": "5"}
    delta = store.commit(CommitPlan(deletes=(broker_config_key(None), "broker/2")))
    assert store.image.broker_configs(None) == {}
    assert [each.id for each in store.image.brokers()] == [1]


def test_the_settings_of_groups_are_followed() -> None:
    store = FollowedStore()
    ids = ["plain", "a/b %41.\u00fc", "default"]
    for group in ids:
        configs = {"consumer.session.timeout.ms": "50000"}
        delta = store.commit(plan_group_configs(store.image.group_config_record(group), configs))
        assert delta.group_configs == (group,)
        assert store.image.group_configs(group) == configs
    assert store.image.groups_with_configs() == sorted(ids)
    assert store.image.broker_configs(None) == {}
    delta = store.commit(plan_group_configs(store.image.group_config_record(ids[1]), {}))
    assert delta.group_configs == (ids[1],)
    assert store.image.group_configs(ids[1]) == {}
    assert store.image.groups_with_configs() == ["default", "plain"]


def test_the_cluster_has_an_id_once_it_is_made() -> None:
    store = FollowedStore()
    assert store.image.cluster_id == ""
    store.commit(CommitPlan(puts={"cluster/id": encode_record(ClusterRecord("abc", 1))}))
    assert store.image.cluster_id == "abc"


def test_keys_of_other_kinds_are_passed_over() -> None:
    store = FollowedStore()
    delta = store.commit(CommitPlan(puts={"counter/x": b"1", "future/kind": b"?"}))
    assert delta == ImageDelta(1)
    assert store.image.revision == 1


def test_loading_gives_the_same_image_as_following() -> None:
    store = FollowedStore([1])
    store.commit(puts(topic("t", 1), partition(1, 0)))
    store.commit(puts(topic("u.v", 2), partition(2, 0), partition(2, 5)))
    loaded = MetadataImage()
    delta = loaded.load(store.listing())
    assert _names(delta) == (["t", "u.v"], [], [])
    assert loaded.topics() == store.image.topics()
    assert loaded.brokers() == store.image.brokers()
    assert loaded.revision == store.image.revision
    assert loaded.load(store.listing()) == ImageDelta(store.revision), "a second listing brings nothing new"
    colliding = loaded.topic_colliding_with("u_v")
    assert colliding is not None
    assert colliding.name == "u.v"


def test_cls_1_the_revision_never_goes_back() -> None:
    store = FollowedStore([1])
    with pytest.raises(InvariantViolation, match="CLS-1"):
        store.image.apply(Change(0, ()))
    with pytest.raises(InvariantViolation, match="CLS-1"):
        store.image.load(Listing(0, ()))


def test_a_change_without_events_only_moves_the_revision() -> None:
    store = FollowedStore([1])
    assert store.image.apply(Change(99, ())) == ImageDelta(99)
    assert store.image.revision == 99


def test_a_damaged_value_is_a_failure_and_not_a_deleted_topic() -> None:
    store = FollowedStore()
    store.commit(puts(topic("t", 1), partition(1, 0)))
    with pytest.raises(StorageFailure, match="topic/t"):
        store.commit(CommitPlan(puts={topic_key("t"): b"garbage"}))
