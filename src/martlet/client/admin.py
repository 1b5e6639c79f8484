"""Changes to topics, partitions and configs, and the questions an administrator asks.

Changes are sent once: if the connection is lost before the answer, the caller learns that the outcome is unknown,
because sending again could report a conflict with itself. Refusals that mean "ask another broker" or "later" are tried
again. Every refusal carries the broker's own sentence where it gave one.
"""

from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass, field
from enum import IntEnum
from typing import Final, NamedTuple, TypeVar

from martlet.base.errors import ErrorCode, error_code
from martlet.base.ids import TopicPartition
from martlet.client.answers import check, only
from martlet.client.apis import (
    CREATE_PARTITIONS,
    CREATE_TOPICS,
    DELETE_RECORDS,
    DELETE_TOPICS,
    DESCRIBE_CONFIGS,
    DESCRIBE_LOG_DIRS,
    INCREMENTAL_ALTER_CONFIGS,
)
from martlet.client.cluster import Cluster
from martlet.client.errors import ConnectionLost, OutcomeUnknown, RequestTimedOut, TopicMissing
from martlet.client.metadata import TopicInfo
from martlet.wire.messages.create_partitions import CreatePartitionsRequest, CreatePartitionsTopic
from martlet.wire.messages.create_topics import CreatableTopic, CreatableTopicConfig, CreateTopicsRequest
from martlet.wire.messages.delete_records import DeleteRecordsPartition, DeleteRecordsRequest, DeleteRecordsTopic
from martlet.wire.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState
from martlet.wire.messages.describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
    DescribeConfigsResourceResult,
)
from martlet.wire.messages.describe_log_dirs import DescribeLogDirsRequest
from martlet.wire.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)

Result = TypeVar("Result")

END_OF_PARTITION: Final = -1
"""As the offset to delete up to: everything there is now."""


class ResourceType(IntEnum):
    """What a config belongs to."""

    TOPIC = 2
    BROKER = 4
    GROUP = 32


class ConfigSource(IntEnum):
    """Where a config's value comes from, by Kafka's numbers."""

    UNKNOWN = 0
    TOPIC = 1
    DYNAMIC_BROKER = 2
    DYNAMIC_DEFAULT_BROKER = 3
    STATIC_BROKER = 4
    DEFAULT = 5
    GROUP = 8


class ConfigEntry(NamedTuple):
    """One config as it is in effect; the value of a sensitive one is None."""

    name: str
    value: str | None
    source: ConfigSource
    is_read_only: bool
    is_sensitive: bool
    documentation: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class NewTopic:
    """A topic to create; -1 leaves a number to the broker's default."""

    name: str
    partitions: int = -1
    replication_factor: int = -1
    configs: Mapping[str, str] = field(default_factory=dict)


class CreatedTopic(NamedTuple):
    """What the broker has made of it; -1 where an old broker does not say."""

    name: str
    id: bytes
    partitions: int
    replication_factor: int


class PartitionSize(NamedTuple):
    """Bytes that one replica of a partition takes on its broker's disk."""

    broker_id: int
    partition: TopicPartition
    size_bytes: int


class Admin:
    """Stateless apart from its cluster; owns nothing that needs closing."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster

    async def create_topic(self, topic: NewTopic, *, validate_only: bool = False) -> CreatedTopic:
        request = CreateTopicsRequest(
            topics=[
                CreatableTopic(
                    name=topic.name,
                    num_partitions=topic.partitions,
                    replication_factor=topic.replication_factor,
                    configs=[CreatableTopicConfig(name=name, value=value) for name, value in topic.configs.items()],
                )
            ],
            timeout_ms=self._cluster.options.request_timeout_ms,
            validate_only=validate_only,
        )

        async def attempt() -> CreatedTopic:
            response = await (await self._cluster.controller()).call(CREATE_TOPICS, request)
            result = only(response.topics)
            check(result.error_code, result.error_message, f"topic {topic.name!r} was not created", named=topic.name)
            return CreatedTopic(result.name, result.topic_id, result.num_partitions, result.replication_factor)

        return await self._change(f"creating topic {topic.name!r}", attempt)

    async def delete_topic(self, name: str) -> None:
        request = DeleteTopicsRequest(
            topics=[DeleteTopicState(name=name)],
            topic_names=[name],
            timeout_ms=self._cluster.options.request_timeout_ms,
        )

        async def attempt() -> None:
            response = await (await self._cluster.controller()).call(DELETE_TOPICS, request)
            result = only(response.responses)
            _check_topic(result.error_code, result.error_message, name)

        await self._change(f"deleting topic {name!r}", attempt)
        self._cluster.mark_stale(name)

    async def grow_topic(self, name: str, *, partitions: int) -> None:
        """Add partitions until there are this many."""
        request = CreatePartitionsRequest(
            topics=[CreatePartitionsTopic(name=name, count=partitions, assignments=None)],
            timeout_ms=self._cluster.options.request_timeout_ms,
        )

        async def attempt() -> None:
            response = await (await self._cluster.controller()).call(CREATE_PARTITIONS, request)
            result = only(response.results)
            _check_topic(result.error_code, result.error_message, name)

        await self._change(f"adding partitions to topic {name!r}", attempt)
        self._cluster.mark_stale(name)

    async def topics(self) -> dict[str, TopicInfo]:
        """Every topic of the cluster, sorted by name."""
        return await self._cluster.retry(self._cluster.refresh_all)

    async def topic(self, name: str) -> TopicInfo:
        return await self._cluster.topic(name)

    async def configs(self, kind: ResourceType, name: str) -> list[ConfigEntry]:
        """All configs of one topic, broker or group, sorted by name; a broker is asked itself."""
        resource = DescribeConfigsResource(resource_type=kind, resource_name=name, configuration_keys=None)
        request = DescribeConfigsRequest(resources=[resource], include_documentation=True)

        async def attempt() -> list[ConfigEntry]:
            if kind is ResourceType.BROKER and name:
                connection = await self._cluster.connection(int(name))
            else:
                connection = await self._cluster.any_connection()
            result = only((await connection.call(DESCRIBE_CONFIGS, request)).results)
            if kind is ResourceType.TOPIC:
                _check_topic(result.error_code, result.error_message, name)
            check(result.error_code, result.error_message, f"configs of {kind.name.lower()} {name}".rstrip())
            return sorted(_config_entry(entry) for entry in result.configs)

        return await self._cluster.retry(attempt)

    async def alter_configs(
        self, kind: ResourceType, name: str, *, set_values: Mapping[str, str], unset: Iterable[str] = ()
    ) -> None:
        """Set some configs and return others to their defaults; the rest stay as they are."""
        changes = [AlterableConfig(name=key, config_operation=0, value=value) for key, value in set_values.items()]
        changes += [AlterableConfig(name=key, config_operation=1, value=None) for key in unset]
        resource = AlterConfigsResource(resource_type=kind, resource_name=name, configs=changes)
        request = IncrementalAlterConfigsRequest(resources=[resource])

        async def attempt() -> None:
            if kind is ResourceType.BROKER and name:
                connection = await self._cluster.connection(int(name))
            else:
                connection = await self._cluster.controller()
            result = only((await connection.call(INCREMENTAL_ALTER_CONFIGS, request)).responses)
            if kind is ResourceType.TOPIC:
                _check_topic(result.error_code, result.error_message, name)
            check(result.error_code, result.error_message, f"configs of {kind.name.lower()} {name}".rstrip())

        await self._change(f"changing configs of {name!r}", attempt)

    async def delete_records(self, before: Mapping[TopicPartition, int]) -> dict[TopicPartition, int]:
        """Drop messages below an offset (or END_OF_PARTITION); returns where each partition now starts."""
        starts = {}
        for partition, offset in before.items():

            async def attempt(partition: TopicPartition = partition, offset: int = offset) -> int:
                leader = await self._cluster.leader(partition)
                wanted = DeleteRecordsPartition(partition_index=partition.partition, offset=offset)
                request = DeleteRecordsRequest(
                    topics=[DeleteRecordsTopic(name=partition.topic, partitions=[wanted])],
                    timeout_ms=self._cluster.options.request_timeout_ms,
                )
                connection = await self._cluster.connection(leader.broker_id)
                topic = only((await connection.call(DELETE_RECORDS, request)).topics)
                result = only(topic.partitions)
                check(result.error_code, None, f"messages of {partition} were not deleted")
                return result.low_watermark

            # Deleting below an offset twice is the same as once, so a lost answer may be asked for again.
            starts[partition] = await self._cluster.retry(attempt, topics=[partition.topic])
        return starts

    async def partition_sizes(self, broker_id: int) -> list[PartitionSize]:
        """What one broker holds on its disks."""

        async def attempt() -> list[PartitionSize]:
            connection = await self._cluster.connection(broker_id)
            response = await connection.call(DESCRIBE_LOG_DIRS, DescribeLogDirsRequest(topics=None))
            check(response.error_code, None, f"the disks of broker {broker_id} were not described")
            return [
                PartitionSize(
                    broker_id, TopicPartition(topic.name, partition.partition_index), partition.partition_size
                )
                for directory in response.results
                for topic in directory.topics
                for partition in topic.partitions
            ]

        return await self._cluster.retry(attempt)

    async def _change(self, what: str, attempt: Callable[[], Awaitable[Result]]) -> Result:
        async def once() -> Result:
            try:
                return await attempt()
            except (ConnectionLost, RequestTimedOut) as error:
                raise OutcomeUnknown(f"{what}: {error}; check before you repeat it") from error

        return await self._cluster.retry(once)


def _check_topic(number: int, message: str | None, name: str) -> None:
    if error_code(number) in (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.UNKNOWN_TOPIC_ID):
        # The broker we ask for changes knows all topics: unknown there is unknown, not "later".
        raise TopicMissing(name)
    check(number, message, f"topic {name!r}", named=name)


def _config_entry(entry: DescribeConfigsResourceResult) -> ConfigEntry:
    try:
        source = ConfigSource(entry.config_source)
    except ValueError:
        source = ConfigSource.UNKNOWN
    return ConfigEntry(entry.name, entry.value, source, entry.read_only, entry.is_sensitive, entry.documentation)
