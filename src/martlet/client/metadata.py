"""What we know about the cluster: brokers, topics and who leads each partition. Data and its update; no I/O.

Invariant: (CLT-14) for one topic id a partition's leader epoch never goes back: an answer from a broker that lags
behind does not undo what a newer one has reported.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field, replace

from martlet.base.addresses import Address
from martlet.base.errors import ERROR_TABLE, ApiError, ErrorCode, error_code
from martlet.base.ids import NO_TOPIC_ID
from martlet.client.errors import TopicUnknown
from martlet.wire.messages.metadata import MetadataResponse, MetadataResponseTopic


@dataclass(frozen=True, slots=True)
class BrokerNode:
    """A broker of the cluster as it announces itself."""

    id: int
    address: Address
    rack: str | None


@dataclass(frozen=True, slots=True)
class PartitionInfo:
    """One partition; leader -1 means that no broker leads it."""

    index: int
    leader: int
    leader_epoch: int
    replicas: tuple[int, ...]
    in_sync: tuple[int, ...]
    offline: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class TopicInfo:
    """One topic with its partitions by index."""

    name: str
    id: bytes
    is_internal: bool
    partitions: dict[int, PartitionInfo]

    @property
    def has_id(self) -> bool:
        return self.id != NO_TOPIC_ID


@dataclass(slots=True)
class Metadata:
    """The newest answers we have; changed only by `update` and the two `forget`s."""

    cluster_id: str | None = None
    controller_id: int = -1
    brokers: dict[int, BrokerNode] = field(default_factory=dict)
    topics: dict[str, TopicInfo] = field(default_factory=dict)

    def update(self, response: MetadataResponse) -> dict[str, ApiError]:
        """Take over an answer; returns the topics it could not describe, with the reason of each."""
        self.cluster_id = response.cluster_id
        self.controller_id = response.controller_id
        self.brokers = {
            broker.node_id: BrokerNode(broker.node_id, Address(broker.host, broker.port), broker.rack)
            for broker in response.brokers
        }
        failures: dict[str, ApiError] = {}
        for topic in response.topics:
            name = topic.name or ""
            if topic.error_code:
                self.topics.pop(name, None)
                failures[name] = topic_error(topic.error_code, name)
            else:
                self.topics[name] = _keep_newer_epochs(self.topics.get(name), _topic_info(topic, name))
        return failures

    def forget_topics(self, names: Iterable[str]) -> None:
        for name in names:
            self.topics.pop(name, None)

    def name_of(self, topic_id: bytes) -> str | None:
        """The name of a topic by its id, as far as it is known here."""
        return next((topic.name for topic in self.topics.values() if topic.id == topic_id), None)


def topic_error(number: int, name: str) -> ApiError:
    """The error of one topic, naming it."""
    code = error_code(number)
    if code in (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.UNKNOWN_TOPIC_ID):
        return TopicUnknown(name, code)
    return ApiError(code, f"topic {name!r}: {ERROR_TABLE[code].text}")


def _topic_info(topic: MetadataResponseTopic, name: str) -> TopicInfo:
    partitions = {
        partition.partition_index: PartitionInfo(
            partition.partition_index,
            partition.leader_id,
            partition.leader_epoch,
            tuple(partition.replica_nodes),
            tuple(partition.isr_nodes),
            tuple(partition.offline_replicas),
        )
        for partition in sorted(topic.partitions, key=lambda partition: partition.partition_index)
    }
    return TopicInfo(name, topic.topic_id, topic.is_internal, partitions)


def _keep_newer_epochs(known: TopicInfo | None, reported: TopicInfo) -> TopicInfo:
    """CLT-14: where the answer is older than what we know of the same topic, keep what we know."""
    if known is None or known.id != reported.id or not reported.has_id:
        return reported
    partitions = {
        index: known.partitions[index]
        if index in known.partitions and 0 <= partition.leader_epoch < known.partitions[index].leader_epoch
        else partition
        for index, partition in reported.partitions.items()
    }
    return replace(reported, partitions=partitions)
