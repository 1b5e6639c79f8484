"""Questions and changes about brokers and where partitions lie: elections, moves, draining, removal.

All of it may be asked of any broker; the controller is asked because it knows first. Every change here is one that may
be sent twice, because what it wishes is a state and not a step, except for removing a broker, which is sent once.
Results for single partitions are returned, not raised: one that fails does not harm the others.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Final, NamedTuple

from martlet.base.addresses import Address
from martlet.base.errors import ERROR_TABLE, ApiError, error_code
from martlet.base.ids import TopicPartition
from martlet.client.admin import ResourceType
from martlet.client.answers import check, only
from martlet.client.apis import (
    ALTER_PARTITION_REASSIGNMENTS,
    DESCRIBE_CLUSTER,
    DESCRIBE_CONFIGS,
    ELECT_LEADERS,
    INCREMENTAL_ALTER_CONFIGS,
    LIST_PARTITION_REASSIGNMENTS,
    UNREGISTER_BROKER,
)
from martlet.client.cluster import Cluster
from martlet.client.errors import ConnectionLost, OutcomeUnknown, RequestTimedOut
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
from martlet.wire.messages.list_partition_reassignments import ListPartitionReassignmentsRequest
from martlet.wire.messages.unregister_broker import UnregisterBrokerRequest

DRAIN_CONFIG: Final = "martlet.drain"

_SET: Final = 0
_PREFERRED: Final = 0
_UNCLEAN: Final = 1
_PARTITIONS_PER_REQUEST: Final = 1_000

Outcomes = dict[TopicPartition, ApiError | None]
"""For each partition None, or why it was not done."""


class BrokerState(NamedTuple):
    """A registered broker and what can be expected of it."""

    id: int
    address: Address
    rack: str | None
    is_alive: bool
    is_draining: bool


class ClusterState(NamedTuple):
    """The cluster and all its registered brokers, by id."""

    cluster_id: str | None
    controller_id: int
    brokers: tuple[BrokerState, ...]


class Move(NamedTuple):
    """A partition on its way to other brokers."""

    partition: TopicPartition
    replicas: tuple[int, ...]
    adding: tuple[int, ...]
    removing: tuple[int, ...]

    @property
    def wished(self) -> tuple[int, ...]:
        """Where it lies when the move is done."""
        return tuple(broker for broker in self.replicas if broker not in self.removing)


class ClusterAdmin:
    """Stateless apart from its cluster; owns nothing that needs closing."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster

    async def state(self) -> ClusterState:
        """All registered brokers, those that do not run included where the cluster tells of them."""

        async def attempt() -> ClusterState:
            connection = await self._cluster.any_connection()
            if DESCRIBE_CLUSTER.key not in connection.versions:
                return await self._state_by_metadata()
            response = await connection.call(DESCRIBE_CLUSTER, DescribeClusterRequest(include_fenced_brokers=True))
            check(response.error_code, response.error_message, "the cluster was not described")
            draining = await self._draining([broker.broker_id for broker in response.brokers])
            brokers = tuple(
                BrokerState(
                    broker.broker_id,
                    Address(broker.host, broker.port),
                    broker.rack,
                    not broker.is_fenced,
                    broker.broker_id in draining,
                )
                for broker in sorted(response.brokers, key=lambda broker: broker.broker_id)
            )
            return ClusterState(response.cluster_id, response.controller_id, brokers)

        return await self._cluster.retry(attempt)

    async def _state_by_metadata(self) -> ClusterState:
        """As far as an old broker knows: those that are alive."""
        await self._cluster.refresh(())
        metadata = self._cluster.metadata
        brokers = tuple(
            BrokerState(node.id, node.address, node.rack, is_alive=True, is_draining=False)
            for _, node in sorted(metadata.brokers.items())
        )
        return ClusterState(metadata.cluster_id, metadata.controller_id, brokers)

    async def _draining(self, brokers: Iterable[int]) -> set[int]:
        """Who of them is being drained; brokers of other makers do not know such a thing."""
        resources = [
            DescribeConfigsResource(
                resource_type=ResourceType.BROKER, resource_name=str(broker), configuration_keys=[DRAIN_CONFIG]
            )
            for broker in brokers
        ]
        connection = await self._cluster.any_connection()
        response = await connection.call(DESCRIBE_CONFIGS, DescribeConfigsRequest(resources=resources))
        return {
            int(result.resource_name)
            for result in response.results
            if any(entry.name == DRAIN_CONFIG and entry.value == "true" for entry in result.configs)
        }

    async def elect(self, partitions: Iterable[TopicPartition], *, unclean: bool = False) -> Outcomes:
        """Give each its preferred leader or, where there is no leader and loss is accepted, any living replica."""
        outcomes: Outcomes = {}
        for batch in _batches(partitions):
            by_topic = _by_topic((partition, None) for partition in batch)
            request = ElectLeadersRequest(
                election_type=_UNCLEAN if unclean else _PREFERRED,
                topic_partitions=[TopicPartitions(topic, list(indexes)) for topic, indexes in by_topic.items()],
                timeout_ms=self._cluster.options.request_timeout_ms,
            )

            async def attempt(request: ElectLeadersRequest = request) -> Outcomes:
                response = await (await self._cluster.controller()).call(ELECT_LEADERS, request)
                check(response.error_code, None, "no leaders were elected")
                return {
                    TopicPartition(topic.topic, result.partition_id): _outcome(result.error_code, result.error_message)
                    for topic in response.replica_election_results
                    for result in topic.partition_result
                }

            outcomes |= await self._cluster.retry(attempt)
        return outcomes

    async def reassign(self, wishes: Mapping[TopicPartition, Sequence[int] | None]) -> Outcomes:
        """Begin to move partitions to these brokers, preferred leader first; None cancels a partition's move."""
        outcomes: Outcomes = {}
        for batch in _batches(wishes):
            by_topic = _by_topic((partition, wishes[partition]) for partition in batch)
            request = AlterPartitionReassignmentsRequest(
                timeout_ms=self._cluster.options.request_timeout_ms,
                topics=[
                    ReassignableTopic(
                        topic,
                        [
                            ReassignablePartition(index, None if replicas is None else list(replicas))
                            for index, replicas in indexes.items()
                        ],
                    )
                    for topic, indexes in by_topic.items()
                ],
            )

            async def attempt(request: AlterPartitionReassignmentsRequest = request) -> Outcomes:
                response = await (await self._cluster.controller()).call(ALTER_PARTITION_REASSIGNMENTS, request)
                check(response.error_code, response.error_message, "no partitions were moved")
                return {
                    TopicPartition(topic.name, result.partition_index): _outcome(
                        result.error_code, result.error_message
                    )
                    for topic in response.responses
                    for result in topic.partitions
                }

            outcomes |= await self._cluster.retry(attempt)
        return outcomes

    async def moves(self) -> dict[TopicPartition, Move]:
        """All moves under way."""

        async def attempt() -> dict[TopicPartition, Move]:
            request = ListPartitionReassignmentsRequest(
                timeout_ms=self._cluster.options.request_timeout_ms, topics=None
            )
            connection = await self._cluster.controller()
            if LIST_PARTITION_REASSIGNMENTS.key not in connection.versions:
                return {}  # an old broker, which moves nothing
            response = await connection.call(LIST_PARTITION_REASSIGNMENTS, request)
            check(response.error_code, response.error_message, "the moves were not listed")
            moves = [
                Move(
                    TopicPartition(topic.name, partition.partition_index),
                    tuple(partition.replicas),
                    tuple(partition.adding_replicas),
                    tuple(partition.removing_replicas),
                )
                for topic in response.topics
                for partition in topic.partitions
            ]
            return {move.partition: move for move in moves}

        return await self._cluster.retry(attempt)

    async def set_drain(self, broker: int, *, wanted: bool) -> None:
        """Have a broker emptied, or no longer."""
        change = AlterableConfig(name=DRAIN_CONFIG, config_operation=_SET, value="true" if wanted else "false")
        resource = AlterConfigsResource(resource_type=ResourceType.BROKER, resource_name=str(broker), configs=[change])

        async def attempt() -> None:
            connection = await self._cluster.controller()
            request = IncrementalAlterConfigsRequest(resources=[resource])
            result = only((await connection.call(INCREMENTAL_ALTER_CONFIGS, request)).responses)
            check(result.error_code, result.error_message, f"broker {broker}", named=f"broker {broker}")

        await self._cluster.retry(attempt)

    async def remove_broker(self, broker: int) -> None:
        """Forget a broker that is drained and has stopped."""

        async def attempt() -> None:
            try:
                connection = await self._cluster.controller()
                response = await connection.call(UNREGISTER_BROKER, UnregisterBrokerRequest(broker_id=broker))
            except (ConnectionLost, RequestTimedOut) as error:
                raise OutcomeUnknown(f"removing broker {broker}: {error}; check before you repeat it") from error
            check(response.error_code, response.error_message, f"broker {broker}", named=f"broker {broker}")

        await self._cluster.retry(attempt)


def _outcome(number: int, message: str | None) -> ApiError | None:
    if not number:
        return None
    code = error_code(number)
    return ApiError(code, message or ERROR_TABLE[code].text)


def _batches(partitions: Iterable[TopicPartition]) -> Iterable[list[TopicPartition]]:
    """Sorted, so that those of one topic go together, and few enough for one request."""
    ordered = sorted(partitions)
    for start in range(0, len(ordered), _PARTITIONS_PER_REQUEST):
        yield ordered[start : start + _PARTITIONS_PER_REQUEST]


def _by_topic(
    wishes: Iterable[tuple[TopicPartition, Sequence[int] | None]],
) -> dict[str, dict[int, Sequence[int] | None]]:
    by_topic: dict[str, dict[int, Sequence[int] | None]] = {}
    for (topic, index), replicas in wishes:
        by_topic.setdefault(topic, {})[index] = replicas
    return by_topic
