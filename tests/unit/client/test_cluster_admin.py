"""Brokers and where partitions lie, as an administrator asks: states, elections, moves, draining, removal."""

from collections.abc import AsyncIterator
from typing import Any

import pytest

from martlet.base.errors import ApiError, ErrorCode
from martlet.base.ids import TopicPartition
from martlet.client.cluster_admin import ClusterAdmin
from martlet.client.errors import OutcomeUnknown
from martlet.wire import message_codec
from martlet.wire.api_keys import ApiKey
from martlet.wire.messages.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    AlterPartitionReassignmentsResponse,
    ReassignablePartitionResponse,
    ReassignableTopicResponse,
)
from martlet.wire.messages.describe_cluster import DescribeClusterBroker, DescribeClusterResponse
from martlet.wire.messages.describe_configs import (
    DescribeConfigsResourceResult,
    DescribeConfigsResponse,
    DescribeConfigsResult,
)
from martlet.wire.messages.elect_leaders import ElectLeadersResponse, PartitionResult, ReplicaElectionResult
from martlet.wire.messages.incremental_alter_configs import (
    AlterConfigsResourceResponse,
    IncrementalAlterConfigsResponse,
)
from martlet.wire.messages.list_partition_reassignments import (
    ListPartitionReassignmentsResponse,
    OngoingPartitionReassignment,
    OngoingTopicReassignment,
)
from martlet.wire.messages.unregister_broker import UnregisterBrokerResponse
from tests.unit.client.fake_broker import HANG_UP, FakeBroker, client_of
from tests.unit.client.test_client_admin import answering

T0, T1 = TopicPartition("t", 0), TopicPartition("t", 1)


@pytest.fixture
async def broker() -> AsyncIterator[FakeBroker]:
    made = FakeBroker()
    made.versions |= {
        ApiKey.ELECT_LEADERS: (0, 2),
        ApiKey.ALTER_PARTITION_REASSIGNMENTS: (0, 1),
        ApiKey.LIST_PARTITION_REASSIGNMENTS: (0, 0),
        ApiKey.UNREGISTER_BROKER: (0, 0),
    }
    async with made as started:
        yield started


def drains(**values: str | None) -> DescribeConfigsResponse:
    """What is answered about `martlet.drain` of each broker; None: it knows no such thing."""
    return DescribeConfigsResponse(
        results=[
            DescribeConfigsResult(
                error_code=ErrorCode.INVALID_REQUEST if value is None else 0,
                resource_type=4,
                resource_name=name.removeprefix("b"),
                configs=[] if value is None else [DescribeConfigsResourceResult(name="martlet.drain", value=value)],
            )
            for name, value in values.items()
        ]
    )


async def test_the_state_tells_who_runs_and_who_is_drained(broker: FakeBroker) -> None:
    nodes = [
        DescribeClusterBroker(broker_id=2, host="h2", port=2, rack="r", is_fenced=True),
        DescribeClusterBroker(broker_id=1, host="h1", port=1),
        DescribeClusterBroker(broker_id=3, host="h3", port=3),
    ]
    broker.scripts[ApiKey.DESCRIBE_CLUSTER] = answering(
        DescribeClusterResponse(cluster_id="c", controller_id=3, brokers=nodes)
    )
    broker.scripts[ApiKey.DESCRIBE_CONFIGS] = answering(drains(b1="false", b2="true", b3=None))
    async with client_of(broker) as cluster:
        state = await ClusterAdmin(cluster).state()
    assert (state.cluster_id, state.controller_id) == ("c", 3)
    assert [(one.id, str(one.address), one.rack, one.is_alive, one.is_draining) for one in state.brokers] == [
        (1, "h1:1", None, True, False),
        (2, "h2:2", "r", False, True),
        (3, "h3:3", None, True, False),
    ]
    assert broker.asked(ApiKey.DESCRIBE_CLUSTER)[0].include_fenced_brokers


async def test_results_of_elections_are_shown_for_each_partition(broker: FakeBroker) -> None:
    results = [PartitionResult(0), PartitionResult(1, ErrorCode.ELECTION_NOT_NEEDED, None)]
    broker.scripts[ApiKey.ELECT_LEADERS] = answering(
        ElectLeadersResponse(replica_election_results=[ReplicaElectionResult("t", results)])
    )
    async with client_of(broker) as cluster:
        outcomes = await ClusterAdmin(cluster).elect([T1, T0], unclean=True)
    assert outcomes[T0] is None
    refused = outcomes[T1]
    assert refused is not None
    assert (refused.code, str(refused)) == (
        ErrorCode.ELECTION_NOT_NEEDED,
        "The partition has the leader it should have.",
    )
    (request,) = broker.asked(ApiKey.ELECT_LEADERS)
    assert (request.election_type, request.topic_partitions[0].partitions) == (1, [0, 1])


async def test_many_moves_go_in_several_requests_and_are_sent_again_when_the_answer_is_lost(broker: FakeBroker) -> None:
    lost = [HANG_UP]

    def answer(request: AlterPartitionReassignmentsRequest, version: int) -> Any:
        if lost:
            return lost.pop()
        (topic,) = request.topics
        results = [ReassignablePartitionResponse(partition.partition_index) for partition in topic.partitions]
        response = AlterPartitionReassignmentsResponse(responses=[ReassignableTopicResponse(topic.name, results)])
        return message_codec.encode(response, version)

    broker.scripts[ApiKey.ALTER_PARTITION_REASSIGNMENTS] = answer
    wishes = {TopicPartition("t", index): (2, 3) if index else None for index in range(2_500)}
    async with client_of(broker) as cluster:
        outcomes = await ClusterAdmin(cluster).reassign(wishes)
    assert outcomes == dict.fromkeys(sorted(wishes))
    requests = broker.asked(ApiKey.ALTER_PARTITION_REASSIGNMENTS)
    assert [len(request.topics[0].partitions) for request in requests] == [1_000, 1_000, 1_000, 500]
    assert [partition.replicas for partition in requests[1].topics[0].partitions[:2]] == [None, [2, 3]]


async def test_moves_tell_where_they_lead(broker: FakeBroker) -> None:
    moving = OngoingPartitionReassignment(1, [2, 3, 1], [3], [1])
    broker.scripts[ApiKey.LIST_PARTITION_REASSIGNMENTS] = answering(
        ListPartitionReassignmentsResponse(topics=[OngoingTopicReassignment("t", [moving])])
    )
    async with client_of(broker) as cluster:
        moves = await ClusterAdmin(cluster).moves()
    assert moves[T1].wished == (2, 3)
    assert (moves[T1].adding, moves[T1].removing) == ((3,), (1,))


@pytest.mark.parametrize("wanted", [True, False])
async def test_draining_is_a_setting_of_the_broker(broker: FakeBroker, wanted: bool) -> None:
    result = AlterConfigsResourceResponse(resource_type=4, resource_name="3")
    broker.scripts[ApiKey.INCREMENTAL_ALTER_CONFIGS] = answering(IncrementalAlterConfigsResponse(responses=[result]))
    async with client_of(broker) as cluster:
        await ClusterAdmin(cluster).set_drain(3, wanted=wanted)
    (resource,) = broker.asked(ApiKey.INCREMENTAL_ALTER_CONFIGS)[0].resources
    (change,) = resource.configs
    assert (resource.resource_type, resource.resource_name) == (4, "3")
    assert (change.name, change.config_operation, change.value) == ("martlet.drain", 0, str(wanted).lower())


async def test_a_refused_removal_keeps_the_clusters_words(broker: FakeBroker) -> None:
    words = "broker 3 is running: stop it first"
    broker.scripts[ApiKey.UNREGISTER_BROKER] = answering(
        UnregisterBrokerResponse(error_code=ErrorCode.INVALID_REQUEST, error_message=words)
    )
    async with client_of(broker) as cluster:
        with pytest.raises(ApiError) as caught:
            await ClusterAdmin(cluster).remove_broker(3)
    assert str(caught.value) == words


async def test_a_removal_whose_answer_is_lost_is_not_sent_again(broker: FakeBroker) -> None:
    broker.scripts[ApiKey.UNREGISTER_BROKER] = answering(HANG_UP)
    async with client_of(broker) as cluster:
        with pytest.raises(OutcomeUnknown, match="removing broker 3"):
            await ClusterAdmin(cluster).remove_broker(3)
    assert len(broker.asked(ApiKey.UNREGISTER_BROKER)) == 1


async def test_an_old_broker_is_described_from_its_metadata(broker: FakeBroker) -> None:
    for key in (ApiKey.DESCRIBE_CLUSTER, ApiKey.LIST_PARTITION_REASSIGNMENTS):
        del broker.versions[key]
    async with client_of(broker) as cluster:
        state = await ClusterAdmin(cluster).state()
        assert (state.cluster_id, state.controller_id) == ("fake", 1)
        assert [(one.address, one.is_alive, one.is_draining) for one in state.brokers] == [
            (broker.address, True, False)
        ]
        assert await ClusterAdmin(cluster).moves() == {}
