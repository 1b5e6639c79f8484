"""One small valid request for every API and version the broker serves, made from the messages' own defaults.

They name one topic, which need not exist: what counts is that every byte of them belongs.
"""

from collections.abc import Iterator
from typing import Any, NamedTuple

from martlet.broker.handlers import SERVED
from martlet.wire.api_keys import ApiKey
from martlet.wire.fetch import FetchPartition, FetchRequest, FetchTopic, encode_fetch_request
from martlet.wire.message_codec import encode
from martlet.wire.messages import (
    add_offsets_to_txn,
    add_partitions_to_txn,
    alter_configs,
    alter_partition_reassignments,
    alter_replica_log_dirs,
    alter_share_group_offsets,
    alter_subscriptions,
    alter_user_scram_credentials,
    api_versions,
    consumer_group_describe,
    consumer_group_heartbeat,
    create_acls,
    create_partitions,
    create_topics,
    delete_acls,
    delete_groups,
    delete_records,
    delete_share_group_offsets,
    delete_topics,
    describe_acls,
    describe_cluster,
    describe_configs,
    describe_groups,
    describe_log_dirs,
    describe_producers,
    describe_queues,
    describe_quorum,
    describe_share_group_offsets,
    describe_subscriptions,
    describe_topic_partitions,
    describe_transactions,
    describe_user_scram_credentials,
    elect_leaders,
    end_transaction_group,
    end_txn,
    find_coordinator,
    heartbeat,
    incremental_alter_configs,
    init_producer_id,
    initialize_share_group_state,
    join_group,
    leave_group,
    list_config_resources,
    list_groups,
    list_offsets,
    list_partition_reassignments,
    list_transactions,
    metadata,
    offset_commit,
    offset_delete,
    offset_fetch,
    offset_for_leader_epoch,
    open_transaction_group,
    read_share_group_state_summary,
    receive_messages,
    sasl_authenticate,
    sasl_handshake,
    seek_queue,
    settle_messages,
    share_acknowledge,
    share_fetch,
    share_group_describe,
    share_group_heartbeat,
    sync_group,
    txn_offset_commit,
    unregister_broker,
    update_features,
    write_dead_letters,
    write_txn_markers,
)
from martlet.wire.produce import encode_produce_request
from tests.broker.requests import batch_of

_FIRST_FETCH_BY_ID = 13
_FIRST_PRODUCE_BY_ID = 13


class Sample(NamedTuple):
    """One encoded request."""

    key: ApiKey
    version: int
    body: bytes


def samples(topic: str) -> Iterator[Sample]:
    """One for each API and version."""
    for module in SERVED:
        first, last = module.VERSIONS
        for version in range(first, last + 1):
            yield Sample(ApiKey(module.KEY), version, sample_body(ApiKey(module.KEY), version, topic))


def served_versions() -> dict[ApiKey, range]:
    """What the handlers declare."""
    return {ApiKey(module.KEY): range(module.VERSIONS[0], module.VERSIONS[1] + 1) for module in SERVED}


def sample_body(key: ApiKey, version: int, topic: str) -> bytes:
    if key is ApiKey.PRODUCE:
        topic_id = bytes(range(16)) if version >= _FIRST_PRODUCE_BY_ID else None
        batches = [(0, batch_of(b"sample"))]
        return b"".join(encode_produce_request(version, topics=[(topic, topic_id, batches)], acks=1, timeout_ms=1000))
    if key is ApiKey.FETCH:
        topic_id = bytes(range(16)) if version >= _FIRST_FETCH_BY_ID else None
        asked = FetchTopic(topic, topic_id, [FetchPartition(0)])
        return encode_fetch_request(version, FetchRequest(max_wait_ms=0, topics=[asked]))
    return encode(sample_message(key, topic), version)


def sample_message(key: ApiKey, topic: str) -> Any:
    """The request of an API that goes through the message codec; harmless to a broker that has the topic."""
    kinds = (_data_message, _transaction_message, _group_message, _share_message, _cluster_message, _admin_message)
    return next(made for kind in kinds if (made := kind(key, topic)) is not None)()


def _data_message(key: ApiKey, topic: str) -> Any:
    return {
        ApiKey.API_VERSIONS: lambda: api_versions.ApiVersionsRequest("sample", "1"),
        ApiKey.METADATA: lambda: metadata.MetadataRequest(
            topics=[metadata.MetadataRequestTopic(name=topic)], allow_auto_topic_creation=False
        ),
        ApiKey.LIST_OFFSETS: lambda: list_offsets.ListOffsetsRequest(
            replica_id=-1,
            topics=[list_offsets.ListOffsetsTopic(topic, [list_offsets.ListOffsetsPartition(timestamp=-1)])],
        ),
        ApiKey.OFFSET_FOR_LEADER_EPOCH: lambda: offset_for_leader_epoch.OffsetForLeaderEpochRequest(
            topics=[
                offset_for_leader_epoch.OffsetForLeaderTopic(
                    topic, [offset_for_leader_epoch.OffsetForLeaderPartition()]
                )
            ]
        ),
        ApiKey.INIT_PRODUCER_ID: lambda: init_producer_id.InitProducerIdRequest(transaction_timeout_ms=1000),
        ApiKey.FIND_COORDINATOR: lambda: find_coordinator.FindCoordinatorRequest(coordinator_keys=["g"], key="g"),
        ApiKey.LIST_CONFIG_RESOURCES: lambda: list_config_resources.ListConfigResourcesRequest([2, 32]),
        ApiKey.DESCRIBE_PRODUCERS: lambda: describe_producers.DescribeProducersRequest(
            [describe_producers.TopicRequest(topic, [0])]
        ),
    }.get(key)


def _transaction_message(key: ApiKey, topic: str) -> Any:
    producer = ("sample-transaction", 1, 0)
    topics = [add_partitions_to_txn.AddPartitionsToTxnTopic(topic, [0])]
    transaction = add_partitions_to_txn.AddPartitionsToTxnTransaction(*producer, verify_only=True, topics=topics)
    marker = write_txn_markers.WritableTxnMarker(1, 0, topics=[write_txn_markers.WritableTxnMarkerTopic(topic, [9])])
    return {
        ApiKey.ADD_PARTITIONS_TO_TXN: lambda: add_partitions_to_txn.AddPartitionsToTxnRequest(
            [transaction], *producer, topics
        ),
        ApiKey.ADD_OFFSETS_TO_TXN: lambda: add_offsets_to_txn.AddOffsetsToTxnRequest(*producer, "sample-group"),
        ApiKey.END_TXN: lambda: end_txn.EndTxnRequest(*producer, True),
        ApiKey.OPEN_TRANSACTION_GROUP: lambda: open_transaction_group.OpenTransactionGroupRequest("sample", bytes(16)),
        ApiKey.END_TRANSACTION_GROUP: lambda: end_transaction_group.EndTransactionGroupRequest(
            "sample", 1, 0, 3, [end_transaction_group.Winner("txg:sample#0.3.0.0", 2, 0)], b"note"
        ),
        ApiKey.RECEIVE_MESSAGES: lambda: receive_messages.ReceiveMessagesRequest("sample", "holder", 5),
        ApiKey.SETTLE_MESSAGES: lambda: settle_messages.SettleMessagesRequest(
            "sample", [settle_messages.SettledPartition(bytes(16), 0, settlements=[settle_messages.Settled(0, 3)])]
        ),
        ApiKey.ALTER_SUBSCRIPTIONS: lambda: alter_subscriptions.AlterSubscriptionsRequest(
            [
                alter_subscriptions.AlteredSubscription(
                    "sample", 0, [topic], settings=[alter_subscriptions.SubscriptionSetting("lease.ms", "1000")]
                )
            ],
            validate_only=True,
        ),
        ApiKey.DESCRIBE_SUBSCRIPTIONS: lambda: describe_subscriptions.DescribeSubscriptionsRequest(["sample"]),
        ApiKey.DESCRIBE_QUEUES: lambda: describe_queues.DescribeQueuesRequest(
            "sample", [describe_queues.DescribedTopic(bytes(16), [0])]
        ),
        ApiKey.SEEK_QUEUE: lambda: seek_queue.SeekQueueRequest("sample", bytes(16), 0, 5),
        ApiKey.WRITE_DEAD_LETTERS: lambda: write_dead_letters.WriteDeadLettersRequest("no-such-topic", 0, b"x"),
        ApiKey.WRITE_TXN_MARKERS: lambda: write_txn_markers.WriteTxnMarkersRequest([marker]),
        ApiKey.TXN_OFFSET_COMMIT: lambda: txn_offset_commit.TxnOffsetCommitRequest(
            "sample-transaction",
            "sample-group",
            1,
            0,
            topics=[
                txn_offset_commit.TxnOffsetCommitRequestTopic(
                    topic, [txn_offset_commit.TxnOffsetCommitRequestPartition(0, 1, -1, "note")]
                )
            ],
        ),
        ApiKey.DESCRIBE_TRANSACTIONS: lambda: describe_transactions.DescribeTransactionsRequest([producer[0]]),
        ApiKey.LIST_TRANSACTIONS: lambda: list_transactions.ListTransactionsRequest(["Ongoing"]),
    }.get(key)


def _group_message(key: ApiKey, topic: str) -> Any:
    member: dict[str, Any] = {"group_id": "sample-group", "member_id": "sample-member"}
    return {
        ApiKey.JOIN_GROUP: lambda: join_group.JoinGroupRequest(
            **member,
            session_timeout_ms=10_000,
            protocol_type="consumer",
            protocols=[join_group.JoinGroupRequestProtocol("range", bytes(20))],
        ),
        ApiKey.SYNC_GROUP: lambda: sync_group.SyncGroupRequest(
            **member, generation_id=1, assignments=[sync_group.SyncGroupRequestAssignment("sample-member", bytes(20))]
        ),
        ApiKey.HEARTBEAT: lambda: heartbeat.HeartbeatRequest(**member, generation_id=1),
        ApiKey.LEAVE_GROUP: lambda: leave_group.LeaveGroupRequest(
            **member, members=[leave_group.MemberIdentity("sample-member")]
        ),
        ApiKey.CONSUMER_GROUP_HEARTBEAT: lambda: consumer_group_heartbeat.ConsumerGroupHeartbeatRequest(
            **member, rebalance_timeout_ms=1000, subscribed_topic_names=[topic], topic_partitions=[]
        ),
        ApiKey.OFFSET_COMMIT: lambda: offset_commit.OffsetCommitRequest(
            "sample-group",
            topics=[
                offset_commit.OffsetCommitRequestTopic(
                    topic, bytes(range(16)), [offset_commit.OffsetCommitRequestPartition(0, 1, -1, "note")]
                )
            ],
        ),
        ApiKey.OFFSET_FETCH: lambda: offset_fetch.OffsetFetchRequest(
            "sample-group",
            [offset_fetch.OffsetFetchRequestTopic(topic, [0])],
            [
                offset_fetch.OffsetFetchRequestGroup(
                    "sample-group", topics=[offset_fetch.OffsetFetchRequestTopics(topic, bytes(range(16)), [0])]
                )
            ],
        ),
        ApiKey.OFFSET_DELETE: lambda: offset_delete.OffsetDeleteRequest(
            "sample-group",
            [offset_delete.OffsetDeleteRequestTopic(topic, [offset_delete.OffsetDeleteRequestPartition(0)])],
        ),
        ApiKey.DESCRIBE_GROUPS: lambda: describe_groups.DescribeGroupsRequest(["sample-group"]),
        ApiKey.CONSUMER_GROUP_DESCRIBE: lambda: consumer_group_describe.ConsumerGroupDescribeRequest(["sample-group"]),
        ApiKey.LIST_GROUPS: lambda: list_groups.ListGroupsRequest(["Stable"], ["classic"]),
        ApiKey.DELETE_GROUPS: lambda: delete_groups.DeleteGroupsRequest(["sample-group"]),
    }.get(key)


def _share_message(key: ApiKey, topic: str) -> Any:
    member = ("sample-share-group", "sample-member")
    topic_id = bytes(range(16))
    said = share_acknowledge.AcknowledgementBatch(0, 1, [1])
    return {
        ApiKey.SHARE_GROUP_HEARTBEAT: lambda: share_group_heartbeat.ShareGroupHeartbeatRequest(
            *member, 0, None, [topic]
        ),
        ApiKey.SHARE_GROUP_DESCRIBE: lambda: share_group_describe.ShareGroupDescribeRequest([member[0]]),
        ApiKey.SHARE_FETCH: lambda: share_fetch.ShareFetchRequest(
            *member, max_records=1, topics=[share_fetch.FetchTopic(topic_id, [share_fetch.FetchPartition(0)])]
        ),
        ApiKey.SHARE_ACKNOWLEDGE: lambda: share_acknowledge.ShareAcknowledgeRequest(
            *member,
            -1,
            topics=[share_acknowledge.AcknowledgeTopic(topic_id, [share_acknowledge.AcknowledgePartition(0, [said])])],
        ),
        ApiKey.INITIALIZE_SHARE_GROUP_STATE: lambda: initialize_share_group_state.InitializeShareGroupStateRequest(
            member[0],
            [
                initialize_share_group_state.InitializeStateData(
                    topic_id, [initialize_share_group_state.PartitionData(0, 0, 5)]
                )
            ],
        ),
        ApiKey.READ_SHARE_GROUP_STATE_SUMMARY: lambda: read_share_group_state_summary.ReadShareGroupStateSummaryRequest(
            member[0],
            [
                read_share_group_state_summary.ReadStateSummaryData(
                    topic_id, [read_share_group_state_summary.PartitionData(0)]
                )
            ],
        ),
        ApiKey.DESCRIBE_SHARE_GROUP_OFFSETS: lambda: describe_share_group_offsets.DescribeShareGroupOffsetsRequest(
            [
                describe_share_group_offsets.DescribeShareGroupOffsetsRequestGroup(
                    member[0], [describe_share_group_offsets.DescribeShareGroupOffsetsRequestTopic(topic, [0])]
                )
            ]
        ),
        ApiKey.ALTER_SHARE_GROUP_OFFSETS: lambda: alter_share_group_offsets.AlterShareGroupOffsetsRequest(
            member[0],
            [
                alter_share_group_offsets.AlterShareGroupOffsetsRequestTopic(
                    topic, [alter_share_group_offsets.AlterShareGroupOffsetsRequestPartition(0, 0)]
                )
            ],
        ),
        ApiKey.DELETE_SHARE_GROUP_OFFSETS: lambda: delete_share_group_offsets.DeleteShareGroupOffsetsRequest(
            member[0], [delete_share_group_offsets.DeleteShareGroupOffsetsRequestTopic(topic)]
        ),
    }.get(key)


def _cluster_message(key: ApiKey, topic: str) -> Any:
    return {
        ApiKey.ELECT_LEADERS: lambda: elect_leaders.ElectLeadersRequest(
            topic_partitions=[elect_leaders.TopicPartitions(topic, [0])], timeout_ms=1000
        ),
        ApiKey.ALTER_PARTITION_REASSIGNMENTS: lambda: alter_partition_reassignments.AlterPartitionReassignmentsRequest(
            1000,
            topics=[
                alter_partition_reassignments.ReassignableTopic(
                    topic, [alter_partition_reassignments.ReassignablePartition(0, None)]
                )
            ],
        ),
        ApiKey.LIST_PARTITION_REASSIGNMENTS: lambda: list_partition_reassignments.ListPartitionReassignmentsRequest(
            1000, [list_partition_reassignments.ListPartitionReassignmentsTopics(topic, [0])]
        ),
        ApiKey.SASL_HANDSHAKE: lambda: sasl_handshake.SaslHandshakeRequest("SCRAM-SHA-512"),
        ApiKey.SASL_AUTHENTICATE: lambda: sasl_authenticate.SaslAuthenticateRequest(b"n,,n=sample,r=abc"),
        ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS: lambda: (
            describe_user_scram_credentials.DescribeUserScramCredentialsRequest(
                [describe_user_scram_credentials.UserName("sample")]
            )
        ),
        ApiKey.ALTER_USER_SCRAM_CREDENTIALS: lambda: alter_user_scram_credentials.AlterUserScramCredentialsRequest(
            [alter_user_scram_credentials.ScramCredentialDeletion("sample", 1)],
            [alter_user_scram_credentials.ScramCredentialUpsertion("other", 2, 4096, b"salt", b"short")],
        ),
        ApiKey.DESCRIBE_ACLS: lambda: describe_acls.DescribeAclsRequest(1, None, 1, None, None, 1, 1),
        ApiKey.CREATE_ACLS: lambda: create_acls.CreateAclsRequest(
            [create_acls.AclCreation(2, topic, 3, "User:sample", "*", 3, 3)]
        ),
        ApiKey.DELETE_ACLS: lambda: delete_acls.DeleteAclsRequest(
            [delete_acls.DeleteAclsFilter(2, topic, 3, None, None, 1, 1)]
        ),
        ApiKey.UPDATE_FEATURES: lambda: update_features.UpdateFeaturesRequest(
            1000, [update_features.FeatureUpdateKey("group.version", 1)]
        ),
        ApiKey.UNREGISTER_BROKER: lambda: unregister_broker.UnregisterBrokerRequest(999),
        ApiKey.DESCRIBE_CLUSTER: lambda: describe_cluster.DescribeClusterRequest(),
        ApiKey.ALTER_REPLICA_LOG_DIRS: lambda: alter_replica_log_dirs.AlterReplicaLogDirsRequest(
            [
                alter_replica_log_dirs.AlterReplicaLogDir(
                    "/no/such/directory", [alter_replica_log_dirs.AlterReplicaLogDirTopic(topic, [0])]
                )
            ]
        ),
        ApiKey.DESCRIBE_LOG_DIRS: lambda: describe_log_dirs.DescribeLogDirsRequest(
            [describe_log_dirs.DescribableLogDirTopic(topic, [0])]
        ),
        ApiKey.DESCRIBE_QUORUM: lambda: describe_quorum.DescribeQuorumRequest(
            [describe_quorum.TopicData("__cluster_metadata", [describe_quorum.PartitionData(0)])]
        ),
    }.get(key)


def _admin_message(key: ApiKey, topic: str) -> Any:
    value = ("retention.ms", "86400000")
    return {
        ApiKey.CREATE_TOPICS: lambda: create_topics.CreateTopicsRequest(
            topics=[create_topics.CreatableTopic(topic, 1, 1, [], [create_topics.CreatableTopicConfig(*value)])],
            validate_only=True,
        ),
        ApiKey.DELETE_TOPICS: lambda: delete_topics.DeleteTopicsRequest(
            topics=[delete_topics.DeleteTopicState(name="no-such-topic")], topic_names=["no-such-topic"]
        ),
        ApiKey.CREATE_PARTITIONS: lambda: create_partitions.CreatePartitionsRequest(
            topics=[create_partitions.CreatePartitionsTopic(topic, 9)], timeout_ms=1000, validate_only=True
        ),
        ApiKey.DELETE_RECORDS: lambda: delete_records.DeleteRecordsRequest(
            [delete_records.DeleteRecordsTopic(topic, [delete_records.DeleteRecordsPartition(0, 0)])], 1000
        ),
        ApiKey.DESCRIBE_CONFIGS: lambda: describe_configs.DescribeConfigsRequest(
            [describe_configs.DescribeConfigsResource(2, topic, ["retention.ms"])], True, True
        ),
        ApiKey.ALTER_CONFIGS: lambda: alter_configs.AlterConfigsRequest(
            [alter_configs.AlterConfigsResource(2, topic, [alter_configs.AlterableConfig(*value)])], True
        ),
        ApiKey.INCREMENTAL_ALTER_CONFIGS: lambda: incremental_alter_configs.IncrementalAlterConfigsRequest(
            [
                incremental_alter_configs.AlterConfigsResource(
                    2, topic, [incremental_alter_configs.AlterableConfig(value[0], 0, value[1])]
                )
            ],
            True,
        ),
        ApiKey.DESCRIBE_TOPIC_PARTITIONS: lambda: describe_topic_partitions.DescribeTopicPartitionsRequest(
            [describe_topic_partitions.TopicRequest(topic)]
        ),
    }[key]
