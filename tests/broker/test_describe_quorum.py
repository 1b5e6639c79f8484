"""The cluster's metadata in the form of Kafka's quorum, as a broker alone answers it at every version."""

import pytest

from martlet.base.errors import ErrorCode
from martlet.testing.running_broker import RunningBroker
from martlet.wire.messages.describe_quorum import DescribeQuorumRequest, PartitionData, TopicData
from tests.broker.raw_client import RawClient

METADATA = "__cluster_metadata"


@pytest.mark.parametrize("version", range(3))
def test_a_broker_alone_leads_its_metadata(broker: RunningBroker, client: RawClient, version: int) -> None:
    response = client.call(DescribeQuorumRequest([TopicData(METADATA, [PartitionData(0)])]), version)
    (topic,) = response.topics
    (metadata,) = topic.partitions
    assert (response.error_code, topic.topic_name) == (ErrorCode.NONE, METADATA)
    assert (metadata.error_code, metadata.partition_index, metadata.leader_id) == (ErrorCode.NONE, 0, 1)
    assert 0 < metadata.leader_epoch <= metadata.high_watermark == client.api_versions(4).finalized_features_epoch
    (voter,) = metadata.current_voters
    assert (voter.replica_id, voter.log_end_offset) == (1, metadata.high_watermark)
    assert (voter.last_fetch_timestamp > 0) == (version >= 1)
    assert metadata.observers == []
    where = [(node.node_id, f"{one.host}:{one.port}") for node in response.nodes for one in node.listeners]
    assert where == ([(1, broker.bootstrap_servers)] if version >= 2 else [])


@pytest.mark.parametrize("version", range(3))
def test_there_is_no_other_quorum(client: RawClient, version: int) -> None:
    asked = [
        TopicData(METADATA, [PartitionData(0), PartitionData(1), PartitionData(0)]),
        TopicData("t", [PartitionData()]),
    ]
    response = client.call(DescribeQuorumRequest(asked), version)
    codes = [(topic.topic_name, [each.error_code for each in topic.partitions]) for topic in response.topics]
    unknown = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert codes == [(METADATA, [0, unknown]), ("t", [unknown])]
    assert client.call(DescribeQuorumRequest([]), version).topics == []
