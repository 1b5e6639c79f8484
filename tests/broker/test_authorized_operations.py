"""Which operations a client is allowed, at every version that can ask: what Kafka without an authorizer answers."""

import pytest

from martlet.base.errors import ErrorCode
from martlet.wire.messages.consumer_group_describe import ConsumerGroupDescribeRequest
from martlet.wire.messages.describe_cluster import DescribeClusterRequest
from martlet.wire.messages.describe_groups import DescribeGroupsRequest
from martlet.wire.messages.describe_topic_partitions import DescribeTopicPartitionsRequest, TopicRequest
from martlet.wire.messages.metadata import MetadataRequest, MetadataRequestTopic
from tests.broker.group_requests import consumer_heartbeat, enter, unique_group
from tests.broker.raw_client import RawClient
from tests.broker.requests import create_topic

# What Apache Kafka 4.3.1 answered to the same requests.
NOT_REQUESTED = -2147483648
TOPIC = 3576
GROUP = 3400
CLUSTER = 8096


@pytest.mark.parametrize("version", range(8, 14))
def test_metadata_names_what_the_client_may_do_with_topics_and_cluster(client: RawClient, version: int) -> None:
    named = [MetadataRequestTopic(name=create_topic(client)), MetadataRequestTopic(name="no-such-topic")]
    for is_asked in (True, False):
        request = MetadataRequest(named, False, is_asked, is_asked and version <= 10)
        answer = client.call(request, version)
        assert [topic.topic_authorized_operations for topic in answer.topics] == [
            TOPIC if is_asked else NOT_REQUESTED
        ] * 2
        expected = CLUSTER if is_asked and version <= 10 else NOT_REQUESTED
        assert answer.cluster_authorized_operations == expected


def test_an_unknown_topic_id_allows_nothing(client: RawClient) -> None:
    request = MetadataRequest([MetadataRequestTopic(topic_id=bytes(range(16)))], False, True)
    (topic,) = client.call(request, 12).topics
    assert (topic.error_code, topic.topic_authorized_operations) == (ErrorCode.UNKNOWN_TOPIC_ID, NOT_REQUESTED)


@pytest.mark.parametrize("version", range(3))
def test_describe_cluster_names_what_the_client_may_do_with_the_cluster(client: RawClient, version: int) -> None:
    for is_asked, expected in ((True, CLUSTER), (False, NOT_REQUESTED)):
        answer = client.call(DescribeClusterRequest(is_asked), version)
        assert answer.cluster_authorized_operations == expected


def test_topics_described_page_by_page_always_name_what_the_client_may_do(client: RawClient) -> None:
    asked = [TopicRequest(create_topic(client)), TopicRequest("no-such-topic")]
    answer = client.call(DescribeTopicPartitionsRequest(asked), 0)
    assert [topic.topic_authorized_operations for topic in answer.topics] == [TOPIC, TOPIC]


@pytest.mark.parametrize("version", range(3, 7))
def test_describe_groups_names_what_the_client_may_do_with_each(client: RawClient, version: int) -> None:
    group = unique_group()
    enter(client, group)
    for is_asked in (True, False):
        found, missing = client.call(DescribeGroupsRequest([group, "no-such-group"], is_asked), version).groups
        assert found.authorized_operations == (GROUP if is_asked else NOT_REQUESTED)
        # A missing group is no error before v6.
        assert missing.authorized_operations == (GROUP if is_asked and version < 6 else NOT_REQUESTED)


@pytest.mark.parametrize("version", [0, 1])
def test_groups_of_the_consumer_protocol_name_it_too(client: RawClient, version: int) -> None:
    group = unique_group()
    joined = consumer_heartbeat(client, group, "M" * 22, 0, create_topic(client))
    assert joined.error_code == ErrorCode.NONE
    for is_asked in (True, False):
        request = ConsumerGroupDescribeRequest([group, "no-such-group"], is_asked)
        found, missing = client.call(request, version).groups
        assert found.authorized_operations == (GROUP if is_asked else NOT_REQUESTED)
        assert missing.authorized_operations == NOT_REQUESTED
