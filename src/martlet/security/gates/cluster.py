"""Gates of the APIs that concern the cluster as a whole: settings, moves, users, rules, quotas.

Proved by: tests/unit/security/test_gates.py, tests/unit/security/test_filtering_gates.py
"""

from dataclasses import replace
from typing import Any, Final

from martlet.security.gates.gate import (
    GROUP,
    REFUSALS,
    TOPIC,
    Admission,
    Asker,
    Gate,
    error,
    on_cluster,
    one_by_one,
)
from martlet.security.gates.topics import cluster_operations
from martlet.security.rules import CLUSTER_NAME, Operation, ResourceKind
from martlet.wire.messages import alter_configs as alter_messages
from martlet.wire.messages import incremental_alter_configs as incremental_messages
from martlet.wire.messages.alter_client_quotas import (
    AlterClientQuotasRequest,
    AlterClientQuotasResponse,
    EntryData,
)
from martlet.wire.messages.alter_partition_reassignments import AlterPartitionReassignmentsResponse
from martlet.wire.messages.alter_replica_log_dirs import (
    AlterReplicaLogDirPartitionResult,
    AlterReplicaLogDirsRequest,
    AlterReplicaLogDirsResponse,
    AlterReplicaLogDirTopicResult,
)
from martlet.wire.messages.alter_user_scram_credentials import (
    AlterUserScramCredentialsRequest,
    AlterUserScramCredentialsResponse,
    AlterUserScramCredentialsResult,
)
from martlet.wire.messages.create_acls import AclCreationResult, CreateAclsRequest, CreateAclsResponse
from martlet.wire.messages.delete_acls import DeleteAclsFilterResult, DeleteAclsRequest, DeleteAclsResponse
from martlet.wire.messages.describe_acls import DescribeAclsResponse
from martlet.wire.messages.describe_client_quotas import DescribeClientQuotasResponse
from martlet.wire.messages.describe_cluster import DescribeClusterRequest, DescribeClusterResponse
from martlet.wire.messages.describe_configs import DescribeConfigsResponse, DescribeConfigsResult
from martlet.wire.messages.describe_log_dirs import DescribeLogDirsResponse
from martlet.wire.messages.describe_quorum import DescribeQuorumResponse
from martlet.wire.messages.describe_user_scram_credentials import DescribeUserScramCredentialsResponse
from martlet.wire.messages.elect_leaders import ElectLeadersResponse
from martlet.wire.messages.list_config_resources import ListConfigResourcesResponse
from martlet.wire.messages.list_partition_reassignments import ListPartitionReassignmentsResponse
from martlet.wire.messages.unregister_broker import UnregisterBrokerResponse
from martlet.wire.messages.update_features import UpdateFeaturesResponse

REFUSED: Final = REFUSALS[ResourceKind.CLUSTER]
_TOPIC_CONFIGS: Final = 2
_GROUP_CONFIGS: Final = 32

alter_partition_reassignments: Final = on_cluster(Operation.ALTER, error(AlterPartitionReassignmentsResponse))
list_partition_reassignments: Final = on_cluster(Operation.DESCRIBE, error(ListPartitionReassignmentsResponse))
elect_leaders: Final = on_cluster(Operation.ALTER, error(ElectLeadersResponse))
update_features: Final = on_cluster(Operation.ALTER, error(UpdateFeaturesResponse))
unregister_broker: Final = on_cluster(Operation.ALTER, error(UnregisterBrokerResponse))
describe_quorum: Final = on_cluster(Operation.DESCRIBE, error(DescribeQuorumResponse))
describe_log_dirs: Final = on_cluster(Operation.DESCRIBE, error(DescribeLogDirsResponse))
list_config_resources: Final = on_cluster(Operation.DESCRIBE_CONFIGS, error(ListConfigResourcesResponse))
describe_acls: Final = on_cluster(Operation.DESCRIBE, error(DescribeAclsResponse))
describe_client_quotas: Final = on_cluster(
    Operation.DESCRIBE_CONFIGS, lambda request, version: DescribeClientQuotasResponse(error_code=REFUSED, entries=None)
)
describe_user_scram_credentials: Final = on_cluster(Operation.DESCRIBE, error(DescribeUserScramCredentialsResponse))


def _refused_creations(request: CreateAclsRequest, version: int) -> CreateAclsResponse:
    return CreateAclsResponse(results=[AclCreationResult(REFUSED) for _ in request.creations])


def _refused_deletions(request: DeleteAclsRequest, version: int) -> DeleteAclsResponse:
    return DeleteAclsResponse(filter_results=[DeleteAclsFilterResult(REFUSED) for _ in request.filters])


def _refused_users(request: AlterUserScramCredentialsRequest, version: int) -> AlterUserScramCredentialsResponse:
    names = dict.fromkeys([gone.name for gone in request.deletions] + [new.name for new in request.upsertions])
    return AlterUserScramCredentialsResponse(results=[AlterUserScramCredentialsResult(name, REFUSED) for name in names])


def _refused_quotas(request: AlterClientQuotasRequest, version: int) -> AlterClientQuotasResponse:
    return AlterClientQuotasResponse(
        entries=[EntryData(entity=entry.entity, error_code=REFUSED) for entry in request.entries]
    )


def _refused_log_dirs(request: AlterReplicaLogDirsRequest, version: int) -> AlterReplicaLogDirsResponse:
    return AlterReplicaLogDirsResponse(
        results=[
            AlterReplicaLogDirTopicResult(
                topic.name, [AlterReplicaLogDirPartitionResult(index, REFUSED) for index in topic.partitions]
            )
            for directory in request.dirs
            for topic in directory.topics
        ]
    )


create_acls: Final = on_cluster(Operation.ALTER, _refused_creations)
delete_acls: Final = on_cluster(Operation.ALTER, _refused_deletions)
alter_user_scram_credentials: Final = on_cluster(Operation.ALTER, _refused_users)
alter_client_quotas: Final = on_cluster(Operation.ALTER_CONFIGS, _refused_quotas)
alter_replica_log_dirs: Final = on_cluster(Operation.ALTER, _refused_log_dirs)


def describe_cluster(request: DescribeClusterRequest, asker: Asker) -> Admission:
    """Brokers are shown to everybody; the operations are those of the client."""

    def finish(answer: DescribeClusterResponse) -> DescribeClusterResponse:
        operations = cluster_operations(answer.cluster_authorized_operations, asker)
        return replace(answer, cluster_authorized_operations=operations)

    return Admission(request, finish)


def _kind_of(resource: Any) -> tuple[ResourceKind, str]:
    if resource.resource_type == _TOPIC_CONFIGS:
        return TOPIC, resource.resource_name
    if resource.resource_type == _GROUP_CONFIGS:
        return GROUP, resource.resource_name
    return ResourceKind.CLUSTER, CLUSTER_NAME


def _on_configs(operation: Operation, items: str, results: str, response: type[Any], result: type[Any]) -> Gate:
    """A list of resources whose settings are described or changed: topics, groups, and the rest of the cluster."""
    return one_by_one(
        items,
        results,
        response,
        lambda resource, asker: asker.may(operation, *_kind_of(resource)),
        lambda resource: result(
            error_code=REFUSALS[_kind_of(resource)[0]],
            resource_type=resource.resource_type,
            resource_name=resource.resource_name,
        ),
    )


describe_configs: Final = _on_configs(
    Operation.DESCRIBE_CONFIGS, "resources", "results", DescribeConfigsResponse, DescribeConfigsResult
)
alter_configs: Final = _on_configs(
    Operation.ALTER_CONFIGS,
    "resources",
    "responses",
    alter_messages.AlterConfigsResponse,
    alter_messages.AlterConfigsResourceResponse,
)
incremental_alter_configs: Final = _on_configs(
    Operation.ALTER_CONFIGS,
    "resources",
    "responses",
    incremental_messages.IncrementalAlterConfigsResponse,
    incremental_messages.AlterConfigsResourceResponse,
)
