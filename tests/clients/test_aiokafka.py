"""aiokafka against Martlet: the common behaviour, and its admin client. It speaks the oldest versions of all."""

from typing import Any

import pytest
from aiokafka import AIOKafkaProducer, TopicPartition  # type: ignore[import-untyped]
from aiokafka.admin import (  # type: ignore[import-untyped]
    AIOKafkaAdminClient,
    NewPartitions,
    NewTopic,
    RecordsToDelete,
)
from aiokafka.admin.config_resource import ConfigResource, ConfigResourceType  # type: ignore[import-untyped]
from aiokafka.errors import MessageSizeTooLargeError  # type: ignore[import-untyped]

from martlet.base.errors import ErrorCode
from tests.broker.requests import unique_topic
from tests.clients.client_behaviour import ClientBehaviour
from tests.clients.messages import make_messages
from tests.clients.with_aiokafka import AiokafkaAdapter, consume, new_consumer, running


class TestAiokafka(ClientBehaviour):
    """The client for asyncio programs."""

    adapter = AiokafkaAdapter()


async def _filled_topic(servers: str, prefix: str, count: int) -> tuple[str, list[Any]]:
    topic = unique_topic(prefix)
    messages = make_messages(count, keyed=True)
    async with running(AIOKafkaAdminClient(bootstrap_servers=servers)) as admin:
        await admin.create_topics([NewTopic(topic, 1, 1)])
    async with running(AIOKafkaProducer(bootstrap_servers=servers)) as producer:
        for message in messages:
            await producer.send(
                topic, message.value, message.key, timestamp_ms=message.timestamp_ms, headers=list(message.headers)
            )
    return topic, messages


async def test_the_admin_client_creates_grows_describes_and_deletes_topics(servers: str) -> None:
    topic = unique_topic("aiokafka-admin")
    async with running(AIOKafkaAdminClient(bootstrap_servers=servers)) as admin:
        response = await admin.create_topics([NewTopic(topic, 2, 1, topic_configs={"retention.ms": "3600000"})])
        assert response.topic_errors[0][1] == ErrorCode.NONE
        response = await admin.create_topics([NewTopic(topic, 2, 1)])
        assert response.topic_errors[0][1] == ErrorCode.TOPIC_ALREADY_EXISTS
        await admin.create_partitions({topic: NewPartitions(4)})
        (described,) = await admin.describe_topics([topic])
        assert len(described["partitions"]) == 4
        assert topic in await admin.list_topics()
        await admin.delete_topics([topic])
        assert topic not in await admin.list_topics()


async def test_the_admin_client_describes_the_cluster(servers: str) -> None:
    async with running(AIOKafkaAdminClient(bootstrap_servers=servers)) as admin:
        cluster = await admin.describe_cluster()
        assert len(cluster["brokers"]) == 1


async def test_the_admin_client_reads_and_changes_settings(servers: str) -> None:
    topic = unique_topic("aiokafka-settings")
    async with running(AIOKafkaAdminClient(bootstrap_servers=servers)) as admin:
        await admin.create_topics([NewTopic(topic, 1, 1, topic_configs={"retention.ms": "3600000"})])
        asked = ConfigResource(ConfigResourceType.TOPIC, topic)
        assert "3600000" in str(await admin.describe_configs([asked]))
        await admin.alter_configs([ConfigResource(ConfigResourceType.TOPIC, topic, {"retention.ms": "7200000"})])
        assert "7200000" in str(await admin.describe_configs([asked]))


async def test_the_admin_client_deletes_records(servers: str) -> None:
    topic, _ = await _filled_topic(servers, "aiokafka-delete", 100)
    partition = TopicPartition(topic, 0)
    async with running(AIOKafkaAdminClient(bootstrap_servers=servers)) as admin:
        await admin.delete_records({partition: RecordsToDelete(before_offset=30)})
    async with running(new_consumer(servers)) as consumer:
        assert await consumer.beginning_offsets([partition]) == {partition: 30}
        assert await consumer.end_offsets([partition]) == {partition: 100}


async def test_a_running_consumer_seeks_back_and_forth(servers: str) -> None:
    topic, messages = await _filled_topic(servers, "aiokafka-seek", 500)
    partition = TopicPartition(topic, 0)
    async with running(new_consumer(servers)) as consumer:
        consumer.assign([partition])
        for start in (0, 250, 0, 499):
            consumer.seek(partition, start)
            read = await consume(consumer, {0: start}, {0: 500})
            assert list(read.values()) == messages[start:]
        await consumer.seek_to_beginning(partition)
        assert await consumer.position(partition) == 0
        await consumer.seek_to_end(partition)
        assert await consumer.position(partition) == 500


async def test_a_message_too_large_for_the_topic_is_refused(servers: str) -> None:
    topic = unique_topic("aiokafka-large")
    async with running(AIOKafkaAdminClient(bootstrap_servers=servers)) as admin:
        await admin.create_topics([NewTopic(topic, 1, 1, topic_configs={"max.message.bytes": "2000"})])
    async with running(AIOKafkaProducer(bootstrap_servers=servers)) as producer:
        with pytest.raises(MessageSizeTooLargeError):
            await producer.send_and_wait(topic, bytes(10_000))
