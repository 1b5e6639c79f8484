"""A broker in the test's own event loop, with a topic, to use its queues as the doors do."""

import asyncio
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from martlet.base.errors import ApiError
from martlet.broker.app import BrokerApp
from martlet.broker.ground.settings import BrokerSettings
from martlet.broker.queueing.doors import PartitionQueue
from martlet.broker.queueing.subscription_admin import SubscriptionWish
from martlet.broker.services import BrokerServices
from martlet.cluster.topic_decisions import TopicWish
from martlet.wire.batch import build_batch, read_batch_header
from martlet.wire.records.record import Record, read_records


class Running:
    """Started and stopped by the test, as often as it likes."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self.app = self._made()

    def _made(self) -> BrokerApp:
        address = "127.0.0.1:0"
        return BrokerApp(BrokerSettings(data=str(self._path), broker_id=1, kafka=address, operations=address))

    @property
    def services(self) -> BrokerServices:
        assert self.app.services is not None
        return self.app.services

    async def restart(self) -> None:
        await self.app.stop()
        self.app = self._made()
        await self.app.start()

    async def topic(self, name: str = "t", partitions: int = 1, **configs: str) -> None:
        settings = {key.replace("_", "."): value for key, value in configs.items()}
        await self.services.topic_admin.create_topic(TopicWish(name=name, partition_count=partitions, configs=settings))

    async def publish(self, *values: bytes, topic: str = "t", partition: int = 0, **batch: Any) -> int:
        """One batch; the offset after it."""
        found = self.services.partitions.get(topic, partition)
        now_ms = self.services.clock.now_ms()
        raw = build_batch([(now_ms, b"key", value, [("h", b"1")]) for value in values], **batch)
        view = memoryview(bytearray(raw))
        appended = found.append(view, read_batch_header(view), now_ms=now_ms)
        while found.high_watermark <= appended.last_offset:
            await asyncio.sleep(0.002)
        return appended.last_offset + 1

    async def subscribe(self, name: str = "work", topic: str = "t", **settings: str) -> PartitionQueue:
        given = {"start": "earliest", **{key.replace("_", "."): value for key, value in settings.items()}}
        await self.services.queues.admin.create(SubscriptionWish(name, [topic], settings=given))
        return await self.queue(name, topic)

    async def queue(self, name: str = "work", topic: str = "t", partition: int = 0) -> PartitionQueue:
        """The queue, as soon as it is served."""
        record = self.services.image.topic(topic)
        assert record is not None
        for _ in range(1_000):
            try:
                return self.services.queues.find(record.id, partition, name)
            except ApiError as error:
                refusal = error
                await asyncio.sleep(0.005)
        raise refusal

    async def all_of(self, topic: str, at_least: int = 1) -> list[Record]:
        """What a topic holds, once there is so much."""
        partition = self.services.partitions.get(topic, 0)
        for _ in range(1_000):
            if partition.high_watermark >= at_least:
                break
            await asyncio.sleep(0.005)
        piece = partition.log.locate(0, max_bytes=1 << 20, end_offset=partition.high_watermark, at_least_one=True)
        return read_records(piece.read(), 1 << 20)


def values_of(batches: Sequence[bytes]) -> list[bytes | None]:
    return [record.value for batch in batches for record in read_records(batch, 1 << 20, check_crc=True)]
