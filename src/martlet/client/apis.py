"""The requests this client makes, each with its classes and the versions it speaks. A table, nothing else.

The upper ends are the newest versions whose meaning the callers handle, not the newest that exist; a broker that
offers less gets less (`Connection.version_of`). Produce and Fetch have codecs of their own in `wire`, so only their
ranges are here: Produce 13 and Fetch 13 and later name topics by id. So would version 10 of OffsetCommit and
OffsetFetch; groups are asked by name.
"""

from dataclasses import dataclass
from typing import Final, Generic, TypeVar

from martlet.wire.api_keys import ApiKey
from martlet.wire.fetch import FetchRequest, FetchResponse
from martlet.wire.messages.add_partitions_to_txn import AddPartitionsToTxnRequest, AddPartitionsToTxnResponse
from martlet.wire.messages.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    AlterPartitionReassignmentsResponse,
)
from martlet.wire.messages.alter_subscriptions import AlterSubscriptionsRequest, AlterSubscriptionsResponse
from martlet.wire.messages.alter_user_scram_credentials import (
    AlterUserScramCredentialsRequest,
    AlterUserScramCredentialsResponse,
)
from martlet.wire.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from martlet.wire.messages.consumer_group_describe import ConsumerGroupDescribeRequest, ConsumerGroupDescribeResponse
from martlet.wire.messages.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
)
from martlet.wire.messages.create_acls import CreateAclsRequest, CreateAclsResponse
from martlet.wire.messages.create_partitions import CreatePartitionsRequest, CreatePartitionsResponse
from martlet.wire.messages.create_topics import CreateTopicsRequest, CreateTopicsResponse
from martlet.wire.messages.delete_acls import DeleteAclsRequest, DeleteAclsResponse
from martlet.wire.messages.delete_groups import DeleteGroupsRequest, DeleteGroupsResponse
from martlet.wire.messages.delete_records import DeleteRecordsRequest, DeleteRecordsResponse
from martlet.wire.messages.delete_topics import DeleteTopicsRequest, DeleteTopicsResponse
from martlet.wire.messages.describe_acls import DescribeAclsRequest, DescribeAclsResponse
from martlet.wire.messages.describe_cluster import DescribeClusterRequest, DescribeClusterResponse
from martlet.wire.messages.describe_configs import DescribeConfigsRequest, DescribeConfigsResponse
from martlet.wire.messages.describe_groups import DescribeGroupsRequest, DescribeGroupsResponse
from martlet.wire.messages.describe_log_dirs import DescribeLogDirsRequest, DescribeLogDirsResponse
from martlet.wire.messages.describe_producers import DescribeProducersRequest, DescribeProducersResponse
from martlet.wire.messages.describe_queues import DescribeQueuesRequest, DescribeQueuesResponse
from martlet.wire.messages.describe_subscriptions import DescribeSubscriptionsRequest, DescribeSubscriptionsResponse
from martlet.wire.messages.describe_transactions import DescribeTransactionsRequest, DescribeTransactionsResponse
from martlet.wire.messages.describe_user_scram_credentials import (
    DescribeUserScramCredentialsRequest,
    DescribeUserScramCredentialsResponse,
)
from martlet.wire.messages.elect_leaders import ElectLeadersRequest, ElectLeadersResponse
from martlet.wire.messages.end_transaction_group import EndTransactionGroupRequest, EndTransactionGroupResponse
from martlet.wire.messages.end_txn import EndTxnRequest, EndTxnResponse
from martlet.wire.messages.find_coordinator import FindCoordinatorRequest, FindCoordinatorResponse
from martlet.wire.messages.incremental_alter_configs import (
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
)
from martlet.wire.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from martlet.wire.messages.initialize_share_group_state import (
    InitializeShareGroupStateRequest,
    InitializeShareGroupStateResponse,
)
from martlet.wire.messages.list_groups import ListGroupsRequest, ListGroupsResponse
from martlet.wire.messages.list_offsets import ListOffsetsRequest, ListOffsetsResponse
from martlet.wire.messages.list_partition_reassignments import (
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsResponse,
)
from martlet.wire.messages.list_transactions import ListTransactionsRequest, ListTransactionsResponse
from martlet.wire.messages.metadata import MetadataRequest, MetadataResponse
from martlet.wire.messages.offset_commit import OffsetCommitRequest, OffsetCommitResponse
from martlet.wire.messages.offset_delete import OffsetDeleteRequest, OffsetDeleteResponse
from martlet.wire.messages.offset_fetch import OffsetFetchRequest, OffsetFetchResponse
from martlet.wire.messages.open_transaction_group import OpenTransactionGroupRequest, OpenTransactionGroupResponse
from martlet.wire.messages.read_share_group_state_summary import (
    ReadShareGroupStateSummaryRequest,
    ReadShareGroupStateSummaryResponse,
)
from martlet.wire.messages.receive_messages import ReceiveMessagesRequest, ReceiveMessagesResponse
from martlet.wire.messages.sasl_authenticate import SaslAuthenticateRequest, SaslAuthenticateResponse
from martlet.wire.messages.sasl_handshake import SaslHandshakeRequest, SaslHandshakeResponse
from martlet.wire.messages.seek_queue import SeekQueueRequest, SeekQueueResponse
from martlet.wire.messages.settle_messages import SettleMessagesRequest, SettleMessagesResponse
from martlet.wire.messages.txn_offset_commit import TxnOffsetCommitRequest, TxnOffsetCommitResponse
from martlet.wire.messages.unregister_broker import UnregisterBrokerRequest, UnregisterBrokerResponse
from martlet.wire.messages.write_dead_letters import WriteDeadLettersRequest, WriteDeadLettersResponse
from martlet.wire.messages.write_txn_markers import WriteTxnMarkersRequest, WriteTxnMarkersResponse
from martlet.wire.produce import ProduceRequest, ProduceResponse

Request = TypeVar("Request")
Response = TypeVar("Response")


@dataclass(frozen=True, slots=True)
class Api(Generic[Request, Response]):
    """One kind of request: its key, its classes, the oldest and the newest version we speak."""

    key: ApiKey
    request: type[Request]
    response: type[Response]
    oldest: int
    newest: int

    @property
    def name(self) -> str:
        return self.key.name


API_VERSIONS: Final = Api(ApiKey.API_VERSIONS, ApiVersionsRequest, ApiVersionsResponse, 0, 4)
SASL_HANDSHAKE: Final = Api(ApiKey.SASL_HANDSHAKE, SaslHandshakeRequest, SaslHandshakeResponse, 1, 1)
SASL_AUTHENTICATE: Final = Api(ApiKey.SASL_AUTHENTICATE, SaslAuthenticateRequest, SaslAuthenticateResponse, 0, 2)
DESCRIBE_USERS: Final = Api(
    ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS,
    DescribeUserScramCredentialsRequest,
    DescribeUserScramCredentialsResponse,
    0,
    0,
)
DESCRIBE_ACLS: Final = Api(ApiKey.DESCRIBE_ACLS, DescribeAclsRequest, DescribeAclsResponse, 1, 3)
CREATE_ACLS: Final = Api(ApiKey.CREATE_ACLS, CreateAclsRequest, CreateAclsResponse, 1, 3)
DELETE_ACLS: Final = Api(ApiKey.DELETE_ACLS, DeleteAclsRequest, DeleteAclsResponse, 1, 3)
ALTER_USERS: Final = Api(
    ApiKey.ALTER_USER_SCRAM_CREDENTIALS, AlterUserScramCredentialsRequest, AlterUserScramCredentialsResponse, 0, 0
)
METADATA: Final = Api(ApiKey.METADATA, MetadataRequest, MetadataResponse, 4, 13)
LIST_OFFSETS: Final = Api(ApiKey.LIST_OFFSETS, ListOffsetsRequest, ListOffsetsResponse, 1, 11)
INIT_PRODUCER_ID: Final = Api(ApiKey.INIT_PRODUCER_ID, InitProducerIdRequest, InitProducerIdResponse, 0, 5)
# The second generation of transactions only; version 6 of the first is the two-phase form.
INIT_TRANSACTIONS: Final = Api(ApiKey.INIT_PRODUCER_ID, InitProducerIdRequest, InitProducerIdResponse, 4, 6)
END_TRANSACTION: Final = Api(ApiKey.END_TXN, EndTxnRequest, EndTxnResponse, 5, 5)
TXN_OFFSET_COMMIT: Final = Api(ApiKey.TXN_OFFSET_COMMIT, TxnOffsetCommitRequest, TxnOffsetCommitResponse, 5, 5)
LIST_TRANSACTIONS: Final = Api(ApiKey.LIST_TRANSACTIONS, ListTransactionsRequest, ListTransactionsResponse, 0, 1)
DESCRIBE_TRANSACTIONS: Final = Api(
    ApiKey.DESCRIBE_TRANSACTIONS, DescribeTransactionsRequest, DescribeTransactionsResponse, 0, 0
)
DESCRIBE_PRODUCERS: Final = Api(ApiKey.DESCRIBE_PRODUCERS, DescribeProducersRequest, DescribeProducersResponse, 0, 0)
CREATE_TOPICS: Final = Api(ApiKey.CREATE_TOPICS, CreateTopicsRequest, CreateTopicsResponse, 4, 7)
DELETE_TOPICS: Final = Api(ApiKey.DELETE_TOPICS, DeleteTopicsRequest, DeleteTopicsResponse, 1, 6)
CREATE_PARTITIONS: Final = Api(ApiKey.CREATE_PARTITIONS, CreatePartitionsRequest, CreatePartitionsResponse, 0, 3)
DELETE_RECORDS: Final = Api(ApiKey.DELETE_RECORDS, DeleteRecordsRequest, DeleteRecordsResponse, 0, 2)
DESCRIBE_CONFIGS: Final = Api(ApiKey.DESCRIBE_CONFIGS, DescribeConfigsRequest, DescribeConfigsResponse, 1, 4)
INCREMENTAL_ALTER_CONFIGS: Final = Api(
    ApiKey.INCREMENTAL_ALTER_CONFIGS, IncrementalAlterConfigsRequest, IncrementalAlterConfigsResponse, 0, 1
)
DESCRIBE_CLUSTER: Final = Api(ApiKey.DESCRIBE_CLUSTER, DescribeClusterRequest, DescribeClusterResponse, 0, 2)
DESCRIBE_LOG_DIRS: Final = Api(ApiKey.DESCRIBE_LOG_DIRS, DescribeLogDirsRequest, DescribeLogDirsResponse, 1, 5)
ELECT_LEADERS: Final = Api(ApiKey.ELECT_LEADERS, ElectLeadersRequest, ElectLeadersResponse, 1, 2)
ALTER_PARTITION_REASSIGNMENTS: Final = Api(
    ApiKey.ALTER_PARTITION_REASSIGNMENTS, AlterPartitionReassignmentsRequest, AlterPartitionReassignmentsResponse, 0, 1
)
LIST_PARTITION_REASSIGNMENTS: Final = Api(
    ApiKey.LIST_PARTITION_REASSIGNMENTS, ListPartitionReassignmentsRequest, ListPartitionReassignmentsResponse, 0, 0
)
UNREGISTER_BROKER: Final = Api(ApiKey.UNREGISTER_BROKER, UnregisterBrokerRequest, UnregisterBrokerResponse, 0, 0)
FIND_COORDINATOR: Final = Api(ApiKey.FIND_COORDINATOR, FindCoordinatorRequest, FindCoordinatorResponse, 0, 6)
LIST_GROUPS: Final = Api(ApiKey.LIST_GROUPS, ListGroupsRequest, ListGroupsResponse, 0, 5)
DESCRIBE_GROUPS: Final = Api(ApiKey.DESCRIBE_GROUPS, DescribeGroupsRequest, DescribeGroupsResponse, 0, 6)
CONSUMER_GROUP_DESCRIBE: Final = Api(
    ApiKey.CONSUMER_GROUP_DESCRIBE, ConsumerGroupDescribeRequest, ConsumerGroupDescribeResponse, 0, 1
)
# Version 0 lets the broker choose the member's id; ours is always chosen here.
CONSUMER_GROUP_HEARTBEAT: Final = Api(
    ApiKey.CONSUMER_GROUP_HEARTBEAT, ConsumerGroupHeartbeatRequest, ConsumerGroupHeartbeatResponse, 1, 1
)
DELETE_GROUPS: Final = Api(ApiKey.DELETE_GROUPS, DeleteGroupsRequest, DeleteGroupsResponse, 0, 2)
OFFSET_COMMIT: Final = Api(ApiKey.OFFSET_COMMIT, OffsetCommitRequest, OffsetCommitResponse, 2, 9)
OFFSET_FETCH: Final = Api(ApiKey.OFFSET_FETCH, OffsetFetchRequest, OffsetFetchResponse, 2, 9)
OFFSET_DELETE: Final = Api(ApiKey.OFFSET_DELETE, OffsetDeleteRequest, OffsetDeleteResponse, 0, 0)
# The form for brokers, with several transactions in one request.
ADD_PARTITIONS_TO_TXN: Final = Api(
    ApiKey.ADD_PARTITIONS_TO_TXN, AddPartitionsToTxnRequest, AddPartitionsToTxnResponse, 4, 5
)
INITIALIZE_SHARE_GROUP_STATE: Final = Api(
    ApiKey.INITIALIZE_SHARE_GROUP_STATE, InitializeShareGroupStateRequest, InitializeShareGroupStateResponse, 0, 0
)
READ_SHARE_GROUP_STATE_SUMMARY: Final = Api(
    ApiKey.READ_SHARE_GROUP_STATE_SUMMARY, ReadShareGroupStateSummaryRequest, ReadShareGroupStateSummaryResponse, 1, 1
)
WRITE_TXN_MARKERS: Final = Api(ApiKey.WRITE_TXN_MARKERS, WriteTxnMarkersRequest, WriteTxnMarkersResponse, 1, 2)

OPEN_TRANSACTION_GROUP: Final = Api(
    ApiKey.OPEN_TRANSACTION_GROUP, OpenTransactionGroupRequest, OpenTransactionGroupResponse, 0, 0
)
END_TRANSACTION_GROUP: Final = Api(
    ApiKey.END_TRANSACTION_GROUP, EndTransactionGroupRequest, EndTransactionGroupResponse, 0, 0
)
RECEIVE_MESSAGES: Final = Api(ApiKey.RECEIVE_MESSAGES, ReceiveMessagesRequest, ReceiveMessagesResponse, 0, 0)
SETTLE_MESSAGES: Final = Api(ApiKey.SETTLE_MESSAGES, SettleMessagesRequest, SettleMessagesResponse, 0, 0)
ALTER_SUBSCRIPTIONS: Final = Api(
    ApiKey.ALTER_SUBSCRIPTIONS, AlterSubscriptionsRequest, AlterSubscriptionsResponse, 0, 0
)
DESCRIBE_SUBSCRIPTIONS: Final = Api(
    ApiKey.DESCRIBE_SUBSCRIPTIONS, DescribeSubscriptionsRequest, DescribeSubscriptionsResponse, 0, 0
)
DESCRIBE_QUEUES: Final = Api(ApiKey.DESCRIBE_QUEUES, DescribeQueuesRequest, DescribeQueuesResponse, 0, 0)
SEEK_QUEUE: Final = Api(ApiKey.SEEK_QUEUE, SeekQueueRequest, SeekQueueResponse, 0, 0)
WRITE_DEAD_LETTERS: Final = Api(ApiKey.WRITE_DEAD_LETTERS, WriteDeadLettersRequest, WriteDeadLettersResponse, 0, 0)

PRODUCE: Final = Api(ApiKey.PRODUCE, ProduceRequest, ProduceResponse, 3, 13)
PRODUCE_IN_TRANSACTION: Final = Api(ApiKey.PRODUCE, ProduceRequest, ProduceResponse, 12, 13)
FETCH: Final = Api(ApiKey.FETCH, FetchRequest, FetchResponse, 4, 18)
NEWEST_BY_NAME: Final = 12
"""The newest version of Produce and of Fetch that names topics by name; later ones need their ids."""
