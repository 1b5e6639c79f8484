"""The gate of every API. Rules forbid a new API until it has a line here.

Proved by: tests/unit/security/test_gates.py (every served API has a line)
"""

from collections.abc import Mapping
from typing import Final

from martlet.security.gates import cluster, groups, queues, topics, transactions
from martlet.security.gates.gate import Gate, checked_by_handler, open_to_all
from martlet.wire.api_keys import ApiKey

GATES: Final[Mapping[int, Gate]] = {
    ApiKey.PRODUCE: checked_by_handler,
    ApiKey.FETCH: checked_by_handler,
    ApiKey.API_VERSIONS: open_to_all,
    ApiKey.SASL_HANDSHAKE: open_to_all,
    ApiKey.SASL_AUTHENTICATE: open_to_all,
    ApiKey.LIST_OFFSETS: topics.list_offsets,
    ApiKey.METADATA: topics.metadata,
    ApiKey.CREATE_TOPICS: topics.create_topics,
    ApiKey.DELETE_TOPICS: topics.delete_topics,
    ApiKey.DELETE_RECORDS: topics.delete_records,
    ApiKey.OFFSET_FOR_LEADER_EPOCH: topics.offset_for_leader_epoch,
    ApiKey.CREATE_PARTITIONS: topics.create_partitions,
    ApiKey.DESCRIBE_PRODUCERS: topics.describe_producers,
    ApiKey.DESCRIBE_TOPIC_PARTITIONS: topics.describe_topic_partitions,
    ApiKey.OFFSET_COMMIT: groups.offset_commit,
    ApiKey.OFFSET_FETCH: groups.offset_fetch,
    ApiKey.OFFSET_DELETE: groups.offset_delete,
    ApiKey.FIND_COORDINATOR: groups.find_coordinator,
    ApiKey.JOIN_GROUP: groups.join_group,
    ApiKey.HEARTBEAT: groups.heartbeat,
    ApiKey.LEAVE_GROUP: groups.leave_group,
    ApiKey.SYNC_GROUP: groups.sync_group,
    ApiKey.DESCRIBE_GROUPS: groups.describe_groups,
    ApiKey.LIST_GROUPS: groups.list_groups,
    ApiKey.DELETE_GROUPS: groups.delete_groups,
    ApiKey.CONSUMER_GROUP_HEARTBEAT: groups.consumer_group_heartbeat,
    ApiKey.CONSUMER_GROUP_DESCRIBE: groups.consumer_group_describe,
    ApiKey.INIT_PRODUCER_ID: transactions.init_producer_id,
    ApiKey.ADD_PARTITIONS_TO_TXN: transactions.add_partitions_to_txn,
    ApiKey.ADD_OFFSETS_TO_TXN: transactions.add_offsets_to_txn,
    ApiKey.END_TXN: transactions.end_txn,
    ApiKey.WRITE_TXN_MARKERS: transactions.write_txn_markers,
    ApiKey.TXN_OFFSET_COMMIT: transactions.txn_offset_commit,
    ApiKey.DESCRIBE_TRANSACTIONS: transactions.describe_transactions,
    ApiKey.LIST_TRANSACTIONS: transactions.list_transactions,
    ApiKey.OPEN_TRANSACTION_GROUP: transactions.open_transaction_group,
    ApiKey.END_TRANSACTION_GROUP: transactions.end_transaction_group,
    ApiKey.WRITE_DEAD_LETTERS: queues.write_dead_letters,
    ApiKey.DESCRIBE_CLUSTER: cluster.describe_cluster,
    ApiKey.DESCRIBE_CONFIGS: cluster.describe_configs,
    ApiKey.ALTER_CONFIGS: cluster.alter_configs,
    ApiKey.INCREMENTAL_ALTER_CONFIGS: cluster.incremental_alter_configs,
    ApiKey.ALTER_REPLICA_LOG_DIRS: cluster.alter_replica_log_dirs,
    ApiKey.DESCRIBE_LOG_DIRS: cluster.describe_log_dirs,
    ApiKey.ELECT_LEADERS: cluster.elect_leaders,
    ApiKey.ALTER_PARTITION_REASSIGNMENTS: cluster.alter_partition_reassignments,
    ApiKey.LIST_PARTITION_REASSIGNMENTS: cluster.list_partition_reassignments,
    ApiKey.DESCRIBE_QUORUM: cluster.describe_quorum,
    ApiKey.UPDATE_FEATURES: cluster.update_features,
    ApiKey.UNREGISTER_BROKER: cluster.unregister_broker,
    ApiKey.LIST_CONFIG_RESOURCES: cluster.list_config_resources,
    ApiKey.DESCRIBE_ACLS: cluster.describe_acls,
    ApiKey.CREATE_ACLS: cluster.create_acls,
    ApiKey.DELETE_ACLS: cluster.delete_acls,
    ApiKey.DESCRIBE_CLIENT_QUOTAS: cluster.describe_client_quotas,
    ApiKey.ALTER_CLIENT_QUOTAS: cluster.alter_client_quotas,
    ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS: cluster.describe_user_scram_credentials,
    ApiKey.ALTER_USER_SCRAM_CREDENTIALS: cluster.alter_user_scram_credentials,
}
