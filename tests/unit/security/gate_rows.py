"""For every API whose gate refuses: a request, every right that it needs, and the error of each when it is missing.

A right that several rules give is named once here, by the rule for the resource itself.
"""

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any, NamedTuple

from martlet.base.errors import ErrorCode
from martlet.security.rules import CLUSTER_NAME, Operation, ResourceKind, Rule
from martlet.wire.api_keys import ApiKey
from martlet.wire.messages import (
    add_offsets_to_txn,
    add_partitions_to_txn,
    alter_client_quotas,
    alter_configs,
    alter_partition_reassignments,
    alter_replica_log_dirs,
    alter_share_group_offsets,
    alter_subscriptions,
    alter_user_scram_credentials,
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
    describe_client_quotas,
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
    list_offsets,
    list_partition_reassignments,
    metadata,
    offset_commit,
    offset_delete,
    offset_fetch,
    offset_for_leader_epoch,
    open_transaction_group,
    read_share_group_state_summary,
    receive_messages,
    seek_queue,
    settle_messages,
    share_group_describe,
    share_group_heartbeat,
    sync_group,
    txn_offset_commit,
    unregister_broker,
    update_features,
    write_dead_letters,
    write_txn_markers,
)
from tests.unit.security.rule_samples import rule

TOPIC, GROUP, TXN = "secret-topic", "secret-group", "secret-txn"
TOPIC_ID = b"secret-topic-id!"
NO_ID = bytes(16)
_TOPIC_REFUSED = ErrorCode.TOPIC_AUTHORIZATION_FAILED
_GROUP_REFUSED = ErrorCode.GROUP_AUTHORIZATION_FAILED
_CLUSTER_REFUSED = ErrorCode.CLUSTER_AUTHORIZATION_FAILED
_TXN_REFUSED = ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED


class Row(NamedTuple):
    """One API at some of its versions."""

    key: ApiKey
    versions: range
    request: Any
    response: Callable[[], Any]
    """What the handler answers."""
    needs: tuple[tuple[Rule, ErrorCode], ...]


def topic(operation: Operation, name: str = TOPIC) -> tuple[Rule, ErrorCode]:
    return rule(operation, name), _TOPIC_REFUSED


def group(operation: Operation) -> tuple[Rule, ErrorCode]:
    return rule(operation, GROUP, kind=ResourceKind.GROUP), _GROUP_REFUSED


def txn(operation: Operation) -> tuple[Rule, ErrorCode]:
    return rule(operation, TXN, kind=ResourceKind.TRANSACTIONAL_ID), _TXN_REFUSED


def cluster(operation: Operation) -> tuple[Rule, ErrorCode]:
    return rule(operation, CLUSTER_NAME, kind=ResourceKind.CLUSTER), _CLUSTER_REFUSED


def _row(key: ApiKey, module: Any, versions: range, needs: Any, /, **fields: Any) -> Row:
    name = "".join(word.capitalize() for word in module.__name__.rpartition(".")[2].split("_"))
    request = getattr(module, f"{name}Request")(**fields)
    return Row(key, versions, request, getattr(module, f"{name}Response"), tuple(needs))


def topic_rows() -> Iterator[Row]:
    op = Operation
    asked = list_offsets.ListOffsetsTopic(TOPIC, [list_offsets.ListOffsetsPartition(0)])
    yield _row(ApiKey.LIST_OFFSETS, list_offsets, range(1, 12), [topic(op.DESCRIBE)], topics=[asked])
    epochs = offset_for_leader_epoch
    asked_epoch = epochs.OffsetForLeaderTopic(TOPIC, [epochs.OffsetForLeaderPartition(0)])
    yield _row(ApiKey.OFFSET_FOR_LEADER_EPOCH, epochs, range(2, 5), [topic(op.DESCRIBE)], topics=[asked_epoch])
    by_name = [metadata.MetadataRequestTopic(name=TOPIC)]
    known = {"topics": by_name, "allow_auto_topic_creation": False}
    yield _row(ApiKey.METADATA, metadata, range(14), [topic(op.DESCRIBE)], **known)
    by_id = [metadata.MetadataRequestTopic(TOPIC_ID, None)]
    yield _row(ApiKey.METADATA, metadata, range(12, 14), [topic(op.DESCRIBE)], topics=by_id)
    new = [metadata.MetadataRequestTopic(name="secret-new")]
    needs = [topic(op.DESCRIBE, "secret-new"), topic(op.CREATE, "secret-new")]
    yield _row(ApiKey.METADATA, metadata, range(4, 14), needs, topics=new)
    pages = describe_topic_partitions
    page = [pages.TopicRequest(TOPIC)]
    yield _row(ApiKey.DESCRIBE_TOPIC_PARTITIONS, pages, range(1), [topic(op.DESCRIBE)], topics=page)
    made = [create_topics.CreatableTopic(TOPIC, 1, 1)]
    yield _row(ApiKey.CREATE_TOPICS, create_topics, range(2, 8), [topic(op.CREATE)], topics=made)
    yield _row(ApiKey.DELETE_TOPICS, delete_topics, range(1, 6), [topic(op.DELETE)], topic_names=[TOPIC])
    for state in (delete_topics.DeleteTopicState(TOPIC), delete_topics.DeleteTopicState(None, TOPIC_ID)):
        yield _row(ApiKey.DELETE_TOPICS, delete_topics, range(6, 7), [topic(op.DELETE)], topics=[state])
    cut = delete_records.DeleteRecordsTopic(TOPIC, [delete_records.DeleteRecordsPartition(0, 1)])
    yield _row(ApiKey.DELETE_RECORDS, delete_records, range(3), [topic(op.DELETE)], topics=[cut])
    more = create_partitions.CreatePartitionsTopic(TOPIC, 2)
    yield _row(ApiKey.CREATE_PARTITIONS, create_partitions, range(4), [topic(op.ALTER)], topics=[more])
    producers = describe_producers.TopicRequest(TOPIC, [0])
    yield _row(ApiKey.DESCRIBE_PRODUCERS, describe_producers, range(1), [topic(op.READ)], topics=[producers])


def group_rows() -> Iterator[Row]:
    op = Operation
    for key, module, versions in (
        (ApiKey.JOIN_GROUP, join_group, range(10)),
        (ApiKey.SYNC_GROUP, sync_group, range(6)),
        (ApiKey.HEARTBEAT, heartbeat, range(5)),
        (ApiKey.LEAVE_GROUP, leave_group, range(6)),
    ):
        yield _row(key, module, versions, [group(op.READ)], group_id=GROUP)
    needs = [group(op.READ), topic(op.DESCRIBE)]
    beat = {"group_id": GROUP, "subscribed_topic_names": [TOPIC]}
    yield _row(ApiKey.CONSUMER_GROUP_HEARTBEAT, consumer_group_heartbeat, range(2), needs, **beat)
    yield _row(ApiKey.DESCRIBE_GROUPS, describe_groups, range(7), [group(op.DESCRIBE)], groups=[GROUP])
    modern = consumer_group_describe
    yield _row(ApiKey.CONSUMER_GROUP_DESCRIBE, modern, range(2), [group(op.DESCRIBE)], group_ids=[GROUP])
    yield _row(ApiKey.DELETE_GROUPS, delete_groups, range(3), [group(op.DELETE)], groups_names=[GROUP])
    yield _row(ApiKey.FIND_COORDINATOR, find_coordinator, range(4), [group(op.DESCRIBE)], key=GROUP)
    yield _row(ApiKey.FIND_COORDINATOR, find_coordinator, range(4, 7), [group(op.DESCRIBE)], coordinator_keys=[GROUP])
    of_txn = {"key_type": 1, "coordinator_keys": [TXN]}
    yield _row(ApiKey.FIND_COORDINATOR, find_coordinator, range(4, 7), [txn(op.DESCRIBE)], **of_txn)
    of_share = {"key_type": 2, "coordinator_keys": ["secret-share"]}
    yield _row(ApiKey.FIND_COORDINATOR, find_coordinator, range(6, 7), [cluster(op.CLUSTER_ACTION)], **of_share)
    commit = offset_commit
    for name, topic_id, versions in ((TOPIC, NO_ID, range(2, 10)), ("", TOPIC_ID, range(10, 11))):
        committed = commit.OffsetCommitRequestTopic(name, topic_id, [commit.OffsetCommitRequestPartition(0, 5)])
        both = [group(op.READ), topic(op.READ)]
        yield _row(ApiKey.OFFSET_COMMIT, commit, versions, both, group_id=GROUP, topics=[committed])
    fetch = offset_fetch
    both = [group(op.DESCRIBE), topic(op.DESCRIBE)]
    one = [fetch.OffsetFetchRequestTopic(TOPIC, [0])]
    yield _row(ApiKey.OFFSET_FETCH, fetch, range(1, 8), both, group_id=GROUP, topics=one)
    for name, topic_id, versions in ((TOPIC, NO_ID, range(8, 10)), ("", TOPIC_ID, range(10, 11))):
        many = fetch.OffsetFetchRequestGroup(GROUP, topics=[fetch.OffsetFetchRequestTopics(name, topic_id, [0])])
        row = _row(ApiKey.OFFSET_FETCH, fetch, versions, both, groups=[many])
        answered = partial(fetch.OffsetFetchResponse, groups=[fetch.OffsetFetchResponseGroup(GROUP)])
        yield row._replace(response=answered)
    gone = offset_delete.OffsetDeleteRequestTopic(TOPIC, [offset_delete.OffsetDeleteRequestPartition(0)])
    needs = [group(op.DELETE), topic(op.READ)]
    yield _row(ApiKey.OFFSET_DELETE, offset_delete, range(1), needs, group_id=GROUP, topics=[gone])


def share_rows() -> Iterator[Row]:
    op = Operation
    beat = {"group_id": GROUP, "subscribed_topic_names": [TOPIC]}
    needs = [group(op.READ), topic(op.DESCRIBE)]
    yield _row(ApiKey.SHARE_GROUP_HEARTBEAT, share_group_heartbeat, range(1, 2), needs, **beat)
    needs = [group(op.DESCRIBE)]
    yield _row(ApiKey.SHARE_GROUP_DESCRIBE, share_group_describe, range(1, 2), needs, group_ids=[GROUP])
    shown = describe_share_group_offsets
    asked = shown.DescribeShareGroupOffsetsRequestGroup(
        GROUP, [shown.DescribeShareGroupOffsetsRequestTopic(TOPIC, [0])]
    )
    needs = [group(op.DESCRIBE), topic(op.DESCRIBE)]
    row = _row(ApiKey.DESCRIBE_SHARE_GROUP_OFFSETS, shown, range(2), needs, groups=[asked])
    answered = shown.DescribeShareGroupOffsetsResponseGroup(GROUP)
    yield row._replace(response=partial(shown.DescribeShareGroupOffsetsResponse, groups=[answered]))
    moved = alter_share_group_offsets
    to = moved.AlterShareGroupOffsetsRequestTopic(TOPIC, [moved.AlterShareGroupOffsetsRequestPartition(0, 5)])
    needs = [group(op.READ), topic(op.READ)]
    yield _row(ApiKey.ALTER_SHARE_GROUP_OFFSETS, moved, range(1), needs, group_id=GROUP, topics=[to])
    gone = delete_share_group_offsets
    of = gone.DeleteShareGroupOffsetsRequestTopic(TOPIC)
    needs = [group(op.DELETE), topic(op.READ)]
    yield _row(ApiKey.DELETE_SHARE_GROUP_OFFSETS, gone, range(1), needs, group_id=GROUP, topics=[of])
    begun = initialize_share_group_state
    to_begin = begun.InitializeStateData(TOPIC_ID, [begun.PartitionData(0, 0, 5)])
    needs = [cluster(op.CLUSTER_ACTION)]
    yield _row(ApiKey.INITIALIZE_SHARE_GROUP_STATE, begun, range(1), needs, group_id=GROUP, topics=[to_begin])
    state = read_share_group_state_summary
    read = state.ReadStateSummaryData(TOPIC_ID, [state.PartitionData(0)])
    yield _row(ApiKey.READ_SHARE_GROUP_STATE_SUMMARY, state, range(2), needs, group_id=GROUP, topics=[read])


def transaction_rows() -> Iterator[Row]:
    op = Operation
    yield _row(ApiKey.INIT_PRODUCER_ID, init_producer_id, range(6), [cluster(op.IDEMPOTENT_WRITE)])
    yield _row(ApiKey.INIT_PRODUCER_ID, init_producer_id, range(6), [txn(op.WRITE)], transactional_id=TXN)
    old = {
        "v3_and_below_transactional_id": TXN,
        "v3_and_below_topics": [add_partitions_to_txn.AddPartitionsToTxnTopic(TOPIC, [0])],
    }
    both = [txn(op.WRITE), topic(op.WRITE)]
    yield _row(ApiKey.ADD_PARTITIONS_TO_TXN, add_partitions_to_txn, range(4), both, **old)
    brokers = [add_partitions_to_txn.AddPartitionsToTxnTransaction(TXN)]
    action = [cluster(op.CLUSTER_ACTION)]
    yield _row(ApiKey.ADD_PARTITIONS_TO_TXN, add_partitions_to_txn, range(4, 6), action, transactions=brokers)
    needs = [txn(op.WRITE), group(op.READ)]
    ids = {"transactional_id": TXN, "group_id": GROUP}
    yield _row(ApiKey.ADD_OFFSETS_TO_TXN, add_offsets_to_txn, range(5), needs, **ids)
    yield _row(ApiKey.END_TXN, end_txn, range(6), [txn(op.WRITE)], transactional_id=TXN)
    decides = [(rule(op.WRITE, f"txg:{GROUP}", kind=ResourceKind.TRANSACTIONAL_ID), _TXN_REFUSED)]
    yield _row(ApiKey.OPEN_TRANSACTION_GROUP, open_transaction_group, range(1), decides, group=GROUP)
    yield _row(ApiKey.END_TRANSACTION_GROUP, end_transaction_group, range(1), decides, group=GROUP)
    commit = txn_offset_commit
    committed = commit.TxnOffsetCommitRequestTopic(TOPIC, [commit.TxnOffsetCommitRequestPartition(0, 5)])
    needs = [*needs, topic(op.READ)]
    yield _row(ApiKey.TXN_OFFSET_COMMIT, commit, range(6), needs, **ids, topics=[committed])
    marks = write_txn_markers
    mark = marks.WritableTxnMarker(1, topics=[marks.WritableTxnMarkerTopic(TOPIC, [0])])
    yield _row(ApiKey.WRITE_TXN_MARKERS, marks, range(1, 3), action, markers=[mark])
    for key, module, operation in (
        (ApiKey.RECEIVE_MESSAGES, receive_messages, op.READ),
        (ApiKey.SETTLE_MESSAGES, settle_messages, op.READ),
        (ApiKey.SEEK_QUEUE, seek_queue, op.READ),
        (ApiKey.DESCRIBE_QUEUES, describe_queues, op.DESCRIBE),
    ):
        yield _row(key, module, range(1), [group(operation)], subscription=GROUP)
    named = [group(op.DESCRIBE)]
    yield _row(ApiKey.DESCRIBE_SUBSCRIPTIONS, describe_subscriptions, range(1), named, names=[GROUP])
    gone = alter_subscriptions.AlteredSubscription(GROUP, 2)
    yield _row(ApiKey.ALTER_SUBSCRIPTIONS, alter_subscriptions, range(1), [group(op.DELETE)], subscriptions=[gone])
    yield _row(ApiKey.WRITE_DEAD_LETTERS, write_dead_letters, range(1), action, topic=TOPIC)
    describe = describe_transactions
    yield _row(ApiKey.DESCRIBE_TRANSACTIONS, describe, range(1), [txn(op.DESCRIBE)], transactional_ids=[TXN])


def config_rows() -> Iterator[Row]:
    op = Operation
    for kind, name, missing in ((2, TOPIC, topic), (32, GROUP, group), (4, "1", cluster), (8, "1", cluster)):
        resource = describe_configs.DescribeConfigsResource(kind, name)
        needs = [missing(op.DESCRIBE_CONFIGS)]
        yield _row(ApiKey.DESCRIBE_CONFIGS, describe_configs, range(1, 5), needs, resources=[resource])
        for key, module, versions in (
            (ApiKey.ALTER_CONFIGS, alter_configs, range(3)),
            (ApiKey.INCREMENTAL_ALTER_CONFIGS, incremental_alter_configs, range(2)),
        ):
            changed = module.AlterConfigsResource(kind, name)
            yield _row(key, module, versions, [missing(op.ALTER_CONFIGS)], resources=[changed])


def cluster_rows() -> Iterator[Row]:
    op = Operation
    for key, module, versions, operation, fields in (
        (ApiKey.ALTER_PARTITION_REASSIGNMENTS, alter_partition_reassignments, range(2), op.ALTER, {}),
        (ApiKey.LIST_PARTITION_REASSIGNMENTS, list_partition_reassignments, range(1), op.DESCRIBE, {}),
        (ApiKey.ELECT_LEADERS, elect_leaders, range(1, 3), op.ALTER, {}),
        (ApiKey.UPDATE_FEATURES, update_features, range(3), op.ALTER, {}),
        (ApiKey.UNREGISTER_BROKER, unregister_broker, range(1), op.ALTER, {}),
        (ApiKey.DESCRIBE_QUORUM, describe_quorum, range(3), op.DESCRIBE, {}),
        (ApiKey.DESCRIBE_LOG_DIRS, describe_log_dirs, range(3, 6), op.DESCRIBE, {}),
        (ApiKey.LIST_CONFIG_RESOURCES, list_config_resources, range(2), op.DESCRIBE_CONFIGS, {}),
        (ApiKey.DESCRIBE_ACLS, describe_acls, range(1, 4), op.DESCRIBE, {}),
        (ApiKey.CREATE_ACLS, create_acls, range(1, 4), op.ALTER, {"creations": [create_acls.AclCreation()]}),
        (ApiKey.DELETE_ACLS, delete_acls, range(1, 4), op.ALTER, {"filters": [delete_acls.DeleteAclsFilter()]}),
        (ApiKey.DESCRIBE_CLIENT_QUOTAS, describe_client_quotas, range(2), op.DESCRIBE_CONFIGS, {}),
        (
            *(ApiKey.ALTER_CLIENT_QUOTAS, alter_client_quotas, range(2), op.ALTER_CONFIGS),
            {"entries": [alter_client_quotas.EntryData()]},
        ),
        (ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS, describe_user_scram_credentials, range(1), op.DESCRIBE, {}),
        (
            *(ApiKey.ALTER_USER_SCRAM_CREDENTIALS, alter_user_scram_credentials, range(1), op.ALTER),
            {"upsertions": [alter_user_scram_credentials.ScramCredentialUpsertion("secret-user")]},
        ),
    ):
        yield _row(key, module, versions, [cluster(operation)], **fields)
    dirs = alter_replica_log_dirs
    moved = dirs.AlterReplicaLogDir("/elsewhere", [dirs.AlterReplicaLogDirTopic(TOPIC, [0])])
    yield _row(ApiKey.ALTER_REPLICA_LOG_DIRS, dirs, range(1, 3), [cluster(op.ALTER)], dirs=[moved])


ROWS = (*topic_rows(), *group_rows(), *share_rows(), *transaction_rows(), *config_rows(), *cluster_rows())
LISTING = frozenset({ApiKey.LIST_GROUPS, ApiKey.LIST_TRANSACTIONS, ApiKey.DESCRIBE_CLUSTER})
"""APIs that refuse no client, and show to each client what it may see."""
