"""kafka-python against Martlet: the common behaviour, and its admin client."""

from collections.abc import Iterator
from typing import Any

import pytest
from kafka import KafkaAdminClient, TopicPartition  # type: ignore[import-untyped]
from kafka.admin import ConfigResource, ConfigResourceType  # type: ignore[import-untyped]
from kafka.errors import MessageSizeTooLargeError, TopicAlreadyExistsError  # type: ignore[import-untyped]

from tests.broker.requests import unique_topic
from tests.clients.client_behaviour import ClientBehaviour
from tests.clients.messages import make_messages
from tests.clients.with_kafka_python import KafkaPythonAdapter, consume, new_consumer


class TestKafkaPython(ClientBehaviour):
    """Pure Python, with fetch sessions and idempotence on by default."""

    adapter = KafkaPythonAdapter()


@pytest.fixture
def admin(servers: str) -> Iterator[Any]:
    with KafkaAdminClient(bootstrap_servers=servers) as client:
        yield client


def test_the_admin_client_creates_grows_describes_and_deletes_topics(admin: Any) -> None:
    topic = unique_topic("kafka-python-admin")
    admin.create_topics({topic: {"num_partitions": 2, "replication_factor": 1, "configs": {"retention.ms": "3600000"}}})
    with pytest.raises(TopicAlreadyExistsError):
        admin.create_topics({topic: {"num_partitions": 2, "replication_factor": 1}})
    admin.create_partitions({topic: 4})
    (described,) = admin.describe_topics([topic])
    assert len(described["partitions"]) == 4
    assert topic in admin.list_topics()
    admin.delete_topics([topic])
    assert topic not in admin.list_topics()


def test_the_admin_client_describes_the_cluster_and_its_disks(admin: Any) -> None:
    cluster = admin.describe_cluster()
    assert len(cluster["brokers"]) == 1
    assert cluster["cluster_id"]
    assert admin.describe_log_dirs()
    assert admin.api_versions()


def test_the_admin_client_reads_and_changes_settings(admin: Any) -> None:
    topic = unique_topic("kafka-python-settings")
    admin.create_topics({topic: {"num_partitions": 1, "replication_factor": 1, "configs": {"retention.ms": "3600000"}}})
    asked = ConfigResource(ConfigResourceType.TOPIC, topic)
    assert "3600000" in str(admin.describe_configs([asked]))
    admin.alter_configs([ConfigResource(ConfigResourceType.TOPIC, topic, {"retention.ms": "7200000"})])
    assert "7200000" in str(admin.describe_configs([asked]))


def test_the_admin_client_asks_for_offsets_and_deletes_records(admin: Any, servers: str) -> None:
    topic = unique_topic("kafka-python-offsets")
    KafkaPythonAdapter().create_topic(servers, topic, 1)
    messages = make_messages(100, keyed=True)
    KafkaPythonAdapter().publish(servers, topic, messages)
    partition = TopicPartition(topic, 0)
    for asked, expected in ((-1, 100), (-2, 0), (-3, 99), (messages[40].timestamp_ms, 40)):
        assert admin.list_partition_offsets({partition: asked})[partition].offset == expected
    admin.delete_records({partition: 30})
    assert admin.list_partition_offsets({partition: -2})[partition].offset == 30


def test_a_running_consumer_seeks_back_and_forth(servers: str) -> None:
    topic = unique_topic("kafka-python-seek")
    KafkaPythonAdapter().create_topic(servers, topic, 1)
    messages = make_messages(500, keyed=True)
    KafkaPythonAdapter().publish(servers, topic, messages)
    consumer = new_consumer(servers)
    partition = TopicPartition(topic, 0)
    consumer.assign([partition])
    try:
        for start in (0, 250, 0, 499):
            consumer.seek(partition, start)
            assert list(consume(consumer, {0: start}, {0: 500}).values()) == messages[start:]
        consumer.seek_to_beginning(partition)
        assert consumer.position(partition) == 0
        consumer.seek_to_end(partition)
        assert consumer.position(partition) == 500
    finally:
        consumer.close()


@pytest.mark.parametrize("sessions", [True, False])
def test_reading_works_with_and_without_fetch_sessions(servers: str, sessions: bool) -> None:
    topic = unique_topic("kafka-python-sessions")
    KafkaPythonAdapter().create_topic(servers, topic, 1)
    messages = make_messages(3000, keyed=True)
    KafkaPythonAdapter().publish(servers, topic, messages)
    consumer = new_consumer(
        servers, enable_incremental_fetch_sessions=sessions, max_partition_fetch_bytes=20_000, fetch_max_wait_ms=100
    )
    consumer.assign([TopicPartition(topic, 0)])
    consumer.seek(TopicPartition(topic, 0), 0)
    try:
        assert list(consume(consumer, {0: 0}, {0: 3000}).values()) == messages
    finally:
        consumer.close()


def test_a_message_too_large_for_the_topic_is_refused(admin: Any, servers: str) -> None:
    topic = unique_topic("kafka-python-large")
    options = {"num_partitions": 1, "replication_factor": 1, "configs": {"max.message.bytes": "2000"}}
    admin.create_topics({topic: options})
    large = make_messages(1, keyed=True)[0]._replace(value=bytes(10_000))
    with pytest.raises(MessageSizeTooLargeError):
        KafkaPythonAdapter().publish(servers, topic, [large])
