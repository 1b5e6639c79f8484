"""Elections, moves, draining and removal as one broker answers for them, at every version served."""

import pytest

from martlet.base.errors import ErrorCode
from martlet.testing.running_broker import RunningBroker
from martlet.wire.messages.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    ReassignablePartition,
    ReassignableTopic,
)
from martlet.wire.messages.describe_cluster import DescribeClusterRequest
from martlet.wire.messages.describe_configs import DescribeConfigsRequest, DescribeConfigsResource
from martlet.wire.messages.elect_leaders import ElectLeadersRequest, TopicPartitions
from martlet.wire.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from martlet.wire.messages.list_partition_reassignments import (
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsTopics,
)
from martlet.wire.messages.unregister_broker import UnregisterBrokerRequest
from tests.broker.raw_client import RawClient
from tests.broker.requests import create_topic, describe, leader_epoch

_BROKER = 4
_SET, _DELETE, _APPEND = 0, 1, 2
_OWN_ID = 1


def _move(client: RawClient, topic: str, replicas: list[int] | None, *, version: int = 1) -> tuple[int, str | None]:
    wish = ReassignableTopic(topic, [ReassignablePartition(0, replicas)])
    response = client.call(AlterPartitionReassignmentsRequest(topics=[wish]), version)
    assert response.error_code == ErrorCode.NONE
    (answered,) = response.responses
    (result,) = answered.partitions
    assert (answered.name, result.partition_index) == (topic, 0)
    return result.error_code, result.error_message


def _elect(client: RawClient, topic: str, partition: int = 0, *, kind: int = 0, version: int = 2) -> tuple[int, str]:
    request = ElectLeadersRequest(kind, [TopicPartitions(topic, [partition])])
    response = client.call(request, version)
    assert response.error_code == ErrorCode.NONE
    (answered,) = response.replica_election_results
    (result,) = answered.partition_result
    assert (answered.topic, result.partition_id) == (topic, partition)
    return result.error_code, result.error_message


def _set_drain(client: RawClient, broker: str, value: str | None, *more: AlterableConfig, operation: int = _SET) -> int:
    changes = [AlterableConfig("martlet.drain", operation, value), *more]
    request = IncrementalAlterConfigsRequest([AlterConfigsResource(_BROKER, broker, changes)])
    (result,) = client.call(request, 1).responses
    code: int = result.error_code
    return code


def _drain_of(client: RawClient, broker: str) -> str | None:
    asked = DescribeConfigsResource(_BROKER, broker, ["martlet.drain"])
    (result,) = client.call(DescribeConfigsRequest([asked]), 4).results
    assert result.error_code == ErrorCode.NONE, result.error_message
    (entry,) = result.configs
    value: str | None = entry.value
    return value


# --- ElectLeaders


@pytest.mark.parametrize("version", range(3))
def test_a_partition_led_by_its_preferred_leader_needs_no_election(client: RawClient, version: int) -> None:
    topic = create_topic(client)
    epoch = leader_epoch(client, topic)
    code, message = _elect(client, topic, version=version)
    assert code == ErrorCode.ELECTION_NOT_NEEDED
    assert topic in message
    assert leader_epoch(client, topic) == epoch


def test_an_unclean_election_is_refused_while_there_is_a_leader(client: RawClient) -> None:
    topic = create_topic(client)
    code, message = _elect(client, topic, kind=1)
    assert (code, message) == (ErrorCode.ELECTION_NOT_NEEDED, f"{topic}-0 has a leader")


def test_an_election_in_a_partition_that_is_not_there_names_it(client: RawClient) -> None:
    topic = create_topic(client)
    assert _elect(client, topic, 7) == (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"there is no partition {topic}-7")
    assert _elect(client, "unknown", 0)[0] == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert _elect(client, topic, -1)[0] == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def test_an_election_in_all_partitions_leaves_out_those_that_need_none(client: RawClient) -> None:
    create_topic(client, 5)
    response = client.call(ElectLeadersRequest(0, None), 2)
    assert (response.error_code, response.replica_election_results) == (0, [])


def test_an_election_of_an_unknown_type_is_refused_as_a_whole(client: RawClient) -> None:
    response = client.call(ElectLeadersRequest(9, [TopicPartitions("t", [0])]), 2)
    assert (response.error_code, response.replica_election_results) == (ErrorCode.INVALID_REQUEST, [])


def test_a_partition_named_twice_is_elected_once(client: RawClient) -> None:
    topic = create_topic(client)
    response = client.call(ElectLeadersRequest(0, [TopicPartitions(topic, [0, 0])]), 2)
    assert len(response.replica_election_results[0].partition_result) == 1


# --- moves


@pytest.mark.parametrize("version", range(2))
def test_a_move_to_where_the_partition_lies_is_done_at_once(client: RawClient, version: int) -> None:
    topic = create_topic(client)
    epoch = leader_epoch(client, topic)
    assert _move(client, topic, [_OWN_ID], version=version) == (ErrorCode.NONE, None)
    assert client.call(ListPartitionReassignmentsRequest(topics=None), 0).topics == []
    assert leader_epoch(client, topic) == epoch


@pytest.mark.parametrize(
    ("replicas", "code", "sentence"),
    [
        ([7], ErrorCode.INVALID_REPLICA_ASSIGNMENT, "there is no broker 7 in this cluster"),
        ([1, 1], ErrorCode.INVALID_REPLICA_ASSIGNMENT, "named twice"),
        ([], ErrorCode.INVALID_REPLICA_ASSIGNMENT, "at least one replica"),
        ([-1], ErrorCode.INVALID_REPLICA_ASSIGNMENT, "no broker -1"),
        (None, ErrorCode.NO_REASSIGNMENT_IN_PROGRESS, "no move of"),
    ],
)
def test_a_wrong_move_says_what_is_wrong(
    client: RawClient, replicas: list[int] | None, code: ErrorCode, sentence: str
) -> None:
    topic = create_topic(client)
    found, message = _move(client, topic, replicas)
    assert found == code
    assert sentence in (message or "")
    assert describe(client, topic).partitions[0].replica_nodes == [_OWN_ID]


def test_moves_of_one_request_succeed_and_fail_on_their_own(client: RawClient) -> None:
    topic = create_topic(client, 3)
    wishes = [
        ReassignablePartition(0, [_OWN_ID]),
        ReassignablePartition(1, [9]),
        ReassignablePartition(2, [_OWN_ID]),
        ReassignablePartition(2, [9]),
        ReassignablePartition(3, [_OWN_ID]),
    ]
    request = AlterPartitionReassignmentsRequest(topics=[ReassignableTopic(topic, wishes)])
    (answered,) = client.call(request, 1).responses
    assert {result.partition_index: result.error_code for result in answered.partitions} == {
        0: ErrorCode.NONE,
        1: ErrorCode.INVALID_REPLICA_ASSIGNMENT,
        2: ErrorCode.INVALID_REQUEST,
        3: ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    }


def test_moves_are_listed_for_all_or_some_partitions_and_unknown_ones_are_passed_over(client: RawClient) -> None:
    topic = create_topic(client)
    asked = [ListPartitionReassignmentsTopics(topic, [0, 1]), ListPartitionReassignmentsTopics("unknown", [0])]
    for topics in (None, asked, []):
        response = client.call(ListPartitionReassignmentsRequest(topics=topics), 0)
        assert (response.error_code, response.topics) == (ErrorCode.NONE, [])


# --- draining and removal


def test_the_only_broker_with_partitions_cannot_be_drained(client: RawClient) -> None:
    create_topic(client)
    assert _set_drain(client, str(_OWN_ID), "true") == ErrorCode.INVALID_REPLICATION_FACTOR
    assert _drain_of(client, str(_OWN_ID)) == "false"


def test_draining_a_broker_that_is_not_there_is_refused(client: RawClient) -> None:
    assert _set_drain(client, "7", "true") == ErrorCode.RESOURCE_NOT_FOUND
    assert _set_drain(client, "7", None, operation=_DELETE) == ErrorCode.RESOURCE_NOT_FOUND
    for name in ("", "x", "-1", "१", "9" * 40):
        assert _set_drain(client, name, "true") == ErrorCode.INVALID_REQUEST


def test_the_wish_to_drain_is_checked_like_any_setting(client: RawClient) -> None:
    name = str(_OWN_ID)
    assert _set_drain(client, name, "perhaps") == ErrorCode.INVALID_CONFIG
    assert _set_drain(client, name, None) == ErrorCode.INVALID_CONFIG
    assert _set_drain(client, name, "true", operation=_APPEND) == ErrorCode.INVALID_CONFIG
    other = AlterableConfig("log.retention.ms", _SET, "1000")
    assert _set_drain(client, name, "false", other) == ErrorCode.INVALID_REQUEST
    assert _set_drain(client, name, "false") == ErrorCode.NONE
    assert _set_drain(client, name, None, operation=_DELETE) == ErrorCode.NONE


def test_an_empty_broker_is_drained_takes_no_topics_and_is_taken_back(make_broker: type[RunningBroker]) -> None:
    running = make_broker()
    with RawClient(running.bootstrap_servers) as client:
        assert _set_drain(client, str(_OWN_ID), "true") == ErrorCode.NONE
        assert _drain_of(client, str(_OWN_ID)) == "true"
        assert describe(client, "t").error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        with pytest.raises(AssertionError, match="being drained"):
            create_topic(client)
        assert _set_drain(client, str(_OWN_ID), None, operation=_DELETE) == ErrorCode.NONE
        create_topic(client)


def test_the_drain_setting_is_among_the_brokers_own(client: RawClient) -> None:
    asked = DescribeConfigsResource(_BROKER, str(_OWN_ID), None)
    (result,) = client.call(DescribeConfigsRequest([asked], include_documentation=True), 4).results
    (entry,) = [entry for entry in result.configs if entry.name == "martlet.drain"]
    assert (entry.value, entry.read_only) == ("false", False)
    assert "emptied" in entry.documentation


def test_a_broker_that_runs_is_not_removed_and_an_unknown_one_is_not_found(client: RawClient) -> None:
    create_topic(client)
    response = client.call(UnregisterBrokerRequest(_OWN_ID), 0)
    assert response.error_code == ErrorCode.INVALID_REQUEST
    assert "drain it first" in response.error_message
    response = client.call(UnregisterBrokerRequest(99), 0)
    assert response.error_code == ErrorCode.BROKER_ID_NOT_REGISTERED
    assert "no broker 99" in response.error_message


@pytest.mark.parametrize("version", range(3))
def test_the_cluster_is_described_with_and_without_fenced_brokers(client: RawClient, version: int) -> None:
    for with_fenced in (False, True):
        response = client.call(DescribeClusterRequest(include_fenced_brokers=with_fenced), version)
        (node,) = response.brokers
        assert (node.broker_id, node.is_fenced, response.controller_id) == (_OWN_ID, False, _OWN_ID)
