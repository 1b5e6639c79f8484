"""Administration: refusals with the broker's words, changes sent once, reads tried again."""

from collections.abc import AsyncIterator
from typing import Any

import pytest

from martlet.base.errors import ApiError, ErrorCode
from martlet.base.ids import TopicPartition
from martlet.client.admin import Admin, ConfigSource, NewTopic, ResourceType
from martlet.client.errors import OutcomeUnknown, TopicMissing
from martlet.wire import message_codec
from martlet.wire.api_keys import ApiKey
from martlet.wire.messages.create_partitions import CreatePartitionsResponse, CreatePartitionsTopicResult
from martlet.wire.messages.create_topics import CreatableTopicResult, CreateTopicsResponse
from martlet.wire.messages.delete_records import (
    DeleteRecordsPartitionResult,
    DeleteRecordsResponse,
    DeleteRecordsTopicResult,
)
from martlet.wire.messages.delete_topics import DeletableTopicResult, DeleteTopicsResponse
from martlet.wire.messages.describe_configs import (
    DescribeConfigsResourceResult,
    DescribeConfigsResponse,
    DescribeConfigsResult,
)
from martlet.wire.messages.describe_log_dirs import (
    DescribeLogDirsPartition,
    DescribeLogDirsResponse,
    DescribeLogDirsResult,
    DescribeLogDirsTopic,
)
from martlet.wire.messages.incremental_alter_configs import (
    AlterConfigsResourceResponse,
    IncrementalAlterConfigsResponse,
)
from tests.unit.client.fake_broker import HANG_UP, FakeBroker, FakeCluster, Reply, client_of


@pytest.fixture
async def broker() -> AsyncIterator[FakeBroker]:
    async with FakeBroker() as started:
        yield started


def answering(*responses: Any) -> Any:
    """A script that gives these answers one after the other, the last one for ever."""
    waiting = list(responses)

    def script(request: object, version: int) -> Reply:
        response = waiting.pop(0) if len(waiting) > 1 else waiting[0]
        return HANG_UP if response is HANG_UP else message_codec.encode(response, version)

    return script


def created(**fields: Any) -> CreateTopicsResponse:
    return CreateTopicsResponse(topics=[CreatableTopicResult(**fields)])


async def test_a_topic_is_created_as_asked(broker: FakeBroker) -> None:
    broker.scripts[ApiKey.CREATE_TOPICS] = answering(
        created(name="t", topic_id=b"i" * 16, num_partitions=3, replication_factor=1)
    )
    async with client_of(broker) as cluster:
        made = await Admin(cluster).create_topic(NewTopic(name="t", partitions=3, configs={"retention.ms": "5"}))
    assert (made.name, made.partitions, made.replication_factor) == ("t", 3, 1)
    [topic] = broker.asked(ApiKey.CREATE_TOPICS)[0].topics
    assert (topic.num_partitions, topic.replication_factor) == (3, -1)
    assert [(config.name, config.value) for config in topic.configs] == [("retention.ms", "5")]


async def test_a_refusal_carries_the_brokers_own_sentence(broker: FakeBroker) -> None:
    refusal = created(name="t", error_code=ErrorCode.TOPIC_ALREADY_EXISTS, error_message="Topic 't' exists.")
    broker.scripts[ApiKey.CREATE_TOPICS] = answering(refusal)
    async with client_of(broker) as cluster:
        with pytest.raises(ApiError) as caught:
            await Admin(cluster).create_topic(NewTopic(name="t"))
    assert str(caught.value) == "Topic 't' exists."
    assert caught.value.code == ErrorCode.TOPIC_ALREADY_EXISTS


async def test_a_refusal_without_a_sentence_gets_ours(broker: FakeBroker) -> None:
    broker.scripts[ApiKey.CREATE_TOPICS] = answering(created(name="t", error_code=ErrorCode.INVALID_CONFIG))
    async with client_of(broker) as cluster:
        with pytest.raises(ApiError, match="The configuration is not allowed"):
            await Admin(cluster).create_topic(NewTopic(name="t"))


async def test_a_change_whose_answer_is_lost_is_not_repeated(broker: FakeBroker) -> None:
    broker.scripts[ApiKey.CREATE_TOPICS] = answering(HANG_UP)
    async with client_of(broker) as cluster:
        with pytest.raises(
            OutcomeUnknown, match=r"creating topic 't': .* closed the connection; check before you repeat"
        ):
            await Admin(cluster).create_topic(NewTopic(name="t"))
    assert len(broker.asked(ApiKey.CREATE_TOPICS)) == 1


async def test_a_broker_that_is_no_controller_any_more_is_asked_again_after_a_look() -> None:
    shared = FakeCluster()
    async with FakeBroker(shared, 1) as one, FakeBroker(shared, 2) as two:
        one.scripts[ApiKey.CREATE_TOPICS] = answering(created(name="t", error_code=ErrorCode.NOT_CONTROLLER))
        two.scripts[ApiKey.CREATE_TOPICS] = answering(created(name="t"))

        def name_the_other(request: Any, version: int) -> bytes:
            metadata = one.metadata(request)
            metadata.controller_id = 2 if one.asked(ApiKey.CREATE_TOPICS) else 1
            return message_codec.encode(metadata, version)

        one.scripts[ApiKey.METADATA] = name_the_other
        async with client_of(one) as cluster:
            assert (await Admin(cluster).create_topic(NewTopic(name="t"))).name == "t"


@pytest.mark.parametrize("newest", [3, 6])
async def test_deleting_names_the_topic_in_every_version(broker: FakeBroker, newest: int) -> None:
    broker.versions[ApiKey.DELETE_TOPICS] = (1, newest)
    broker.scripts[ApiKey.DELETE_TOPICS] = answering(DeleteTopicsResponse(responses=[DeletableTopicResult(name="t")]))
    async with client_of(broker) as cluster:
        await Admin(cluster).delete_topic("t")
    [request] = broker.asked(ApiKey.DELETE_TOPICS)
    assert request.topic_names == (["t"] if newest < 6 else [])
    assert [topic.name for topic in request.topics] == (["t"] if newest == 6 else [])


async def test_deleting_what_is_not_there_says_so_at_once(broker: FakeBroker) -> None:
    result = DeletableTopicResult(name="t", error_code=ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    broker.scripts[ApiKey.DELETE_TOPICS] = answering(DeleteTopicsResponse(responses=[result]))
    async with client_of(broker) as cluster:
        with pytest.raises(TopicMissing, match="there is no topic 't'"):
            await Admin(cluster).delete_topic("t")
    assert len(broker.asked(ApiKey.DELETE_TOPICS)) == 1


async def test_growing_a_topic_sends_the_new_count(broker: FakeBroker) -> None:
    broker.scripts[ApiKey.CREATE_PARTITIONS] = answering(
        CreatePartitionsResponse(results=[CreatePartitionsTopicResult(name="t")])
    )
    async with client_of(broker) as cluster:
        await Admin(cluster).grow_topic("t", partitions=9)
    [topic] = broker.asked(ApiKey.CREATE_PARTITIONS)[0].topics
    assert (topic.name, topic.count, topic.assignments) == ("t", 9, None)


async def test_configs_come_sorted_with_their_source(broker: FakeBroker) -> None:
    configs = [
        DescribeConfigsResourceResult(name="segment.ms", value="7", config_source=5),
        DescribeConfigsResourceResult(name="retention.ms", value="5", config_source=1, documentation="how long"),
        DescribeConfigsResourceResult(name="odd", value="1", config_source=99),
    ]
    broker.scripts[ApiKey.DESCRIBE_CONFIGS] = answering(
        DescribeConfigsResponse(results=[DescribeConfigsResult(resource_type=2, resource_name="t", configs=configs)])
    )
    async with client_of(broker) as cluster:
        entries = await Admin(cluster).configs(ResourceType.TOPIC, "t")
    assert [(entry.name, entry.source) for entry in entries] == [
        ("odd", ConfigSource.UNKNOWN),
        ("retention.ms", ConfigSource.TOPIC),
        ("segment.ms", ConfigSource.DEFAULT),
    ]
    assert broker.asked(ApiKey.DESCRIBE_CONFIGS)[0].resources[0].configuration_keys is None


async def test_configs_are_set_and_unset_in_one_request(broker: FakeBroker) -> None:
    broker.scripts[ApiKey.INCREMENTAL_ALTER_CONFIGS] = answering(
        IncrementalAlterConfigsResponse(responses=[AlterConfigsResourceResponse(resource_type=2, resource_name="t")])
    )
    async with client_of(broker) as cluster:
        await Admin(cluster).alter_configs(ResourceType.TOPIC, "t", set_values={"a": "1"}, unset=["b"])
    [resource] = broker.asked(ApiKey.INCREMENTAL_ALTER_CONFIGS)[0].resources
    assert [(c.name, c.config_operation, c.value) for c in resource.configs] == [("a", 0, "1"), ("b", 1, None)]


async def test_deleting_records_returns_the_new_start(broker: FakeBroker) -> None:
    broker.cluster.add_topic("t", [1])
    result = DeleteRecordsTopicResult(name="t", partitions=[DeleteRecordsPartitionResult(low_watermark=42)])
    # A lost answer is asked for again: deleting twice is deleting once.
    broker.scripts[ApiKey.DELETE_RECORDS] = answering(HANG_UP, DeleteRecordsResponse(topics=[result]))
    partition = TopicPartition("t", 0)
    async with client_of(broker) as cluster:
        assert await Admin(cluster).delete_records({partition: 42}) == {partition: 42}


async def test_sizes_come_per_partition(broker: FakeBroker) -> None:
    topic = DescribeLogDirsTopic(name="t", partitions=[DescribeLogDirsPartition(partition_index=0, partition_size=77)])
    broker.scripts[ApiKey.DESCRIBE_LOG_DIRS] = answering(
        DescribeLogDirsResponse(results=[DescribeLogDirsResult(log_dir="d", topics=[topic])])
    )
    async with client_of(broker) as cluster:
        [size] = await Admin(cluster).partition_sizes(1)
    assert (size.broker_id, size.partition, size.size_bytes) == (1, TopicPartition("t", 0), 77)


async def test_all_topics_come_sorted_by_name(broker: FakeBroker) -> None:
    broker.cluster.add_topic("b", [1])
    broker.cluster.add_topic("a", [1, 1])
    async with client_of(broker) as cluster:
        topics = await Admin(cluster).topics()
    assert [(name, len(topic.partitions)) for name, topic in topics.items()] == [("a", 2), ("b", 1)]
