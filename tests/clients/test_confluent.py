"""confluent-kafka against Martlet: the common behaviour, and its admin client."""

import time
from concurrent.futures import Future
from typing import Any, TypeVar

import pytest
from confluent_kafka import KafkaError, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient

from tests.broker.requests import unique_topic
from tests.clients.client_behaviour import ClientBehaviour
from tests.clients.messages import make_messages
from tests.clients.with_confluent import TIMEOUT_SECONDS, ConfluentAdapter, consume, names, new_consumer

T = TypeVar("T")


class TestConfluent(ClientBehaviour):
    """librdkafka, the client of C, C++, Go, .NET, PHP, Ruby …"""

    adapter = ConfluentAdapter()


@pytest.fixture
def admin(servers: str) -> AdminClient:
    return AdminClient({"bootstrap.servers": servers})


def only(futures: dict[Any, "Future[T]"]) -> T:
    """The one result of an admin call."""
    (future,) = futures.values()
    return future.result(TIMEOUT_SECONDS)


def test_the_admin_client_creates_grows_describes_and_deletes_topics(admin: AdminClient) -> None:
    topic = unique_topic("confluent-admin")
    only(admin.create_topics([names.NewTopic(topic, 2, 1, config={"retention.ms": "3600000"})]))
    with pytest.raises(KafkaException, match="exists"):
        only(admin.create_topics([names.NewTopic(topic, 2, 1)]))
    only(admin.create_partitions([names.NewPartitions(topic, 4)]))
    metadata = admin.list_topics(timeout=TIMEOUT_SECONDS)
    assert len(metadata.topics[topic].partitions) == 4
    assert len(metadata.brokers) == 1
    only(admin.delete_topics([topic]))
    assert topic not in admin.list_topics(timeout=TIMEOUT_SECONDS).topics


def test_a_deleted_topic_is_gone_when_asked_for_and_used_again_at_will(admin: AdminClient, servers: str) -> None:
    topic = unique_topic("confluent-gone")
    only(admin.create_topics([names.NewTopic(topic, 4, 1)]))
    only(admin.delete_topics([topic]))
    # librdkafka lets the broker create what it asks for, also in its admin client.
    error = admin.list_topics(topic, timeout=TIMEOUT_SECONDS).topics[topic].error
    assert error is not None
    assert error.code() == KafkaError.UNKNOWN_TOPIC_OR_PART
    messages = make_messages(10, keyed=True)
    assert len(ConfluentAdapter().publish(servers, topic, messages)) == 10


def test_the_admin_client_describes_the_cluster(admin: AdminClient) -> None:
    cluster = admin.describe_cluster(request_timeout=TIMEOUT_SECONDS).result(TIMEOUT_SECONDS)
    assert cluster.cluster_id
    assert len(cluster.nodes) == 1
    assert cluster.controller.id == cluster.nodes[0].id


def test_the_admin_client_reads_and_changes_settings(admin: AdminClient) -> None:
    topic = unique_topic("confluent-settings")
    only(admin.create_topics([names.NewTopic(topic, 1, 1, config={"retention.ms": "3600000"})]))
    before = only(admin.describe_configs([names.ConfigResource(names.ResourceType.TOPIC, topic)]))
    assert before["retention.ms"].value == "3600000"
    change = names.ConfigEntry("retention.ms", "7200000", incremental_operation=names.AlterConfigOpType.SET)
    only(
        admin.incremental_alter_configs(
            [names.ConfigResource(names.ResourceType.TOPIC, topic, incremental_configs=[change])]
        )
    )
    after = only(admin.describe_configs([names.ConfigResource(names.ResourceType.TOPIC, topic)]))
    assert after["retention.ms"].value == "7200000"


def test_the_admin_client_asks_for_offsets_and_deletes_records(admin: AdminClient, servers: str) -> None:
    topic = unique_topic("confluent-offsets")
    ConfluentAdapter().create_topic(servers, topic, 1)
    messages = make_messages(100, keyed=True)
    ConfluentAdapter().publish(servers, topic, messages)
    partition = TopicPartition(topic, 0)
    assert only(admin.list_offsets({partition: names.OffsetSpec.latest()})).offset == 100
    assert only(admin.list_offsets({partition: names.OffsetSpec.for_timestamp(messages[40].timestamp_ms)})).offset == 40
    assert only(admin.list_offsets({partition: names.OffsetSpec.max_timestamp()})).offset == 99
    assert only(admin.delete_records([TopicPartition(topic, 0, 30)])).low_watermark == 30
    assert only(admin.list_offsets({partition: names.OffsetSpec.earliest()})).offset == 30


def test_a_running_consumer_seeks_back_and_forth(servers: str) -> None:
    topic = unique_topic("confluent-seek")
    ConfluentAdapter().create_topic(servers, topic, 1)
    messages = make_messages(500, keyed=True)
    ConfluentAdapter().publish(servers, topic, messages)
    consumer = new_consumer(servers)
    consumer.assign([TopicPartition(topic, 0, 0)])
    try:
        assert len(consume(consumer, {0: 0}, {0: 500})) == 500
        for start in (250, 0, 499):
            consumer.seek(TopicPartition(topic, 0, start))
            read = consume(consumer, {0: start}, {0: 500})
            assert list(read.values()) == messages[start:]
    finally:
        consumer.close()


def test_a_consumer_at_the_end_gets_a_new_message_quickly(servers: str) -> None:
    topic = unique_topic("confluent-tail")
    ConfluentAdapter().create_topic(servers, topic, 1)
    consumer = new_consumer(servers, fetch_wait_max_ms=10_000)
    consumer.assign([TopicPartition(topic, 0, 0)])
    producer = Producer({"bootstrap.servers": servers, "linger.ms": 0})
    try:
        assert consumer.poll(1.0) is None
        for number in range(5):
            producer.produce(topic, b"%d" % number)
            producer.flush(TIMEOUT_SECONDS)
            started = time.monotonic()
            received = consumer.poll(TIMEOUT_SECONDS)
            assert received is not None
            assert received.value() == b"%d" % number
            assert time.monotonic() - started < 2
    finally:
        consumer.close()


def test_an_offset_outside_the_log_resets_as_the_program_wishes(servers: str) -> None:
    topic = unique_topic("confluent-reset")
    ConfluentAdapter().create_topic(servers, topic, 1)
    ConfluentAdapter().publish(servers, topic, make_messages(10, keyed=True))
    consumer = new_consumer(servers, auto_offset_reset="earliest")
    consumer.assign([TopicPartition(topic, 0, 5000)])
    try:
        received = consumer.poll(TIMEOUT_SECONDS)
        assert received is not None
        assert received.offset() == 0
    finally:
        consumer.close()


def test_a_message_too_large_for_the_topic_is_refused_for_good(admin: AdminClient, servers: str) -> None:
    topic = unique_topic("confluent-large")
    only(admin.create_topics([names.NewTopic(topic, 1, 1, config={"max.message.bytes": "2000"})]))
    errors: list[str] = []
    producer = Producer({"bootstrap.servers": servers})
    producer.produce(topic, bytes(10_000), on_delivery=lambda error, _: errors.append(error.name() if error else ""))
    producer.flush(TIMEOUT_SECONDS)
    assert errors == ["MSG_SIZE_TOO_LARGE"]


@pytest.mark.parametrize("acks", ["0", "1", "all"])
def test_every_level_of_acknowledgement_works(servers: str, acks: str) -> None:
    topic = unique_topic("confluent-acks")
    ConfluentAdapter().create_topic(servers, topic, 1)
    producer = Producer({"bootstrap.servers": servers, "acks": acks})
    for number in range(1000):
        producer.produce(topic, b"%d" % number)
    assert producer.flush(TIMEOUT_SECONDS) == 0
    deadline = time.monotonic() + TIMEOUT_SECONDS
    while len(ConfluentAdapter().read(servers, topic, {0: 0})) < 1000:
        assert time.monotonic() < deadline


def test_publishing_to_a_topic_that_does_not_exist_creates_it(servers: str) -> None:
    topic = unique_topic("confluent-auto")
    places = ConfluentAdapter().publish(servers, topic, make_messages(10, keyed=False))
    assert [place.offset for place in places] == list(range(10))
