"""The records' JSON form: what is written is read back, and what cannot be read is never taken for nothing."""

import pytest

from martlet.base.errors import StorageFailure
from martlet.base.ids import BrokerId, Incarnation, LeaderEpoch, Member, TopicId
from martlet.cluster.keys import (
    broker_config_key,
    broker_key,
    drain_key,
    live_key,
    partition_key,
    read_partition_key,
    topic_key,
    unfinished_key,
)
from martlet.cluster.records import (
    BrokerRecord,
    ClusterRecord,
    ConfigRecord,
    DrainRecord,
    Endpoint,
    LiveRecord,
    LogEnd,
    PartitionRecord,
    RoleRecord,
    TopicRecord,
    UnfinishedRecord,
    decode_broker,
    decode_cluster,
    decode_configs,
    decode_counter,
    decode_drain,
    decode_live,
    decode_partition,
    decode_role,
    decode_topic,
    decode_unfinished,
    encode_broker,
    encode_cluster,
    encode_configs,
    encode_counter,
    encode_drain,
    encode_live,
    encode_partition,
    encode_role,
    encode_topic,
    encode_unfinished,
)
from martlet.cluster.store import Entry

_ID = TopicId(bytes(range(16)))
_LEADER = Member(BrokerId(1), Incarnation(7))


def _entry(key: str, value: bytes) -> Entry:
    return Entry(key, value, 3, 5)


def _partition() -> PartitionRecord:
    return PartitionRecord(
        topic_id=_ID,
        partition=12,
        replicas=(BrokerId(1), BrokerId(2), BrokerId(3)),
        leader=BrokerId(1),
        leader_epoch=LeaderEpoch(4),
        isr=(_LEADER, Member(BrokerId(2), Incarnation(9))),
        elr=(Member(BrokerId(3), Incarnation(8)),),
        last_in_sync=(Member(BrokerId(4), Incarnation(2)),),
        log_ends=(LogEnd(BrokerId(3), Incarnation(8), LeaderEpoch(3), 17),),
        adding=(BrokerId(4),),
        removing=(BrokerId(2),),
    )


def test_every_record_is_read_as_it_was_written() -> None:
    broker = BrokerRecord(
        BrokerId(2), Incarnation(7), (Endpoint("PLAINTEXT", "host", 9092),), "zone", Incarnation(6), "boot", 17
    )
    topic = TopicRecord("orders", _ID, 12, 3, {"retention.ms": "5"}, True, 17)
    unfinished = UnfinishedRecord(_ID, "orders", _LEADER)
    configs = ConfigRecord(None, {"log.retention.ms": "5"})
    cluster = ClusterRecord("abc", 17)
    assert decode_cluster(_entry("cluster/id", encode_cluster(cluster))) == cluster
    assert decode_broker(_entry(broker_key(broker.id), encode_broker(broker))) == broker
    assert decode_topic(_entry(topic_key(topic.name), encode_topic(topic))) == topic
    assert decode_partition(_entry(partition_key(_ID, 12), encode_partition(_partition()))) == _partition()
    assert decode_unfinished(_entry(unfinished_key(_ID), encode_unfinished(unfinished))) == unfinished
    assert decode_configs(_entry(broker_config_key(None), encode_configs(configs))) == configs
    live = LiveRecord(BrokerId(2), Incarnation(7), leaving=True, full=True)
    assert decode_live(_entry(live_key(live.broker), encode_live(live))) == live
    drain = DrainRecord(BrokerId(2), 17)
    assert decode_drain(_entry(drain_key(drain.broker), encode_drain(drain))) == drain
    assert decode_role(_entry("controller", encode_role(RoleRecord(_LEADER)))) == RoleRecord(_LEADER)
    assert decode_counter(_entry("counter/x", encode_counter(12))) == 12
    assert decode_counter(None) == 0


def test_a_record_knows_the_revision_it_was_read_at() -> None:
    assert decode_partition(_entry(partition_key(_ID, 12), encode_partition(_partition()))).mod_revision == 5


def test_fields_of_a_newer_version_are_ignored_and_missing_ones_take_their_defaults() -> None:
    value = b'{"replicas":[1],"leader":null,"leader_epoch":2,"isr":[],"flavour":"new"}'
    record = decode_partition(_entry(partition_key(_ID, 0), value))
    assert (record.leader, record.leader_epoch, record.elr) == (None, 2, ())


@pytest.mark.parametrize("value", [b"", b"{", b"[]", b"{}", b"\xff", b'{"replicas":3}', b"null"])
def test_r3_a_value_that_cannot_be_read_is_a_failure_that_names_its_key(value: bytes) -> None:
    key = partition_key(_ID, 0)
    with pytest.raises(StorageFailure, match=key):
        decode_partition(_entry(key, value))


def test_r2_leadership_belongs_to_the_incarnation_that_was_elected() -> None:
    record = _partition()
    assert record.is_led_by(BrokerId(1), Incarnation(7))
    assert not record.is_led_by(BrokerId(1), Incarnation(8))
    assert not record.is_led_by(BrokerId(2), Incarnation(9))
    assert record.leader_incarnation == 7
    assert record.isr_ids() == [1, 2]


def test_partition_keys_sort_by_index_and_are_read_back() -> None:
    keys = [partition_key(_ID, index) for index in (9, 10, 100, 9_999)]
    assert keys == sorted(keys)
    assert [read_partition_key(key)[1] for key in keys] == [9, 10, 100, 9_999]
    assert read_partition_key(keys[0])[0] == _ID


def test_names_that_collide_share_a_key() -> None:
    assert topic_key("a.b") == topic_key("a_b") != topic_key("a-b")
