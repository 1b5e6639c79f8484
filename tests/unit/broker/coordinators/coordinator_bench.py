"""A group coordinator over a simulated store and disk, without connections; its event loop is the test's."""

from functools import partial
from typing import Self

from sim.clock import SimClock
from sim.disk import SimDisk
from sim.randomness import SimRandomness
from sim.store import SimStore, SimStoreState

from martlet.base.clock import SystemClock
from martlet.base.ids import BrokerId, Member
from martlet.base.randomness import IdSource
from martlet.broker.app import follow_metadata
from martlet.broker.coordinators.coordinator_host import CoordinatorHost
from martlet.broker.coordinators.groups import ImageTopics, group_kind
from martlet.broker.coordinators.internal_topic import InternalTopic, InternalTopicSpec
from martlet.broker.ground.settings import BrokerSettings
from martlet.broker.partitions.partition_table import PartitionTable
from martlet.broker.partitions.topic_settings import TopicSettings
from martlet.cluster.topic_names import CONSUMER_OFFSETS_TOPIC
from martlet.groups.ports import Caller, GroupsOptions
from martlet.log.log_directory import LogDirectory
from martlet.log.options import LogOptions
from martlet.observe.metrics import BrokerMetrics
from martlet.wire.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol
from martlet.wire.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
)
from martlet.wire.messages.offset_fetch import (
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopics,
    OffsetFetchResponseGroup,
)
from tests.unit.broker.administration.admin_bench import AdminBench

PARTITIONS = 4
CALLER = Caller("test", "/127.0.0.1", 8)


class CoordinatorBench:
    """An async context manager; `restart` keeps store and disk."""

    def __init__(self) -> None:
        self.state = SimStoreState()
        self.disk = SimDisk(SimRandomness(3))
        self.failures: list[BaseException] = []

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(self, *unused: object) -> None:
        await self.stop()

    async def start(self) -> None:
        self.metadata = AdminBench(SimStore(SimClock(), self.state), SimClock(), SimRandomness(7))
        await self.metadata.start()
        self.clock, self.metrics = SystemClock(), BrokerMetrics()
        image, clock, metrics = self.metadata.image, self.clock, self.metrics
        settings = TopicSettings(BrokerSettings(), image, {})
        self.logs = LogDirectory(self.disk, "/logs", LogOptions())
        self.logs.open(clock.now_ms(), settings.options_for)
        broker = image.brokers()[0]
        self.me = Member(BrokerId(1), broker.incarnation)
        self.table = PartitionTable(self.me, image, self.logs, settings, metrics, clock, self.failures.append)
        self.table.open_existing()
        await self.table.flusher.flush_all(self.table.open_partitions())
        topic = InternalTopic(InternalTopicSpec(CONSUMER_OFFSETS_TOPIC, PARTITIONS), image, self.metadata.admin)
        kind = group_kind(GroupsOptions(), ImageTopics(image), IdSource(SimRandomness(9)), metrics)
        self.groups = CoordinatorHost(kind, topic, self.table, clock, metrics, self.failures.append)
        self.metadata.feed.add_listener(partial(follow_metadata, self.table, image))
        self.groups.start()
        self.metadata.feed.add_listener(self.groups.follow)

    async def stop(self) -> None:
        await self.groups.aclose()
        await self.table.flusher.flush_all(self.table.open_partitions())
        await self.table.flusher.aclose()
        self.logs.close(clean=True)
        await self.metadata.stop()

    async def restart(self) -> None:
        await self.stop()
        await self.start()

    async def commit(self, group: str, topic: str, offset: int) -> int:
        """Commit for partition 0; the partition's error."""
        asked = OffsetCommitRequestTopic(topic, partitions=[OffsetCommitRequestPartition(0, offset)])
        request = OffsetCommitRequest(group, topics=[asked])
        response = await self.groups.call(group, lambda machine, now: machine.offset_commit(request, CALLER, now))
        assert isinstance(response, OffsetCommitResponse)
        return response.topics[0].partitions[0].error_code

    async def committed(self, group: str, topic: str) -> int:
        """The offset of partition 0; -1 when there is none."""
        asked = OffsetFetchRequestGroup(group, topics=[OffsetFetchRequestTopics(topic, partition_indexes=[0])])
        response = await self.groups.call(group, lambda machine, now: machine.offset_fetch(asked, False, CALLER, now))
        assert isinstance(response, OffsetFetchResponseGroup)
        return response.topics[0].partitions[0].committed_offset

    async def join(self, group: str) -> object:
        """Waits until the group is complete."""
        request = JoinGroupRequest(group, 10_000, 10_000, "", None, "consumer", [JoinGroupRequestProtocol("range")])
        caller = CALLER._replace(version=2)
        return await self.groups.call(group, lambda machine, now: machine.join_group(request, caller, now))
