"""The clients of a simulated cluster: publishers with acks=all and idempotence, readers, and a group that commits.

They are Martlet's own client, unchanged, on machines of their own; one publisher may be of librdkafka's kind
(`pipelining_publisher.py`). What they send and see goes to a `History`; what they are answered is also shown to
the `Ghost` at that moment.
"""

import asyncio
from contextlib import aclosing
from dataclasses import replace
from functools import partial
from typing import Final

from martlet.base.addresses import Address
from martlet.base.errors import ApiError, ErrorCode
from martlet.base.ids import TopicPartition
from martlet.client.accumulator import Delivery
from martlet.client.admin import Admin, NewTopic
from martlet.client.cluster import Cluster
from martlet.client.errors import ClientError, OutcomeUnknown
from martlet.client.fetcher import Fetcher, FetcherOptions
from martlet.client.groups import Groups
from martlet.client.offsets import LATEST, list_offsets
from martlet.client.options import ClientOptions
from martlet.client.producer import Producer, ProducerOptions
from sim.ghost import Ghost
from sim.history_checker import History, Name, ReadMessage, value_of
from sim.host import SimHost
from sim.pipelining_publisher import PipeliningPublisher, new_identity
from sim.randomness import SimRandomness
from sim.simulated_broker import KAFKA_PORT
from sim.world import SimWorld

TOPIC: Final = "orders"
GROUP: Final = "readers"
OPTIONS: Final = ClientOptions(
    connect_timeout_ms=1_000, request_timeout_ms=2_000, retry_timeout_ms=20_000, metadata_max_age_ms=30_000
)
COMMIT_OPTIONS: Final = replace(OPTIONS, retry_timeout_ms=0)
_BATCH_BYTES: Final = 4_000
_DELIVERY_TIMEOUT_MS: Final = 45_000
_READ_BYTES_MAX: Final = 1 << 20
_PIPELINES: Final = 2
"""At most this many partitions get messages by pipelines."""
_PIPELINED_MAX: Final = 20
"""No more is added to a pipeline that is stuck."""


class Clients:
    """Everything that talks to the cluster in one run."""

    def __init__(self, world: SimWorld, ghost: Ghost, brokers: list[str], partitions: int) -> None:
        self.world = world
        self.ghost = ghost
        self.history = History()
        self.partitions = [TopicPartition(TOPIC, index) for index in range(partitions)]
        self.topic_exists = False
        self.sending_until_ms = 0
        self.acknowledged_min = 0
        self.reader_rack = ""
        """Where the reader is; it reads from a replica there if it can."""
        self.found: dict[TopicPartition, list[int]] = {}
        """The offsets that there are, once all is quiet."""
        self._unsettled: dict[str, int] = {}
        self.group_position: dict[TopicPartition, int] = {}
        """The position that was last acknowledged to the group."""
        self.open_positions: list[dict[TopicPartition, int]] = []
        """Commits without an answer: each may take effect at any time, or never."""
        self._addresses = [Address(name, KAFKA_PORT) for name in brokers]
        self._positions: dict[str, dict[TopicPartition, int]] = {}

    def cluster(self, host: SimHost) -> Cluster:
        return Cluster(self._addresses, OPTIONS, host.randomness)

    @property
    def unsettled(self) -> int:
        """Messages whose fate a publisher still waits for."""
        return sum(self._unsettled.values())

    def publisher_died(self, name: str) -> None:
        """No caller waits any more for what it had sent."""
        self._unsettled[name] = 0

    # --- publishing

    async def create_topic(self, host: SimHost, topic: NewTopic) -> None:
        """Once, whatever gets in the way."""
        async with aclosing(self.cluster(host)) as cluster:
            while True:
                try:
                    await Admin(cluster).create_topic(topic)
                    break
                except ApiError as error:
                    if error.code == ErrorCode.TOPIC_ALREADY_EXISTS:
                        break
                except (ClientError, OutcomeUnknown):
                    pass
                await asyncio.sleep(0.2)
        self.topic_exists = True

    @property
    def _has_more_to_send(self) -> bool:
        return self.world.now_ms < self.sending_until_ms or self.history.acknowledged_count < self.acknowledged_min

    async def publish(self, host: SimHost) -> None:
        """Send numbered messages, a few at a time, then wait for the fate of each."""
        draws = self.world.randomness.stream(f"publisher {host.name} {host.starts}")
        producer_name = f"{host.name}.{host.starts}"
        while not self.topic_exists:
            await asyncio.sleep(0.1)
        options = ProducerOptions(
            linger_ms=5, delivery_timeout_ms=_DELIVERY_TIMEOUT_MS, batch_bytes=_BATCH_BYTES, create_topics=False
        )
        async with aclosing(self.cluster(host)) as cluster, Producer(cluster, options, host.clock) as producer:
            settling: list[asyncio.Task[None]] = []
            while self._has_more_to_send:
                for _ in range(1 + draws.below(3)):
                    partition = self.partitions[draws.below(len(self.partitions))]
                    sent = await self._send(producer, producer_name, partition)
                    if sent is not None:
                        settling.append(sent)
                await asyncio.sleep(draws.below(500) / 1000)
            await producer.flush()
            for task in settling:
                await task

    async def _send(
        self, producer: Producer, producer_name: str, partition: TopicPartition
    ) -> asyncio.Task[None] | None:
        name = self.history.sending(producer_name, str(partition))
        committed_before = self.ghost.committed_end(partition)
        try:
            delivery = await producer.send(TOPIC, value_of(name), partition=partition.partition)
        except (ApiError, ClientError):
            self.history.refused(name)
            return None
        machine = name.producer.partition(".")[0]
        self._unsettled[machine] = self._unsettled.get(machine, 0) + 1
        return asyncio.create_task(self._settle(name, partition, delivery, committed_before))

    async def _settle(self, name: Name, partition: TopicPartition, delivery: Delivery, committed_before: int) -> None:
        try:
            delivered = await delivery
        except (ApiError, ClientError):
            pass  # unknown, as long as the history hears nothing else
        else:
            self._acknowledged(name, partition, committed_before, delivered.offset)
        self._unsettled[name.producer.partition(".")[0]] -= 1

    def _acknowledged(self, name: Name, partition: TopicPartition, committed_before: int, offset: int) -> None:
        self.world.scheduler.note("acknowledged", f"{name} {offset}")
        self.history.acknowledged(name, offset)
        self.ghost.acknowledged(partition, offset, value_of(name), committed_before=committed_before)

    async def publish_pipelined(self, host: SimHost) -> None:
        """Send numbered messages in bursts, each in a batch of its own, until all are acknowledged."""
        draws = self.world.randomness.stream(f"publisher {host.name} {host.starts}")
        producer_name = f"{host.name}.{host.starts}"
        while not self.topic_exists:
            await asyncio.sleep(0.1)
        async with aclosing(self.cluster(host)) as cluster, asyncio.TaskGroup() as group:
            identity = await new_identity(cluster)
            refused = partial(self.ghost.report, "REP-10")
            pipelines = {
                partition: PipeliningPublisher(cluster, partition, identity, draws, refused)
                for partition in self.partitions[:_PIPELINES]
            }
            for pipeline in pipelines.values():
                group.create_task(pipeline.deliver())
            while self._has_more_to_send:
                partition = self.partitions[draws.below(len(pipelines))]
                for _ in range(1 + draws.below(4) if pipelines[partition].waiting < _PIPELINED_MAX else 0):
                    name = self.history.sending(producer_name, str(partition))
                    acknowledged = partial(self._acknowledged, name, partition, self.ghost.committed_end(partition))
                    pipelines[partition].add(value_of(name), acknowledged)
                await asyncio.sleep(draws.below(1_000) / 1000)
            for pipeline in pipelines.values():
                pipeline.finish()

    # --- reading

    async def follow(self, host: SimHost) -> None:
        """Read along, whatever happens; a new session goes on where the last one was."""
        positions = self._positions.setdefault(host.name, dict.fromkeys(self.partitions, 0))
        while True:
            for partition in self.partitions:
                self.history.sought(host.name, str(partition))
            try:
                async with aclosing(self.cluster(host)) as cluster:
                    await self._read_on(host.name, cluster, positions)
            except ApiError as error:
                if error.code == ErrorCode.OFFSET_OUT_OF_RANGE:
                    self.ghost.report("REP-8", f"{host.name} got {error} at {positions}")
            except ClientError:
                pass
            await asyncio.sleep(0.5)

    async def _read_on(self, reader: str, cluster: Cluster, positions: dict[TopicPartition, int]) -> None:
        await cluster.topic(TOPIC)
        async with Fetcher(cluster, FetcherOptions(max_wait_ms=1_000, rack=self.reader_rack)) as fetcher:
            fetcher.assign(positions)
            while True:
                for fetched in await fetcher.fetch():
                    partition = fetched.partition
                    for record in fetched.records(batch_bytes_max=_READ_BYTES_MAX):
                        message = ReadMessage(record.offset, record.value or b"")
                        self.history.saw(reader, str(partition), [message])
                        self.ghost.delivered(partition, *message)
                        positions[partition] = record.offset + 1

    async def read_all(self, host: SimHost) -> None:
        """Read everything there is, from the beginning to the end, once all is quiet."""
        while True:
            found: dict[TopicPartition, list[ReadMessage]] = {partition: [] for partition in self.partitions}
            try:
                async with aclosing(self.cluster(host)) as cluster:
                    await self._read_to_end(cluster, found)
                break
            except (ApiError, ClientError):
                await asyncio.sleep(1)
        self.found = {partition: [message.offset for message in found[partition]] for partition in found}
        for partition, messages in found.items():
            for message in messages:
                self.ghost.delivered(partition, *message)
            self.history.final(str(partition), messages)

    async def _read_to_end(self, cluster: Cluster, found: dict[TopicPartition, list[ReadMessage]]) -> None:
        ends = await list_offsets(cluster, dict.fromkeys(self.partitions, LATEST))
        async with Fetcher(cluster, FetcherOptions(max_wait_ms=200)) as fetcher:
            fetcher.assign(dict.fromkeys(self.partitions, 0))
            while any(fetcher.positions[partition] < ends[partition].offset for partition in self.partitions):
                for fetched in await fetcher.fetch():
                    for record in fetched.records(batch_bytes_max=_READ_BYTES_MAX):
                        found[fetched.partition].append(ReadMessage(record.offset, record.value or b""))

    # --- a group's positions

    async def commit_positions(self, host: SimHost, draws: SimRandomness) -> None:
        """Commit what has been read so far, now and then, and check whether the last commit is still there."""
        while True:
            await asyncio.sleep(0.5 + draws.below(1_500) / 1000)
            positions = dict(self._positions.get(host.name, {}))
            if not any(positions.values()):
                continue
            try:
                # Once, without trying again inside: a commit that was sent twice could come again after the next one.
                async with Cluster(self._addresses, COMMIT_OPTIONS, host.randomness) as cluster:
                    self.open_positions.append(positions)
                    await Groups(cluster).commit(GROUP, positions)
                    self.open_positions.remove(positions)
                    self.group_position = positions
                    for partition, offset in positions.items():
                        self.ghost.position_committed(partition, offset)
                    await self._check_positions(cluster)
            except (ApiError, ClientError):
                continue

    async def check_positions(self, host: SimHost) -> None:
        """When all is quiet: the group is where it has committed."""
        while True:
            try:
                async with aclosing(self.cluster(host)) as cluster:
                    await self._check_positions(cluster)
                return
            except (ApiError, ClientError):
                await asyncio.sleep(1)

    async def _check_positions(self, cluster: Cluster) -> None:
        committed = await Groups(cluster).committed(GROUP, self.partitions)
        for partition, acknowledged in self.group_position.items():
            offset = committed[partition].offset if partition in committed else -1
            possible = [acknowledged, *(positions[partition] for positions in self.open_positions)]
            if offset not in possible:
                self.ghost.report("REP-15", f"the group is at {partition}/{offset}, it may be at {possible}")
