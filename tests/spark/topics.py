"""Topics for tests: made, filled, deleted and read back through our own client, from plain functions."""

import itertools
from collections.abc import Iterable, Mapping, Sequence
from types import TracebackType
from typing import NamedTuple, Self

from martlet.base.ids import TopicPartition
from martlet.client.admin import Admin, NewTopic
from martlet.client.cluster import Cluster
from martlet.client.fetcher import Fetcher
from martlet.client.groups import Groups
from martlet.client.lag import partition_lags
from martlet.client.offsets import offset_ranges
from martlet.client.producer import Producer, ProducerOptions
from martlet.spark.blocking import BlockingLoop
from martlet.spark.connection_options import ConnectionOptions
from martlet.wire.compression import Compression

_NUMBERS = itertools.count(1)


class Message(NamedTuple):
    """One message as it is published, or as it is found."""

    value: bytes | None
    key: bytes | None = None
    partition: int = 0
    timestamp_ms: int | None = None
    headers: Sequence[tuple[str, bytes | None]] = ()


class Topics:
    """The topics of one broker."""

    def __init__(self, bootstrap: str) -> None:
        self.bootstrap = bootstrap
        self._loop = BlockingLoop()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._loop.run(self._close())

    async def _cluster(self) -> Cluster:
        return await self._loop.cluster(ConnectionOptions(bootstrap=self.bootstrap), first_contact_ms=10_000)

    async def _close(self) -> None:
        await (await self._cluster()).aclose()

    def new(self, partitions: int = 1, configs: Mapping[str, str] | None = None, *, name: str | None = None) -> str:
        """A new topic with a name of its own."""
        name = name or f"topic-{next(_NUMBERS)}"

        async def create() -> None:
            cluster = await self._cluster()
            await Admin(cluster).create_topic(NewTopic(name=name, partitions=partitions, configs=dict(configs or {})))

        self._loop.run(create())
        return name

    def add_partitions(self, name: str, total: int) -> None:
        async def add() -> None:
            await Admin(await self._cluster()).grow_topic(name, partitions=total)

        self._loop.run(add())

    def delete(self, name: str) -> None:
        async def delete() -> None:
            await Admin(await self._cluster()).delete_topic(name)

        self._loop.run(delete())

    def delete_before(self, name: str, partition: int, offset: int) -> None:
        async def delete() -> None:
            await Admin(await self._cluster()).delete_records({TopicPartition(name, partition): offset})

        self._loop.run(delete())

    def publish(
        self,
        name: str,
        messages: Iterable[Message],
        *,
        compression: Compression = Compression.NONE,
        batch_bytes: int = 262_144,
    ) -> None:
        """Publish and wait for all; the messages of one partition keep their order."""

        async def publish() -> None:
            options = ProducerOptions(compression=compression, batch_bytes=batch_bytes)
            async with Producer(await self._cluster(), options) as producer:
                for message in messages:
                    await producer.send(
                        name,
                        message.value,
                        key=message.key,
                        headers=message.headers,
                        partition=message.partition,
                        timestamp_ms=message.timestamp_ms,
                    )
                await producer.flush()
                if producer.statistics.first_error is not None:
                    raise producer.statistics.first_error

        self._loop.run(publish())

    def fill(self, name: str, count: int, *, partitions: int = 1, first: int = 0) -> None:
        """Numbered messages, dealt to the partitions in turn."""
        self.publish(
            name,
            [
                Message(f"value-{number}".encode(), f"key-{number}".encode(), number % partitions)
                for number in range(first, first + count)
            ],
        )

    def contents(self, name: str) -> dict[int, list[Message]]:
        """Every message that is there, by partition, in order."""

        async def read() -> dict[int, list[Message]]:
            cluster = await self._cluster()
            await cluster.refresh([name])
            info = await cluster.topic(name)
            wanted = [TopicPartition(name, index) for index in info.partitions]
            held = await offset_ranges(cluster, wanted)
            found: dict[int, list[Message]] = {index: [] for index in info.partitions}
            async with Fetcher(cluster) as fetcher:
                fetcher.assign({partition: held[partition].start for partition in wanted})
                while any(fetcher.positions[partition] < held[partition].stop for partition in wanted):
                    for fetched in await fetcher.fetch():
                        found[fetched.partition.partition] += [
                            Message(
                                record.value,
                                record.key,
                                fetched.partition.partition,
                                record.timestamp_ms,
                                record.headers,
                            )
                            for record in fetched.records(batch_bytes_max=1 << 28)
                        ]
            return found

        return self._loop.run(read())

    def values(self, name: str) -> list[bytes | None]:
        """The values of all messages, in no particular order between partitions."""
        return [message.value for messages in self.contents(name).values() for message in messages]

    def commit(self, group: str, offsets: Mapping[TopicPartition, int]) -> None:
        """As a consumer of the group would, that has read so far."""

        async def commit() -> None:
            await Groups(await self._cluster()).commit(group, offsets)

        self._loop.run(commit())

    def group_lag(self, group: str, now_ms: int = 0) -> dict[TopicPartition, int | None]:
        """What `martlet group lag` shows, in messages."""

        async def lag() -> dict[TopicPartition, int | None]:
            cluster = await self._cluster()
            committed = await Groups(cluster).committed(group)
            lags = await partition_lags(cluster, committed, (), now_ms)
            return {found.partition: found.messages for found in lags}

        return self._loop.run(lag())
