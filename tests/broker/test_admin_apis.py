"""Every administrative API at every version served, and that what it did is visible to the next request."""

from typing import Any

import pytest

from martlet.base.errors import ERROR_TABLE, ErrorCode
from martlet.testing.running_broker import RunningBroker
from martlet.wire.api_keys import FIRST_OWN_KEY, ApiKey
from martlet.wire.messages.api_versions import ApiVersionsRequest
from martlet.wire.messages.create_partitions import (
    CreatePartitionsAssignment,
    CreatePartitionsRequest,
    CreatePartitionsTopic,
)
from martlet.wire.messages.create_topics import (
    CreatableReplicaAssignment,
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
)
from martlet.wire.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState
from martlet.wire.messages.describe_cluster import DescribeClusterRequest
from martlet.wire.messages.describe_topic_partitions import (
    Cursor,
    DescribeTopicPartitionsRequest,
    TopicRequest,
)
from martlet.wire.messages.find_coordinator import FindCoordinatorRequest
from martlet.wire.messages.metadata import MetadataRequest, MetadataRequestTopic
from tests.broker.raw_client import RawClient
from tests.broker.requests import create_topic, describe, publish_values, read_all, unique_topic
from tests.broker.sample_requests import samples, served_versions
from tests.broker.scrape import wait_until


def test_every_request_at_every_version_is_answered_in_that_version(broker: RunningBroker) -> None:
    with RawClient(broker.bootstrap_servers) as client:
        for key, version, body in samples(create_topic(client)):
            sent = client.send(key, version, body)
            received, answer = client.receive(key, version)
            assert received == sent, f"{key.name} v{version}"
            assert answer


@pytest.mark.parametrize("version", range(5))
def test_the_table_of_apis_is_what_the_handlers_serve(client: RawClient, version: int) -> None:
    response = client.call(ApiVersionsRequest("raw", "1"), version)
    table = {api.api_key: (api.min_version, api.max_version) for api in response.api_keys}
    expected = {int(key): (kept[0], kept[-1]) for key, kept in served_versions().items() if key < FIRST_OWN_KEY}
    # What clients must see although it is not served: older librdkafka stops compressing without Produce v0, and does
    # not log in without SaslHandshake v0.
    expected[ApiKey.PRODUCE] = (0, 13)
    expected[ApiKey.SASL_HANDSHAKE] = (0, 1)
    # Two-phase commit is advertised only where it is allowed.
    expected[ApiKey.INIT_PRODUCER_ID] = (0, 5)
    assert response.error_code == ErrorCode.NONE
    assert table == expected


def test_apis_of_our_own_are_listed_for_our_own_clients_only(client: RawClient) -> None:
    own = {int(key) for key in served_versions() if key >= FIRST_OWN_KEY}
    listed = client.call(ApiVersionsRequest("martlet", "1"), 4).api_keys
    assert own
    assert own <= {api.api_key for api in listed}
    others = client.call(ApiVersionsRequest("martlet-like", "1"), 4).api_keys
    assert max(api.api_key for api in others) < FIRST_OWN_KEY


# --- Metadata


@pytest.mark.parametrize("version", range(14))
def test_metadata_describes_brokers_and_topics(broker: RunningBroker, client: RawClient, version: int) -> None:
    topic = create_topic(client, 3)
    response = client.call(MetadataRequest(topics=[MetadataRequestTopic(name=topic)]), version)
    (node,) = response.brokers
    assert f"{node.host}:{node.port}" == broker.bootstrap_servers
    assert response.controller_id == (node.node_id if version >= 1 else -1)
    (found,) = response.topics
    assert (found.error_code, found.name, len(found.partitions)) == (0, topic, 3)
    assert [partition.partition_index for partition in found.partitions] == [0, 1, 2]
    for partition in found.partitions:
        assert partition.leader_id == node.node_id
        assert partition.replica_nodes == partition.isr_nodes == [node.node_id]
        assert (partition.leader_epoch >= 0) == (version >= 7)
    assert (found.topic_id != bytes(16)) == (version >= 10)


def test_metadata_of_all_topics_and_of_none(client: RawClient) -> None:
    topic = create_topic(client)
    everything: list[tuple[int, list[MetadataRequestTopic] | None]] = [
        (0, []),
        *((version, None) for version in range(1, 14)),
    ]
    for version, topics in everything:
        assert topic in [found.name for found in client.call(MetadataRequest(topics=topics), version).topics]
    for version in range(1, 14):
        assert client.call(MetadataRequest(topics=[]), version).topics == []


def test_metadata_by_topic_id(client: RawClient) -> None:
    topic = create_topic(client)
    topic_id = describe(client, topic).topic_id
    for version in (12, 13):
        asked = [MetadataRequestTopic(topic_id=topic_id), MetadataRequestTopic(topic_id=bytes(range(16)))]
        known, unknown = client.call(MetadataRequest(topics=asked), version).topics
        assert (known.error_code, known.name) == (0, topic)
        assert unknown.error_code == ErrorCode.UNKNOWN_TOPIC_ID


@pytest.mark.parametrize("version", [10, 11])
def test_an_unknown_id_is_answered_where_a_name_cannot_be_null(client: RawClient, version: int) -> None:
    asked = MetadataRequestTopic(topic_id=bytes(range(16)), name="")
    (found,) = client.call(MetadataRequest(topics=[asked]), version).topics
    assert found.error_code != ErrorCode.NONE
    assert found.name == ""


@pytest.mark.parametrize("version", range(14))
def test_naming_a_topic_creates_it_where_allowed(client: RawClient, version: int) -> None:
    topic = unique_topic("auto")
    request = MetadataRequest(topics=[MetadataRequestTopic(name=topic)], allow_auto_topic_creation=False)
    if version >= 4:
        assert client.call(request, version).topics[0].error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    request.allow_auto_topic_creation = True
    (created,) = client.call(request, version).topics
    assert created.error_code in (ErrorCode.NONE, ErrorCode.LEADER_NOT_AVAILABLE)
    publish_values(client, topic, b"x")


@pytest.mark.parametrize("version", range(14))
def test_a_deleted_topic_is_gone_for_who_names_it_and_back_for_who_insists(client: RawClient, version: int) -> None:
    topic = create_topic(client)
    (deleted,) = client.call(DeleteTopicsRequest(topic_names=[topic]), 5).responses
    assert deleted.error_code == ErrorCode.NONE
    request = MetadataRequest(topics=[MetadataRequestTopic(name=topic)], allow_auto_topic_creation=True)
    answers = [client.call(request, version).topics[0].error_code for _ in range(2)]
    assert answers == [ErrorCode.UNKNOWN_TOPIC_OR_PARTITION] * 2
    assert topic not in [one.name for one in client.call(MetadataRequest(topics=None), 12).topics]
    wait_until(lambda: client.call(request, version).topics[0].error_code == ErrorCode.NONE, "the topic is back")
    publish_values(client, topic, b"x")


def test_naming_a_topic_does_not_create_it_where_forbidden(make_broker: Any) -> None:
    running = make_broker(auto_create_topics=False)
    with RawClient(running.bootstrap_servers) as client:
        for version in range(14):
            request = MetadataRequest(topics=[MetadataRequestTopic(name="wanted")])
            assert client.call(request, version).topics[0].error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        assert client.call(MetadataRequest(topics=None), 12).topics == []


# --- topics


@pytest.mark.parametrize("version", range(2, 8))
def test_a_topic_is_created_once_and_visible_at_once(client: RawClient, version: int) -> None:
    name = unique_topic()
    settings = [CreatableTopicConfig("retention.ms", "1234567")]
    request = CreateTopicsRequest(topics=[CreatableTopic(name, 2, 1, [], settings)], validate_only=True)
    assert client.call(request, version).topics[0].error_code == ErrorCode.NONE
    assert describe(client, name).error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "only checked"
    request.validate_only = False
    (created,) = client.call(request, version).topics
    assert (created.error_code, created.name) == (0, name)
    found = describe(client, name)
    assert len(found.partitions) == 2
    if version >= 7:
        assert created.topic_id == found.topic_id
    if version >= 5:
        assert (created.num_partitions, created.replication_factor) == (2, 1)
        assert {config.name: config.value for config in created.configs}["retention.ms"] == "1234567"
    (again,) = client.call(request, version).topics
    assert again.error_code == ErrorCode.TOPIC_ALREADY_EXISTS
    if version >= 1:
        assert again.error_message


def test_partitions_and_replicas_may_be_left_to_the_broker(client: RawClient) -> None:
    name = unique_topic()
    (created,) = client.call(CreateTopicsRequest(topics=[CreatableTopic(name, -1, -1)]), 5).topics
    assert (created.error_code, created.num_partitions, created.replication_factor) == (0, 1, 1)


def test_replicas_may_be_placed_by_hand(client: RawClient) -> None:
    (node,) = client.call(MetadataRequest(topics=[]), 12).brokers
    good = [CreatableReplicaAssignment(index, [node.node_id]) for index in range(3)]
    wrong = {
        "unknown broker": [CreatableReplicaAssignment(0, [node.node_id + 7])],
        "twice the same": [CreatableReplicaAssignment(0, [node.node_id, node.node_id])],
        "a hole": [CreatableReplicaAssignment(1, [node.node_id])],
        "no broker": [CreatableReplicaAssignment(0, [])],
    }
    name = unique_topic()
    (created,) = client.call(CreateTopicsRequest(topics=[CreatableTopic(name, -1, -1, good)]), 7).topics
    assert created.error_code == ErrorCode.NONE
    assert len(describe(client, name).partitions) == 3
    for what, assignment in wrong.items():
        asked = CreatableTopic(unique_topic(), -1, -1, assignment)
        (refused,) = client.call(CreateTopicsRequest(topics=[asked]), 7).topics
        assert refused.error_code == ErrorCode.INVALID_REPLICA_ASSIGNMENT, what
    both = CreatableTopic(unique_topic(), 3, 1, good)
    (refused,) = client.call(CreateTopicsRequest(topics=[both]), 7).topics
    assert refused.error_code == ErrorCode.INVALID_REQUEST


def test_one_request_naming_a_topic_twice_creates_none_of_them(client: RawClient) -> None:
    name = unique_topic()
    asked = [CreatableTopic(name, 1, 1), CreatableTopic(name, 2, 1)]
    response = client.call(CreateTopicsRequest(topics=asked), 7)
    assert {result.error_code for result in response.topics} == {ErrorCode.INVALID_REQUEST}
    assert describe(client, name).error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def test_an_empty_list_of_topics_is_answered_with_one(client: RawClient) -> None:
    for version in range(2, 8):
        assert client.call(CreateTopicsRequest(topics=[]), version).topics == []
    for version in range(1, 7):
        assert client.call(DeleteTopicsRequest(), version).responses == []
    for version in range(4):
        assert client.call(CreatePartitionsRequest(), version).results == []


@pytest.mark.parametrize("version", range(1, 7))
def test_a_topic_is_deleted_and_gone_at_once(client: RawClient, version: int) -> None:
    topic = create_topic(client)
    publish_values(client, topic, b"old")
    request = DeleteTopicsRequest(topics=[DeleteTopicState(name=topic)], topic_names=[topic])
    (deleted,) = client.call(request, version).responses
    assert (deleted.error_code, deleted.name) == (0, topic)
    assert describe(client, topic).error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    (again,) = client.call(request, version).responses
    assert again.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    create_topic(client, name=topic)
    assert read_all(client, topic) == [], "a topic created again does not bring old records back"


def test_a_topic_is_deleted_by_its_id(client: RawClient) -> None:
    topic = create_topic(client)
    topic_id = describe(client, topic).topic_id
    asked = [DeleteTopicState(topic_id=topic_id), DeleteTopicState(topic_id=bytes(range(16)))]
    deleted, unknown = client.call(DeleteTopicsRequest(topics=asked), 6).responses
    assert (deleted.error_code, deleted.name, deleted.topic_id) == (0, topic, topic_id)
    assert unknown.error_code == ErrorCode.UNKNOWN_TOPIC_ID
    assert describe(client, topic).error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


@pytest.mark.parametrize("version", range(4))
def test_a_topic_grows_and_never_shrinks(client: RawClient, version: int) -> None:
    topic = create_topic(client, 2)

    def grow(count: int, *, validate_only: bool = False, assignments: Any = None) -> int:
        asked = CreatePartitionsTopic(topic, count, assignments)
        request = CreatePartitionsRequest([asked], timeout_ms=5000, validate_only=validate_only)
        code: int = client.call(request, version).results[0].error_code
        return code

    assert grow(4, validate_only=True) == ErrorCode.NONE
    assert len(describe(client, topic).partitions) == 2
    assert grow(4) == ErrorCode.NONE
    assert len(describe(client, topic).partitions) == 4
    publish_values(client, topic, b"x", partition=3)
    for count in (4, 3, 0, -1, 2**31 - 1):
        assert grow(count) == ErrorCode.INVALID_PARTITIONS, count
    (node,) = client.call(MetadataRequest(topics=[]), 12).brokers
    assert grow(5, assignments=[CreatePartitionsAssignment([node.node_id])]) == ErrorCode.NONE
    assert grow(6, assignments=[CreatePartitionsAssignment([99])]) == ErrorCode.INVALID_REPLICA_ASSIGNMENT
    assert grow(7, assignments=[CreatePartitionsAssignment([node.node_id])]) == ErrorCode.INVALID_REPLICA_ASSIGNMENT
    unknown = CreatePartitionsRequest([CreatePartitionsTopic("never-created", 5)])
    assert client.call(unknown, version).results[0].error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


# --- describing


@pytest.mark.parametrize("version", range(3))
def test_the_cluster_is_described(broker: RunningBroker, client: RawClient, version: int) -> None:
    response = client.call(DescribeClusterRequest(), version)
    (node,) = response.brokers
    assert response.error_code == ErrorCode.NONE
    assert f"{node.host}:{node.port}" == broker.bootstrap_servers
    assert response.controller_id == node.broker_id
    assert response.cluster_id == client.call(MetadataRequest(topics=[]), 12).cluster_id
    if version >= 1:
        assert client.call(DescribeClusterRequest(endpoint_type=2), version).error_code != ErrorCode.NONE


def test_topics_are_described_page_by_page(client: RawClient) -> None:
    names = sorted(create_topic(client, 3, name=unique_topic("paged")) for _ in range(3))
    seen: list[tuple[str, int]] = []
    cursor: Cursor | None = None
    pages = 0
    while True:
        request = DescribeTopicPartitionsRequest([TopicRequest(name) for name in reversed(names)], 2, cursor)
        response = client.call(request, 0)
        page = [(found.name, p.partition_index) for found in response.topics for p in found.partitions]
        assert 0 < len(page) <= 2
        seen += page
        pages += 1
        cursor = response.next_cursor
        if cursor is None:
            break
    assert seen == [(name, index) for name in names for index in range(3)]
    assert pages == 5


def test_an_unknown_topic_is_described_as_such(client: RawClient) -> None:
    (found,) = client.call(DescribeTopicPartitionsRequest([TopicRequest("never-created")]), 0).topics
    assert (found.error_code, found.name) == (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "never-created")


@pytest.mark.parametrize("version", range(1, 7))
def test_the_coordinator_of_a_transactional_id_is_found(client: RawClient, version: int) -> None:
    response = client.call(FindCoordinatorRequest(1, ["g", "h", "g"], "g"), version)
    answers = response.coordinators if version >= 4 else [response]
    assert [(answer.error_code, answer.node_id) for answer in answers] == [(ErrorCode.NONE, 1)] * len(answers)


@pytest.mark.parametrize("version", range(1, 7))
@pytest.mark.parametrize("key_type", [2, 9])
def test_coordinators_there_are_none_of_are_refused_for_good_and_with_a_sentence(
    client: RawClient, version: int, key_type: int
) -> None:
    response = client.call(FindCoordinatorRequest(key_type, ["g", "h", "g"], "g"), version)
    answers = response.coordinators if version >= 4 else [response]
    refused = (ErrorCode.INVALID_REQUEST, -1)
    assert not ERROR_TABLE[ErrorCode.INVALID_REQUEST].retriable
    assert [(answer.error_code, answer.node_id) for answer in answers] == [refused] * len(answers)
    assert all(answer.error_message for answer in answers)
    assert len(answers) == (2 if version >= 4 else 1)
