"""The records' JSON form: what is written is read back, and what cannot be read is never taken for nothing."""

from dataclasses import replace

import pytest

from martlet.base.errors import StorageFailure
from martlet.base.ids import BrokerId, Incarnation, LeaderEpoch, Member, TopicId
from martlet.cluster.keys import (
    QuotaEntity,
    access_key,
    broker_config_key,
    broker_key,
    drain_key,
    live_key,
    partition_key,
    quota_key,
    read_partition_index,
    read_partition_topic,
    topic_key,
    unfinished_key,
    user_key,
)
from martlet.cluster.records import (
    AccessRecord,
    AccessRule,
    BrokerRecord,
    ClusterRecord,
    ConfigRecord,
    DrainRecord,
    Endpoint,
    GroupConfigRecord,
    LiveRecord,
    LogEnd,
    PartitionRecord,
    QuotaRecord,
    RoleRecord,
    StoredCredential,
    TopicRecord,
    UnfinishedRecord,
    UserRecord,
    decode_counter,
    decode_record,
    encode_counter,
    encode_record,
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
    assert decode_record(ClusterRecord, _entry("cluster/id", encode_record(cluster))) == cluster
    assert decode_record(BrokerRecord, _entry(broker_key(broker.id), encode_record(broker))) == broker
    assert decode_record(TopicRecord, _entry(topic_key(topic.name), encode_record(topic))) == topic
    assert decode_record(PartitionRecord, _entry(partition_key(_ID, 12), encode_record(_partition()))) == _partition()
    assert decode_record(UnfinishedRecord, _entry(unfinished_key(_ID), encode_record(unfinished))) == unfinished
    assert decode_record(ConfigRecord, _entry(broker_config_key(None), encode_record(configs))) == configs
    live = LiveRecord(BrokerId(2), Incarnation(7), leaving=True, full=True)
    assert decode_record(LiveRecord, _entry(live_key(live.broker), encode_record(live))) == live
    drain = DrainRecord(BrokerId(2), 17)
    assert decode_record(DrainRecord, _entry(drain_key(drain.broker), encode_record(drain))) == drain
    assert decode_record(RoleRecord, _entry("controller", encode_record(RoleRecord(_LEADER)))) == RoleRecord(_LEADER)
    assert decode_counter(_entry("counter/x", encode_counter(12))) == 12
    assert decode_counter(None) == 0


@pytest.mark.parametrize(
    ("record", "value"),
    [
        (ClusterRecord("abc", 17), b'{"id":"abc","created_at_ms":17}'),
        (ClusterRecord("abc", 17, "s"), b'{"id":"abc","created_at_ms":17,"replica_secret":"s"}'),
        (
            BrokerRecord(BrokerId(2), Incarnation(7)),
            b'{"incarnation":7,"endpoints":[],"rack":null,"clean_since":null,"boot_id":"","started_at_ms":0,'
            b'"attempt":"","same_logs_since":null,"new_disk_since":null,"unread":false,"broker_listener":""}',
        ),
        (
            BrokerRecord(
                id=BrokerId(2),
                incarnation=Incarnation(7),
                endpoints=(Endpoint("PLAINTEXT", "h\xe9", 9092, "tls"),),
                rack="zone",
                clean_since=Incarnation(6),
                boot_id="boot",
                started_at_ms=17,
                attempt="try",
                same_logs_since=Incarnation(5),
                new_disk_since=Incarnation(4),
                unread=True,
                broker_listener="PLAINTEXT",
            ),
            b'{"incarnation":7,"endpoints":[["PLAINTEXT","h\\u00e9",9092,"tls"]],"rack":"zone","clean_since":6,'
            b'"boot_id":"boot","started_at_ms":17,"attempt":"try","same_logs_since":5,"new_disk_since":4,"unread":true,"broker_listener":"PLAINTEXT"}',
        ),
        (LiveRecord(BrokerId(2), Incarnation(7)), b'{"incarnation":7,"leaving":false}'),
        (LiveRecord(BrokerId(2), Incarnation(7), True, True), b'{"incarnation":7,"leaving":true,"full":true}'),
        (RoleRecord(_LEADER), b'{"holder":[1,7]}'),
        (DrainRecord(BrokerId(2), 17), b'{"since_ms":17}'),
        (
            TopicRecord("orders", _ID, 12, 3, {"retention.ms": "5"}, True, 17),
            b'{"name":"orders","id":"AAECAwQFBgcICQoLDA0ODw","partitions":12,"replication_factor":3,'
            b'"configs":{"retention.ms":"5"},"internal":true,"created_at_ms":17}',
        ),
        (
            PartitionRecord(_ID, 12, (BrokerId(1), BrokerId(2)), BrokerId(1), LeaderEpoch(4), (_LEADER,)),
            b'{"replicas":[1,2],"leader":1,"leader_epoch":4,"isr":[[1,7]]}',
        ),
        (
            replace(_partition(), leader=None),
            b'{"replicas":[1,2,3],"leader":null,"leader_epoch":4,"isr":[[1,7],[2,9]],"elr":[[3,8]],'
            b'"last_in_sync":[[4,2]],"adding":[4],"removing":[2],"log_ends":[[3,8,3,17]]}',
        ),
        (UnfinishedRecord(_ID, "orders", _LEADER), b'{"name":"orders","maker":[1,7]}'),
        (ConfigRecord(None, {"log.retention.ms": "5"}), b'{"configs":{"log.retention.ms":"5"}}'),
        (GroupConfigRecord("g", {"a": "5"}), b'{"configs":{"a":"5"}}'),
        (
            AccessRecord(("topic", "literal", "pay"), (AccessRule("User:alice", "*", "read", "allow"),)),
            b'{"rules":[["User:alice","*","read","allow"]]}',
        ),
        (
            UserRecord("alice", {"SCRAM-SHA-256": StoredCredential("c2FsdA==", 8192, "a2V5", "a2V5")}),
            b'{"credentials":{"SCRAM-SHA-256":["c2FsdA==",8192,"a2V5","a2V5"]}}',
        ),
        (QuotaRecord(QuotaEntity("alice"), {"producer_byte_rate": 5.0}), b'{"limits":{"producer_byte_rate":5.0}}'),
    ],
)
def test_the_bytes_of_each_record_are_those_that_earlier_versions_wrote(record: object, value: bytes) -> None:
    assert encode_record(record) == value


@pytest.mark.parametrize("name", ["alice", "a/b", "@none", "@default", "Ü ç", "%2F", "-"])
def test_names_of_users_resources_and_clients_survive_their_keys(name: str) -> None:
    user = UserRecord(name, {"SCRAM-SHA-512": StoredCredential("c2FsdA==", 4096, "a2V5", "a2V5")})
    assert decode_record(UserRecord, _entry(user_key(name), encode_record(user))) == user
    access = AccessRecord(("group", "prefixed", name), (AccessRule("User:*", "10.0.0.1", "read", "deny"),))
    assert decode_record(AccessRecord, _entry(access_key(*access.pattern), encode_record(access))) == access
    for entity in (QuotaEntity(name), QuotaEntity("", name), QuotaEntity(None, ""), QuotaEntity(host=name)):
        quota = QuotaRecord(entity, {"request_percentage": 50.0})
        assert decode_record(QuotaRecord, _entry(quota_key(entity), encode_record(quota))) == quota


def test_the_text_of_a_user_does_not_show_keys() -> None:
    user = UserRecord("alice", {"SCRAM-SHA-512": StoredCredential("canary", 4096, "canary", "canary")})
    assert "canary" not in f"{user!r} {user}"


def test_a_record_knows_the_revision_it_was_read_at() -> None:
    assert decode_record(PartitionRecord, _entry(partition_key(_ID, 12), encode_record(_partition()))).mod_revision == 5


def test_fields_of_a_newer_version_are_ignored_and_missing_ones_take_their_defaults() -> None:
    value = b'{"replicas":[1],"leader":null,"leader_epoch":2,"isr":[],"flavour":"new"}'
    record = decode_record(PartitionRecord, _entry(partition_key(_ID, 0), value))
    assert (record.leader, record.leader_epoch, record.elr) == (None, 2, ())


@pytest.mark.parametrize("value", [b"[]", b"3", b"null", b'"since_ms"'])
def test_a_record_whose_fields_all_have_defaults_is_still_a_json_object(value: bytes) -> None:
    with pytest.raises(StorageFailure, match="drain/2"):
        decode_record(DrainRecord, _entry("drain/2", value))


@pytest.mark.parametrize("value", [b"", b"{", b"[]", b"{}", b"\xff", b'{"replicas":3}', b"null"])
def test_cls_6_a_value_that_cannot_be_read_is_a_failure_that_names_its_key(value: bytes) -> None:
    key = partition_key(_ID, 0)
    with pytest.raises(StorageFailure, match=key):
        decode_record(PartitionRecord, _entry(key, value))


def test_cls_5_leadership_belongs_to_the_incarnation_that_was_elected() -> None:
    record = _partition()
    assert record.is_led_by(BrokerId(1), Incarnation(7))
    assert not record.is_led_by(BrokerId(1), Incarnation(8))
    assert not record.is_led_by(BrokerId(2), Incarnation(9))
    assert record.leader_incarnation == 7
    assert record.isr_ids() == [1, 2]


def test_partition_keys_sort_by_index_and_are_read_back() -> None:
    keys = [partition_key(_ID, index) for index in (9, 10, 100, 9_999)]
    assert keys == sorted(keys)
    assert [read_partition_index(key) for key in keys] == [9, 10, 100, 9_999]
    assert read_partition_topic(keys[0]) == _ID


def test_names_that_collide_share_a_key() -> None:
    assert topic_key("a.b") == topic_key("a_b") != topic_key("a-b")
