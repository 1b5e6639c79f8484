"""A task's half of writing: Arrow record batches into the producer, partition by partition.

How it works: rows are grouped by the partition they go to and handed to the producer in bulk; it batches, sends,
retries and numbers them, so that a repeated request writes nothing twice. Rows without key and partition go to one
partition for each Arrow batch, another one for the next. A key goes where every Kafka client would put it.

Invariants:
SPK-15 Rows of one Arrow batch that go to the same partition keep their order.
SPK-16 `finish` returns only when every row is written; otherwise it raises what kept one from it.

Proved by: tests/spark/test_writing.py
"""

from collections import Counter, defaultdict
from typing import Any, Final

from martlet.base.clock import SystemClock
from martlet.base.errors import ApiError, ErrorCode
from martlet.base.ids import TopicPartition
from martlet.client.cluster import Cluster
from martlet.client.metadata import TopicInfo
from martlet.client.partitioner import partition_for_key
from martlet.client.producer import Producer, ProducerOptions
from martlet.spark.failures import ColumnsRefused
from martlet.spark.records_from_arrow import RowColumns, bytes_of, headers_of, instants_of, values_of
from martlet.spark.write_options import WriteOptions
from martlet.wire.records.encode import RecordFields

_KEYS_KEPT_MAX: Final = 65_536

RowsByPartition = dict[TopicPartition, list[RecordFields]]


class Publishing:
    """Publishes the rows of one task; used on the loop between `start` and `aclose`."""

    def __init__(self, cluster: Cluster, columns: RowColumns, options: WriteOptions) -> None:
        self._cluster = cluster
        self._columns = columns
        self._options = options
        self._clock = SystemClock()
        self._written: Counter[TopicPartition] = Counter()
        self._partition_of_key: dict[tuple[str, bytes], int] = {}
        self._turn: dict[str, int] = {}
        self._producer = Producer(
            cluster,
            ProducerOptions(
                compression=options.compression,
                batch_bytes=options.batch_bytes,
                delivery_timeout_ms=options.delivery_timeout_ms,
                create_topics=options.create_topics,
            ),
        )

    async def start(self) -> None:
        await self._producer.start()

    async def publish(self, batch: Any) -> None:
        """Accept the rows of one Arrow record batch; waits while the buffer is full."""
        for target, records in (await self._sorted_out(batch)).items():
            self._written[target] += len(records)
            await self._producer.send_many(target, records)
        self._raise_first_error()

    async def finish(self) -> dict[TopicPartition, int]:
        """Wait for everything; how many rows went where (SPK-16)."""
        await self._producer.flush()
        self._raise_first_error()
        return dict(self._written)

    async def aclose(self) -> None:
        await self._producer.aclose(deliver=False)

    def _raise_first_error(self) -> None:
        if self._producer.statistics.first_error is not None:
            raise self._producer.statistics.first_error

    async def _sorted_out(self, batch: Any) -> RowsByPartition:
        """The rows by the partition they go to, each group in the order of the rows (SPK-15)."""
        columns = self._columns
        now_ms = self._clock.now_ms()
        instants = [now_ms] * batch.num_rows
        if columns.timestamp is not None:
            instants = [now_ms if at is None else at for at in instants_of(batch, columns.timestamp)]
        keys = bytes_of(batch, columns.key)
        records = list(
            zip(instants, keys, bytes_of(batch, columns.value), headers_of(batch, columns.headers), strict=True)
        )
        topics = self._topics(batch)
        infos = {name: await self._topic(name) for name in dict.fromkeys(topics)}
        for name in infos:
            self._turn[name] = self._turn.get(name, self._cluster.randomness.below(1 << 16)) + 1
        wanted = values_of(batch, columns.partition) if columns.partition is not None else None
        if wanted is None and columns.key is None and len(infos) == 1:
            only = next(iter(infos.values()))
            return {TopicPartition(only.name, self._keyless(only)): records}
        groups: RowsByPartition = defaultdict(list)
        for row, record in enumerate(records):
            info = infos[topics[row]]
            number = wanted[row] if wanted is not None else None
            if number is None:
                key = keys[row]
                number = self._keyless(info) if key is None else self._of_key(info, key)
            elif number not in info.partitions:
                raise ColumnsRefused(
                    f"column partition says {number}, but topic {info.name!r} has {len(info.partitions)} partitions, "
                    "numbered from 0"
                )
            groups[TopicPartition(info.name, number)].append(record)
        return groups

    def _topics(self, batch: Any) -> list[str]:
        """The topic of each row; the option is stronger than the column."""
        if self._options.topic is not None or self._columns.topic is None:
            return [self._options.topic or ""] * batch.num_rows
        names = values_of(batch, self._columns.topic)
        if None in names:
            raise ColumnsRefused("a row has null in its column topic; give every row a topic, or use the option topic")
        return names

    async def _topic(self, name: str) -> TopicInfo:
        async def ask() -> TopicInfo:
            return await self._cluster.topic(name, create=self._options.create_topics)

        try:
            return await self._cluster.retry(ask, topics=[name]) if name not in self._turn else await ask()
        except ApiError as error:
            if error.code != ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
                raise
            raise ColumnsRefused(
                f"there is no topic {name!r}, and the broker creates none by itself; create it with "
                f"`martlet topic create {name}`"
            ) from error

    def _keyless(self, info: TopicInfo) -> int:
        led = [index for index, partition in info.partitions.items() if partition.leader >= 0] or list(info.partitions)
        return led[self._turn[info.name] % len(led)]

    def _of_key(self, info: TopicInfo, key: bytes) -> int:
        known = self._partition_of_key.get((info.name, key))
        if known is None:
            if len(self._partition_of_key) >= _KEYS_KEPT_MAX:
                self._partition_of_key.clear()
            known = self._partition_of_key[info.name, key] = partition_for_key(key, len(info.partitions))
        return known
