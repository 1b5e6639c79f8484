"""The loads of `martlet bench`: what is sent and fetched while the clock runs."""

import asyncio
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from martlet.base.clock import SystemClock
from martlet.base.ids import TopicPartition
from martlet.base.randomness import SystemRandomness
from martlet.cli.latency_histogram import LatencyHistogram
from martlet.cli.progress import Progress
from martlet.client.fetcher import Fetcher, FetcherOptions
from martlet.client.offsets import offset_ranges
from martlet.client.producer import Producer, ProducerOptions
from martlet.wire.compression import Compression

if TYPE_CHECKING:
    from martlet.client.cluster import Cluster

_ACKS: Final = {"all": -1, "1": 1}
_SENT_AT_ONCE: Final = 500
_ANSWER_SECONDS_MAX: Final = 10.0
_QUIET_MS: Final = 1_000


class Moved(NamedTuple):
    """How much went through in how long."""

    messages: int
    size_bytes: int
    seconds: float

    def to_json(self) -> dict[str, Any]:
        seconds = max(self.seconds, 1e-9)
        return {
            "messages": self.messages,
            "bytes": self.size_bytes,
            "seconds": round(self.seconds, 3),
            "messages_per_second": round(self.messages / seconds),
            "bytes_per_second": round(self.size_bytes / seconds),
        }


async def publish_load(
    cluster: "Cluster", topic: str, messages: int, size: int, *, acks: str, compression: str
) -> Moved:
    """Batches of the same random values, to all partitions in turn."""
    info = await cluster.topic(topic)
    options = ProducerOptions(
        acks=_ACKS[acks],
        idempotent=acks == "all",
        compression=Compression[compression.upper()],
        delivery_timeout_ms=cluster.options.request_timeout_ms,
    )
    value = SystemRandomness().token(size)
    partitions = [TopicPartition(topic, index) for index in info.partitions]
    loop, clock = asyncio.get_running_loop(), SystemClock()
    with Progress(quiet_ms=_QUIET_MS) as progress:
        async with Producer(cluster, options) as producer:
            began = loop.time()
            for turn, start in enumerate(range(0, messages, _SENT_AT_ONCE)):
                progress.show(f"{start:,} of {messages:,} messages sent")
                count = min(_SENT_AT_ONCE, messages - start)
                record = (clock.now_ms(), None, value, ())
                await producer.send_many(partitions[turn % len(partitions)], [record] * count)
            await producer.flush()
            seconds = loop.time() - began
            if producer.statistics.first_error is not None:
                raise producer.statistics.first_error
            return Moved(producer.statistics.delivered, producer.statistics.delivered * size, seconds)


async def consume_load(cluster: "Cluster", topic: str, messages: int | None) -> Moved:
    """All partitions at once, up to where they ended at the start; messages are counted by their offsets."""
    info = await cluster.topic(topic)
    held = await offset_ranges(cluster, [TopicPartition(topic, index) for index in info.partitions])
    loop = asyncio.get_running_loop()
    read = size_bytes = 0
    with Progress(quiet_ms=_QUIET_MS) as progress:
        async with Fetcher(cluster, FetcherOptions()) as fetcher:
            fetcher.assign({partition: offsets.start for partition, offsets in held.items() if offsets})
            began = loop.time()
            while fetcher.positions and (messages is None or read < messages):
                for fetched in await fetcher.fetch():
                    read += fetched.next_position - fetched.position
                    size_bytes += len(fetched.data)
                fetcher.unassign([one for one, position in fetcher.positions.items() if position >= held[one].stop])
                progress.show(f"{read:,} messages read")
            return Moved(read, size_bytes, loop.time() - began)


async def latency_load(
    cluster: "Cluster", topic: str, messages: int, size: int, *, rate: float, acks: str
) -> tuple[LatencyHistogram, LatencyHistogram]:
    """One message at a time; when each was acknowledged, and when a reader that was waiting had it."""
    await cluster.topic(topic)
    partition = TopicPartition(topic, 0)
    value = SystemRandomness().token(size)
    sent_at: dict[int, float] = {}
    acknowledged, delivered = LatencyHistogram(), LatencyHistogram()
    loop = asyncio.get_running_loop()
    end = (await offset_ranges(cluster, [partition]))[partition].stop
    options = ProducerOptions(acks=_ACKS[acks], idempotent=acks == "all", linger_ms=0)
    fetching, publishing = Fetcher(cluster, FetcherOptions()), Producer(cluster, options)
    with Progress(quiet_ms=_QUIET_MS) as progress:
        async with fetching as fetcher, publishing as producer:
            fetcher.assign({partition: end})
            first = end

            async def read() -> None:
                arrived_at: dict[int, float] = {}
                position = first
                while delivered.count < messages:
                    for fetched in await fetcher.fetch():
                        now = loop.time()
                        arrived_at |= dict.fromkeys(range(position, fetched.next_position), now)
                        position = fetched.next_position
                    for offset in [one for one in arrived_at if one in sent_at]:
                        delivered.add((arrived_at.pop(offset) - sent_at.pop(offset)) * 1000)

            reading = asyncio.create_task(read())
            try:
                began = loop.time()
                for number in range(messages):
                    if number % max(1, int(rate)) == 0:
                        progress.show(f"{number:,} of {messages:,} messages sent")
                    at = began + number / rate
                    if at > loop.time():
                        await asyncio.sleep(at - loop.time())
                        at = loop.time()
                    # Else the message before was slow, and this one's time counts from when it was due.
                    place = await (await producer.send(topic, value, partition=0))
                    acknowledged.add((loop.time() - at) * 1000)
                    sent_at[place.offset] = at
                async with asyncio.timeout(_ANSWER_SECONDS_MAX):
                    await reading
            finally:
                reading.cancel()
    return acknowledged, delivered
