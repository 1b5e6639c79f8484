"""What lists and descriptions show: to each client what it may see, and nothing of the rest."""

from typing import Any

from martlet.base.errors import ErrorCode
from martlet.security.gates.gate import TopicNames
from martlet.security.gates.table import GATES
from martlet.security.rules import CLUSTER_NAME, Operation, ResourceKind, Rule, bits_of
from martlet.wire.api_keys import ApiKey
from martlet.wire.messages import consumer_group_describe as modern
from martlet.wire.messages.authorized_operations import CLUSTER_OPERATIONS, TOPIC_OPERATIONS
from martlet.wire.messages.create_topics import (
    CreatableTopic,
    CreatableTopicResult,
    CreateTopicsRequest,
    CreateTopicsResponse,
)
from martlet.wire.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState
from martlet.wire.messages.describe_cluster import DescribeClusterRequest, DescribeClusterResponse
from martlet.wire.messages.describe_topic_partitions import (
    DescribeTopicPartitionsRequest,
    DescribeTopicPartitionsResponse,
    TopicRequest,
)
from martlet.wire.messages.describe_transactions import (
    DescribeTransactionsRequest,
    DescribeTransactionsResponse,
    TopicData,
    TransactionState,
)
from martlet.wire.messages.init_producer_id import InitProducerIdRequest
from martlet.wire.messages.list_groups import ListedGroup, ListGroupsRequest, ListGroupsResponse
from martlet.wire.messages.list_transactions import ListTransactionsRequest, ListTransactionsResponse
from martlet.wire.messages.list_transactions import TransactionState as ListedTransaction
from martlet.wire.messages.metadata import (
    MetadataRequest,
    MetadataRequestTopic,
    MetadataResponse,
    MetadataResponseTopic,
)
from martlet.wire.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchResponse,
    OffsetFetchResponseGroup,
    OffsetFetchResponseTopics,
)
from tests.unit.security.rule_samples import rule
from tests.unit.security.test_gates import asker_with

CLUSTER = ResourceKind.CLUSTER
SEEN = [rule(Operation.DESCRIBE, "seen", prefixed=True)]
TOPICS = ("hidden-1", "seen-1", "seen-2")


def through(key: ApiKey, request: Any, answer: Any, rules: list[Rule], version: int) -> Any:
    """What the client gets when the handler answers this."""
    asker = asker_with(rules, version)
    asker.topics = TopicNames({b"hidden-1-id".ljust(16): "hidden-1"}.get, TOPICS.__contains__, lambda: TOPICS)
    admission = GATES[key](request, asker)
    if admission.answer is not None:
        return admission.answer
    return admission.finish(answer) if admission.finish is not None else answer


def test_metadata_of_all_topics_shows_those_that_may_be_described_with_their_own_operations() -> None:
    described = [MetadataResponseTopic(name=name, topic_authorized_operations=TOPIC_OPERATIONS) for name in TOPICS]
    answer = MetadataResponse(topics=described, cluster_authorized_operations=CLUSTER_OPERATIONS)
    got = through(ApiKey.METADATA, MetadataRequest(None), answer, SEEN, 9)
    assert [topic.name for topic in got.topics] == ["seen-1", "seen-2"]
    assert {topic.topic_authorized_operations for topic in got.topics} == {bits_of([Operation.DESCRIBE])}
    assert got.cluster_authorized_operations == 0
    assert answer.topics == described


def test_metadata_of_several_topics_describes_some_and_refuses_others() -> None:
    asked = MetadataRequest([MetadataRequestTopic(name=name) for name in TOPICS], allow_auto_topic_creation=False)
    answer = MetadataResponse(topics=[MetadataResponseTopic(name="seen-1"), MetadataResponseTopic(name="seen-2")])
    got = through(ApiKey.METADATA, asked, answer, SEEN, 9)
    assert {topic.name: topic.error_code for topic in got.topics} == {"seen-1": 0, "seen-2": 0, "hidden-1": 29}


def test_a_topic_asked_for_by_id_keeps_its_name_to_itself() -> None:
    asked = MetadataRequest([MetadataRequestTopic(b"hidden-1-id".ljust(16), None)])
    got = through(ApiKey.METADATA, asked, MetadataResponse(), SEEN, 12)
    assert [(topic.name, topic.error_code) for topic in got.topics] == [(None, 29)]
    deleted = DeleteTopicsRequest([DeleteTopicState(None, b"hidden-1-id".ljust(16))])
    gone = through(ApiKey.DELETE_TOPICS, deleted, None, SEEN, 6)
    assert [(result.name, result.error_code) for result in gone.responses] == [(None, 29)]


def test_a_topic_that_is_not_there_is_refused_like_one_that_is() -> None:
    for name in ("hidden-1", "hidden-but-not-there"):
        asked = MetadataRequest([MetadataRequestTopic(name=name)])
        got = through(ApiKey.METADATA, asked, MetadataResponse(), SEEN, 9)
        assert [(topic.name, topic.error_code) for topic in got.topics] == [(name, 29)]


def test_pages_of_all_topics_are_asked_for_by_the_names_that_may_be_seen() -> None:
    asker = asker_with(SEEN, 0)
    asker.topics = TopicNames(lambda topic_id: None, TOPICS.__contains__, lambda: TOPICS)
    admission = GATES[ApiKey.DESCRIBE_TOPIC_PARTITIONS](DescribeTopicPartitionsRequest(), asker)
    assert admission.request.topics == [TopicRequest("seen-1"), TopicRequest("seen-2")]
    nothing = GATES[ApiKey.DESCRIBE_TOPIC_PARTITIONS](DescribeTopicPartitionsRequest(), asker_with([], 0))
    assert nothing.answer == DescribeTopicPartitionsResponse()


def test_groups_are_listed_to_those_who_may_describe_them_or_the_cluster() -> None:
    answer = ListGroupsResponse(groups=[ListedGroup("hidden"), ListedGroup("seen")])
    some = [rule(Operation.READ, "seen", kind=ResourceKind.GROUP)]
    got = through(ApiKey.LIST_GROUPS, ListGroupsRequest(), answer, some, 4)
    assert [group.group_id for group in got.groups] == ["seen"]
    every = [rule(Operation.DESCRIBE, CLUSTER_NAME, kind=CLUSTER)]
    assert through(ApiKey.LIST_GROUPS, ListGroupsRequest(), answer, every, 4) == answer
    assert through(ApiKey.LIST_GROUPS, ListGroupsRequest(), answer, [], 4).groups == []


def test_a_group_that_reads_a_hidden_topic_is_not_described() -> None:
    member = modern.Member("m", subscribed_topic_names=["seen-1", "hidden-1"])
    answer = modern.ConsumerGroupDescribeResponse(groups=[modern.DescribedGroup(group_id="workers", members=[member])])
    rules = [*SEEN, rule(Operation.DESCRIBE, "workers", kind=ResourceKind.GROUP)]
    asked = modern.ConsumerGroupDescribeRequest(["workers"])
    (group,) = through(ApiKey.CONSUMER_GROUP_DESCRIBE, asked, answer, rules, 1).groups
    assert (group.error_code, group.members) == (ErrorCode.TOPIC_AUTHORIZATION_FAILED, [])
    whole = [*rules, rule(Operation.DESCRIBE, "hidden-1")]
    assert through(ApiKey.CONSUMER_GROUP_DESCRIBE, asked, answer, whole, 1) == answer


def test_all_offsets_of_a_group_leave_out_those_of_hidden_topics() -> None:
    rules = [*SEEN, rule(Operation.DESCRIBE, "workers", kind=ResourceKind.GROUP)]
    topics = [OffsetFetchResponseTopics(name) for name in TOPICS]
    answer = OffsetFetchResponse(groups=[OffsetFetchResponseGroup("workers", topics)])
    asked = OffsetFetchRequest(groups=[OffsetFetchRequestGroup("workers", topics=None)])
    (group,) = through(ApiKey.OFFSET_FETCH, asked, answer, rules, 8).groups
    assert [topic.name for topic in group.topics] == ["seen-1", "seen-2"]


def test_transactions_are_listed_by_their_ids_and_described_without_hidden_topics() -> None:
    rules = [*SEEN, rule(Operation.DESCRIBE, "seen", kind=ResourceKind.TRANSACTIONAL_ID, prefixed=True)]
    listed = ListTransactionsResponse(transaction_states=[ListedTransaction("hidden"), ListedTransaction("seen-x")])
    got = through(ApiKey.LIST_TRANSACTIONS, ListTransactionsRequest(), listed, rules, 1)
    assert [state.transactional_id for state in got.transaction_states] == ["seen-x"]
    state = TransactionState(transactional_id="seen-x", topics=[TopicData(name) for name in TOPICS])
    described = through(
        ApiKey.DESCRIBE_TRANSACTIONS,
        DescribeTransactionsRequest(["seen-x"]),
        DescribeTransactionsResponse(transaction_states=[state]),
        rules,
        0,
    )
    assert [topic.topic for topic in described.transaction_states[0].topics] == ["seen-1", "seen-2"]


def test_a_right_to_the_cluster_makes_topics_and_their_settings_stay_hidden_without_another() -> None:
    rules = [rule(Operation.CREATE, CLUSTER_NAME, kind=CLUSTER)]
    asked = CreateTopicsRequest([CreatableTopic("new", 1, 1)])
    made = CreatableTopicResult("new", bytes(range(16)), num_partitions=1, replication_factor=1)
    answer = CreateTopicsResponse(topics=[made])
    (result,) = through(ApiKey.CREATE_TOPICS, asked, answer, rules, 7).topics
    assert (result.error_code, result.topic_config_error_code, result.num_partitions) == (0, 29, -1)
    shown = [*rules, rule(Operation.DESCRIBE_CONFIGS, "new")]
    assert through(ApiKey.CREATE_TOPICS, asked, answer, shown, 7) == answer


def test_a_right_to_the_cluster_deletes_any_topic() -> None:
    rules = [rule(Operation.DELETE, CLUSTER_NAME, kind=CLUSTER)]
    asker = asker_with([*rules, rule(Operation.ALL, CLUSTER_NAME, kind=CLUSTER)], 6)
    request = DeleteTopicsRequest([DeleteTopicState("hidden-1")])
    assert GATES[ApiKey.DELETE_TOPICS](request, asker).request is request


def test_a_client_that_may_write_somewhere_may_have_a_producer_id() -> None:
    asker = asker_with([rule(Operation.WRITE, "some", prefixed=True)], 4)
    request = InitProducerIdRequest()
    assert GATES[ApiKey.INIT_PRODUCER_ID](request, asker).request is request
    assert asker.denials == []


def test_operations_on_the_cluster_are_the_clients_own() -> None:
    answer = DescribeClusterResponse(cluster_authorized_operations=CLUSTER_OPERATIONS)
    some = [rule(Operation.DESCRIBE, CLUSTER_NAME, kind=CLUSTER), rule(Operation.ALTER, CLUSTER_NAME, kind=CLUSTER)]
    got = through(ApiKey.DESCRIBE_CLUSTER, DescribeClusterRequest(), answer, some, 1)
    assert got.cluster_authorized_operations == bits_of([Operation.DESCRIBE, Operation.ALTER])
    assert through(ApiKey.DESCRIBE_CLUSTER, DescribeClusterRequest(), answer, [], 1).cluster_authorized_operations == 0
    unasked = DescribeClusterResponse()
    assert through(ApiKey.DESCRIBE_CLUSTER, DescribeClusterRequest(), unasked, some, 1) == unasked
