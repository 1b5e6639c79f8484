"""The clients of a simulated cluster with transactions: carriers, writers, a filler, and a reader of committed data.

A *carrier* takes messages of one partition of the source, writes a value for each to both targets, and commits the
group's position in the same transaction. Two machines carry the same partition under the same transactional id, so
they fence each other all the time. A *writer* has an id of its own and writes to several partitions. Some transactions
are aborted on purpose, some are left open. All of it is Martlet's own client, unchanged, and goes to a
`TransactionHistory`.
"""

import asyncio
from collections.abc import Sequence
from contextlib import aclosing
from typing import Final

from martlet.base.addresses import Address
from martlet.base.errors import ApiError, ErrorCode, MartletError
from martlet.base.ids import TopicPartition
from martlet.client.admin import Admin, NewTopic
from martlet.client.cluster import Cluster
from martlet.client.errors import ClientError, OutcomeUnknown
from martlet.client.fetcher import Fetcher, FetcherOptions
from martlet.client.groups import Groups
from martlet.client.offsets import LATEST, list_offsets
from martlet.client.options import ClientOptions
from martlet.client.producer import Producer, ProducerOptions
from martlet.client.transaction_state import WhenceOffsets
from martlet.client.transactional_producer import TransactionalOptions, TransactionalProducer
from sim.host import SimHost
from sim.randomness import SimRandomness
from sim.simulated_broker import KAFKA_PORT
from sim.transaction_history import Place, Transaction, TransactionHistory
from sim.world import SimWorld

SOURCE: Final = "source"
TARGETS: Final = ("left", "right")
GROUP: Final = "carriers"
TIMEOUT_MS: Final = 5_000
"""Of a transaction that was left open."""

_OPTIONS: Final = ClientOptions(
    connect_timeout_ms=1_000, request_timeout_ms=2_000, retry_timeout_ms=10_000, metadata_max_age_ms=30_000
)
_PRODUCING: Final = ProducerOptions(linger_ms=2, delivery_timeout_ms=10_000, create_topics=False)
_TRANSACTIONAL: Final = TransactionalOptions(timeout_ms=TIMEOUT_MS, producing=_PRODUCING)
_READ_BYTES_MAX: Final = 1 << 20
_INPUTS_AT_ONCE: Final = 4
_INPUTS_IN_THE_END: Final = 12
_INPUTS_MIN: Final = 20
_PERCENT_ABORTED: Final = 20
_PERCENT_LEFT: Final = 5
_REST_MS: Final = 3_000
"""How long a carrier that was fenced, or failed, stays away at most; the other one is to get something done."""
_REST_FOR_LATENCY: Final = (20, 150)
"""The same for each millisecond that a packet may take, while faults strike and afterwards."""
_PAUSE_MS: Final = 300
"""Between two transactions, at most."""

FAILURES: Final = (ApiError, ClientError, OutcomeUnknown)


class TransactionClients:
    """Everything that talks to the cluster in one run."""

    def __init__(self, world: SimWorld, brokers: Sequence[str], *, partitions: int, latency_ms: int) -> None:
        self.world = world
        self.partitions = partitions
        self._latency_ms = latency_ms
        self.history = TransactionHistory()
        self.sources = [TopicPartition(SOURCE, index) for index in range(partitions)]
        self.targets = [TopicPartition(topic, index) for topic in TARGETS for index in range(partitions)]
        self.topics_exist = False
        self.sending_until_ms = 0
        self.done = 0
        """Transactions whose commit was answered."""
        self.ends: dict[TopicPartition, int] = {}
        """Where the source ends, once it is filled."""
        self.reader_rack = ""
        self.positions: dict[str, int] = {}
        """Where the group stands in the end."""
        self._addresses = [Address(name, KAFKA_PORT) for name in brokers]

    def cluster(self, host: SimHost) -> Cluster:
        return Cluster(self._addresses, _OPTIONS, host.randomness)

    # --- topics and what is in the source

    async def create_topics(self, host: SimHost, configs: dict[str, str], replicas: int) -> None:
        """Once, whatever gets in the way."""
        async with aclosing(self.cluster(host)) as cluster:
            for name in (SOURCE, *TARGETS):
                topic = NewTopic(name=name, partitions=self.partitions, replication_factor=replicas, configs=configs)
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
        self.topics_exist = True

    async def fill(self, host: SimHost) -> None:
        """Put messages into the source, then find out where it ends."""
        draws = self.world.randomness.stream("filler")
        async with (
            aclosing(self.cluster(host)) as cluster,
            Producer(cluster, _PRODUCING, host.clock) as producer,
        ):
            ends: dict[TopicPartition, int] = {}
            while self.world.now_ms < self.sending_until_ms or sum(ends.values()) < _INPUTS_MIN:
                try:
                    for _ in range(1 + draws.below(4)):
                        await producer.send(SOURCE, b"input", partition=draws.below(self.partitions))
                    if self.world.now_ms >= self.sending_until_ms:
                        await producer.flush()
                        found = await list_offsets(cluster, dict.fromkeys(self.sources, LATEST))
                        ends = {partition: entry.offset for partition, entry in found.items()}
                except (ApiError, ClientError):
                    continue
                finally:
                    await asyncio.sleep(draws.below(1_200) / 1000)
        await self._find_ends(host)

    async def _find_ends(self, host: SimHost) -> None:
        """No message comes any more: see where the source ends."""
        while not self.ends:
            try:
                async with aclosing(self.cluster(host)) as cluster:
                    found = await list_offsets(cluster, dict.fromkeys(self.sources, LATEST))
                    self.ends = {partition: entry.offset for partition, entry in found.items()}
            except (ApiError, ClientError):
                await asyncio.sleep(0.5)

    # --- carriers

    async def carry(self, host: SimHost, number: int) -> None:
        """Carry one partition of the source over until its end, in sessions that each begin with a new producer."""
        source = self.sources[number]
        name = f"{host.name}.{host.starts}.{number}"
        draws = self.world.randomness.stream(f"carrier {name}")
        await self._wait_for_topics()
        while True:
            await asyncio.sleep(draws.below(self._rest_ms) / 1000)
            try:
                async with (
                    aclosing(self.cluster(host)) as cluster,
                    TransactionalProducer(cluster, f"carrier-{number}", _TRANSACTIONAL, host.clock) as producer,
                ):
                    if await self._carry_on(cluster, producer, source, name, draws):
                        return
            except FAILURES as error:
                self.world.scheduler.note("carrier", f"{name} {type(error).__name__}")

    async def _carry_on(
        self, cluster: Cluster, producer: TransactionalProducer, source: TopicPartition, name: str, draws: SimRandomness
    ) -> bool:
        """One session; whether the end of the source was reached."""
        committed = await Groups(cluster).committed(GROUP, [source])
        position = committed[source].offset if source in committed else 0
        async with Fetcher(cluster, FetcherOptions(max_wait_ms=300, read_committed=True)) as fetcher:
            fetcher.assign({source: position})
            while position < self.ends.get(source, 1 << 62):
                offsets = [
                    record.offset
                    for fetched in await fetcher.fetch()
                    for record in fetched.records(batch_bytes_max=_READ_BYTES_MAX)
                ][: self._inputs_at_once(draws)]
                if not offsets:
                    continue
                transaction = self.history.begin(name)
                producer.begin()
                for offset in offsets:
                    await self._write(producer, transaction, draws, Place(str(source), offset))
                await producer.send_offsets({source: offsets[-1] + 1}, WhenceOffsets(GROUP))
                self.history.leaving(transaction, str(source), offsets[-1] + 1)
                draw = draws.below(100)
                if draw < _PERCENT_LEFT:
                    return False
                if await self._end(producer, transaction, is_commit=draw >= _PERCENT_LEFT + _PERCENT_ABORTED):
                    position = offsets[-1] + 1
                fetcher.assign({source: position})
                await asyncio.sleep(draws.below(_PAUSE_MS) / 1000)
        return True

    @property
    def _rest_ms(self) -> int:
        return _REST_MS + _REST_FOR_LATENCY[self.world.now_ms >= self.sending_until_ms] * self._latency_ms

    def _inputs_at_once(self, draws: SimRandomness) -> int:
        """Few, so that there are many transactions; what is left when the time is over is carried in large ones."""
        is_over = self.world.now_ms >= self.sending_until_ms
        return _INPUTS_IN_THE_END if is_over else 1 + draws.below(_INPUTS_AT_ONCE)

    async def _write(
        self, producer: TransactionalProducer, transaction: Transaction, draws: SimRandomness, source: Place
    ) -> None:
        for topic in TARGETS:
            target = TopicPartition(topic, draws.below(self.partitions))
            value = self.history.writing(transaction, str(target), source)
            await producer.send(topic, value, partition=target.partition)

    async def _end(self, producer: TransactionalProducer, transaction: Transaction, *, is_commit: bool) -> bool:
        """Whether it was committed. A commit that fails before it is asked for is followed by an abort."""
        if is_commit:
            self.history.committing(transaction)
            try:
                await producer.commit()
            except (ApiError, ClientError):
                await producer.abort()
                self.history.aborted(transaction)
                return False
            self.history.committed(transaction)
            self.done += 1
            return True
        await producer.abort()
        self.history.aborted(transaction)
        return False

    # --- writers

    async def write(self, host: SimHost) -> None:
        """Transactions over some partitions of the targets, from nowhere, until the time is over."""
        name = f"{host.name}.{host.starts}.writer"
        draws = self.world.randomness.stream(f"writer {name}")
        await self._wait_for_topics()
        while self.world.now_ms < self.sending_until_ms:
            await asyncio.sleep(draws.below(self._rest_ms) / 1000)
            try:
                async with (
                    aclosing(self.cluster(host)) as cluster,
                    TransactionalProducer(cluster, f"writer-{host.name}", _TRANSACTIONAL, host.clock) as producer,
                ):
                    while self.world.now_ms < self.sending_until_ms:
                        transaction = self.history.begin(name)
                        producer.begin()
                        for _ in range(1 + draws.below(5)):
                            target = self.targets[draws.below(len(self.targets))]
                            value = self.history.writing(transaction, str(target))
                            await producer.send(target.topic, value, partition=target.partition)
                            await asyncio.sleep(draws.below(30) / 1000)
                        if draws.below(100) < _PERCENT_LEFT:
                            break
                        await self._end(producer, transaction, is_commit=draws.below(100) >= _PERCENT_ABORTED)
                        await asyncio.sleep(draws.below(2 * _PAUSE_MS) / 1000)
            except FAILURES as error:
                self.world.scheduler.note("writer", f"{name} {type(error).__name__}")

    async def _wait_for_topics(self) -> None:
        while not self.topics_exist:  # noqa: ASYNC110 - processes of several machines wait, each on its own loop
            await asyncio.sleep(0.1)

    # --- readers

    async def follow(self, host: SimHost) -> None:
        """Read committed data along, whatever happens."""
        positions = dict.fromkeys(self.targets, 0)
        await self._wait_for_topics()
        while True:
            for partition in self.targets:
                self.history.sought(host.name, str(partition))
            try:
                async with aclosing(self.cluster(host)) as cluster:
                    await self._read_on(host.name, cluster, positions)
            except ApiError as error:
                if error.code == ErrorCode.OFFSET_OUT_OF_RANGE:
                    self.history.complain(f"{host.name} got {error} at {positions}")
            except ClientError:
                pass
            await asyncio.sleep(0.5)

    async def _read_on(self, reader: str, cluster: Cluster, positions: dict[TopicPartition, int]) -> None:
        options = FetcherOptions(max_wait_ms=1_000, rack=self.reader_rack, read_committed=True)
        async with Fetcher(cluster, options) as fetcher:
            fetcher.assign(positions)
            while True:
                for fetched in await fetcher.fetch():
                    partition = fetched.partition
                    for record in fetched.records(batch_bytes_max=_READ_BYTES_MAX):
                        self.history.saw(reader, str(partition), record.offset, record.value or b"")
                    positions[partition] = fetched.next_position

    async def read_all(self, host: SimHost) -> None:
        """Read all committed data, and where the group stands, once all is quiet."""
        while True:
            found: dict[TopicPartition, list[tuple[int, bytes]]] = {partition: [] for partition in self.targets}
            try:
                async with aclosing(self.cluster(host)) as cluster:
                    await self._read_to_end(cluster, found)
                    committed = await Groups(cluster).committed(GROUP, self.sources)
                break
            except MartletError:
                await asyncio.sleep(1)
        for partition, messages in found.items():
            self.history.final(str(partition), messages)
        self.positions = {str(partition): entry.offset for partition, entry in committed.items()}

    async def _read_to_end(self, cluster: Cluster, found: dict[TopicPartition, list[tuple[int, bytes]]]) -> None:
        ends = await list_offsets(cluster, dict.fromkeys(self.targets, LATEST))
        async with Fetcher(cluster, FetcherOptions(max_wait_ms=200, read_committed=True)) as fetcher:
            fetcher.assign(dict.fromkeys(self.targets, 0))
            while any(fetcher.positions[partition] < ends[partition].offset for partition in self.targets):
                for fetched in await fetcher.fetch():
                    for record in fetched.records(batch_bytes_max=_READ_BYTES_MAX):
                        found[fetched.partition].append((record.offset, record.value or b""))

    # --- the judgement

    def judge(self) -> list[str]:
        """Everything that is wrong with what clients were answered and given."""
        inputs = [Place(str(partition), offset) for partition, end in self.ends.items() for offset in range(end)]
        return [str(violation) for violation in self.history.judge(self.positions, inputs)]
