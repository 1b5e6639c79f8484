"""What is to be known about a cluster, its topics and its partitions, gathered from several requests.

Rules: every count that is shown to people is made here, once, whichever command, page or program shows it. `to_json`
gives the names that programs read; how it looks on a terminal is not decided here.
Topics that Martlet keeps for itself are counted apart, and looked after like all others: a problem with one counts.

Proved by: tests/unit/client/test_reports.py, tests/cli/
"""

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from martlet.base.ids import TopicPartition, format_topic_id
from martlet.client.admin import Admin, ConfigSource, ResourceType
from martlet.client.cluster import Cluster
from martlet.client.cluster_admin import BrokerState, ClusterAdmin, Move
from martlet.client.metadata import PartitionInfo, TopicInfo
from martlet.client.offsets import LATEST, list_offsets, offset_ranges

_MINIMUM_CONFIG: Final = "min.insync.replicas"
_TOPICS_WITH_MINIMUM_MAX: Final = 200
"""Of a cluster in which more topics have problems, not all are asked for their minimum."""


@dataclass(frozen=True, slots=True)
class PartitionReport:
    """Where a partition lies, who leads it, and what is wrong with it."""

    partition: TopicPartition
    info: PartitionInfo
    move: Move | None = None

    @property
    def leader(self) -> int | None:
        return self.info.leader if self.info.leader >= 0 else None

    @property
    def missing(self) -> tuple[int, ...]:
        """The replicas that should be in sync and are not; one that a move is only just making is no fault."""
        coming = self.move.adding if self.move is not None else ()
        return tuple(one for one in self.info.replicas if one not in self.info.in_sync and one not in coming)

    @property
    def problem(self) -> str | None:
        if self.leader is None:
            return "no leader"
        return f"not in sync: {','.join(map(str, self.missing))}" if self.missing else None

    def to_json(self) -> dict[str, Any]:
        return {
            "topic": self.partition.topic,
            "partition": self.partition.partition,
            "leader": self.leader,
            "leader_epoch": self.info.leader_epoch,
            "replicas": list(self.info.replicas),
            "in_sync": list(self.info.in_sync),
            "offline": list(self.info.offline),
            "problem": self.problem,
            "moving_to": list(self.move.wished) if self.move is not None else None,
        }


@dataclass(frozen=True, slots=True)
class BrokerReport:
    """A registered broker and what it holds."""

    broker: BrokerState
    leads: int
    replicas: int
    in_sync: int

    def to_json(self) -> dict[str, Any]:
        return {
            "id": self.broker.id,
            "address": str(self.broker.address),
            "rack": self.broker.rack or None,
            "running": self.broker.is_alive,
            "draining": self.broker.is_draining,
            "leads": self.leads,
            "replicas": self.replicas,
            "in_sync": self.in_sync,
        }


@dataclass(frozen=True, slots=True)
class ClusterReport:
    """The brokers, how many topics and partitions there are, and which partitions have a problem."""

    cluster_id: str | None
    controller: int
    brokers: tuple[BrokerReport, ...]
    topics: int
    internal_topics: int
    partitions: int
    internal_partitions: int
    moving: int
    below_minimum: int
    """Partitions with fewer replicas in sync than `min.insync.replicas`; they refuse publishes with acks=all."""
    problems: tuple[PartitionReport, ...]

    @property
    def without_leader(self) -> int:
        return sum(one.leader is None for one in self.problems)

    @property
    def under_replicated(self) -> int:
        return sum(bool(one.missing) for one in self.problems)

    def to_json(self) -> dict[str, Any]:
        return {
            "cluster_id": self.cluster_id,
            "controller": self.controller,
            "brokers": [broker.to_json() for broker in self.brokers],
            "topics": self.topics,
            "internal_topics": self.internal_topics,
            "partitions": self.partitions,
            "internal_partitions": self.internal_partitions,
            "partitions_without_leader": self.without_leader,
            "partitions_under_replicated": self.under_replicated,
            "partitions_below_minimum": self.below_minimum,
            "partitions_moving": self.moving,
        }


async def cluster_report(cluster: Cluster) -> ClusterReport:
    """How the cluster is now."""
    admin = ClusterAdmin(cluster)
    state = await admin.state()
    topics = await Admin(cluster).topics()
    moves = await admin.moves()
    reports = partition_reports(topics.values(), moves)
    problems = tuple(report for report in reports if report.problem is not None)
    internal = [topic for topic in topics.values() if topic.is_internal]
    internal_partitions = sum(len(topic.partitions) for topic in internal)
    return ClusterReport(
        cluster_id=state.cluster_id,
        controller=state.controller_id,
        brokers=tuple(_broker_report(broker, reports) for broker in state.brokers),
        topics=len(topics) - len(internal),
        internal_topics=len(internal),
        partitions=len(reports) - internal_partitions,
        internal_partitions=internal_partitions,
        moving=len(moves),
        below_minimum=await _below_minimum(cluster, topics, {report.partition.topic for report in problems}),
        problems=problems,
    )


def partition_reports(
    topics: Iterable[TopicInfo], moves: Mapping[TopicPartition, Move] | None = None
) -> list[PartitionReport]:
    """Every partition of the topics, in their order."""
    places = [(TopicPartition(topic.name, index), info) for topic in topics for index, info in topic.partitions.items()]
    return [PartitionReport(place, info, (moves or {}).get(place)) for place, info in places]


def _broker_report(broker: BrokerState, partitions: Iterable[PartitionReport]) -> BrokerReport:
    held = [report.info for report in partitions if broker.id in report.info.replicas]
    return BrokerReport(
        broker=broker,
        leads=sum(info.leader == broker.id for info in held),
        replicas=len(held),
        in_sync=sum(broker.id in info.in_sync for info in held),
    )


async def _below_minimum(cluster: Cluster, topics: Mapping[str, TopicInfo], suspects: Collection[str]) -> int:
    """Only a topic with a problem can have fewer replicas in sync than its minimum."""
    below = 0
    for name in sorted(suspects)[:_TOPICS_WITH_MINIMUM_MAX]:
        configs = await Admin(cluster).configs(ResourceType.TOPIC, name)
        minimum = next((int(entry.value or 1) for entry in configs if entry.name == _MINIMUM_CONFIG), 1)
        below += sum(len(info.in_sync) < min(minimum, len(info.replicas)) for info in topics[name].partitions.values())
    return below


@dataclass(frozen=True, slots=True)
class TopicSummary:
    """A topic in one line."""

    info: TopicInfo
    messages: int | None = None
    """How many its partitions hold, by their offsets; None when that was not asked."""

    @property
    def replicas(self) -> int:
        return max((len(partition.replicas) for partition in self.info.partitions.values()), default=0)

    def to_json(self) -> dict[str, Any]:
        summary = {
            "name": self.info.name,
            "id": format_topic_id(self.info.id),
            "partitions": len(self.info.partitions),
            "replicas": self.replicas,
            "internal": self.info.is_internal,
        }
        return summary if self.messages is None else {**summary, "messages": self.messages}


async def topic_summaries(cluster: Cluster, *, internal: bool = False, counts: bool = False) -> list[TopicSummary]:
    """All topics by name, with those Martlet keeps for itself if wanted."""
    topics = [info for info in (await Admin(cluster).topics()).values() if internal or not info.is_internal]
    if not counts:
        return [TopicSummary(info) for info in topics]
    ranges = await offset_ranges(cluster, [report.partition for report in partition_reports(topics)])
    return [
        TopicSummary(info, sum(len(ranges[TopicPartition(info.name, index)]) for index in info.partitions))
        for info in topics
    ]


@dataclass(frozen=True, slots=True)
class PartitionContent:
    """A partition of a topic and what it holds; None is what cannot be asked for, because it has no leader."""

    info: PartitionInfo
    offsets: range | None
    size_bytes: int | None
    """On its leader's disk."""
    stable_offset: int | None = None
    """Up to here readers of committed data see."""

    @property
    def held_back(self) -> int:
        """How many offsets open transactions hide from readers of committed data."""
        if self.offsets is None or self.stable_offset is None:
            return 0
        return max(0, self.offsets.stop - self.stable_offset)

    def to_json(self) -> dict[str, Any]:
        return {
            "partition": self.info.index,
            "leader": self.info.leader,
            "leader_epoch": self.info.leader_epoch,
            "replicas": list(self.info.replicas),
            "in_sync": list(self.info.in_sync),
            "first_offset": None if self.offsets is None else self.offsets.start,
            "end_offset": None if self.offsets is None else self.offsets.stop,
            "stable_offset": self.stable_offset,
            "size_bytes": self.size_bytes,
        }


@dataclass(frozen=True, slots=True)
class TopicReport:
    """A topic, the settings it has itself, and its partitions with what they hold."""

    summary: TopicSummary
    configs: Mapping[str, str | None]
    partitions: tuple[PartitionContent, ...]

    def to_json(self) -> dict[str, Any]:
        return {
            **self.summary.to_json(),
            "configs": dict(self.configs),
            "partition_details": [partition.to_json() for partition in self.partitions],
        }


async def topic_report(cluster: Cluster, name: str) -> TopicReport:
    """How one topic is now."""
    admin = Admin(cluster)
    info = await admin.topic(name)
    entries = await admin.configs(ResourceType.TOPIC, name)
    led = [TopicPartition(name, partition.index) for partition in info.partitions.values() if partition.leader >= 0]
    ranges = await offset_ranges(cluster, led)
    stable = await list_offsets(cluster, dict.fromkeys(led, LATEST), read_committed=True)
    sizes = await _sizes_at_leaders(admin, info)
    return TopicReport(
        summary=TopicSummary(info),
        configs={entry.name: entry.value for entry in entries if entry.source is ConfigSource.TOPIC},
        partitions=tuple(
            PartitionContent(
                partition,
                ranges.get(place),
                sizes.get(partition.index),
                stable[place].offset if place in stable else None,
            )
            for partition in info.partitions.values()
            for place in [TopicPartition(name, partition.index)]
        ),
    )


async def _sizes_at_leaders(admin: Admin, topic: TopicInfo) -> dict[int, int]:
    leaders = {partition.leader for partition in topic.partitions.values() if partition.leader >= 0}
    return {
        size.partition.partition: size.size_bytes
        for leader in sorted(leaders)
        for size in await admin.partition_sizes(leader)
        if size.partition.topic == topic.name and topic.partitions[size.partition.partition].leader == leader
    }
