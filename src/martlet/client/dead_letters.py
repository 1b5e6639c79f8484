"""Dead letters, looked into and published again where they came from. A dead-letter topic is a topic like any other.

A letter that is published again keeps its story in headers that begin with `martlet-was-dead-`, and begins a new count
of attempts, for every subscription of its topic.
"""

from collections.abc import AsyncIterator, Mapping
from typing import Final, NamedTuple

from martlet.base.ids import TopicPartition
from martlet.client.cluster import Cluster
from martlet.client.fetcher import Fetcher, FetcherOptions
from martlet.client.offsets import offset_ranges
from martlet.client.producer import Producer
from martlet.wire.records.record import Record

PREFIX: Final = "martlet-dead-"
_AGAIN_PREFIX: Final = "martlet-was-dead-"
_BATCH_BYTES_MAX: Final = 256 << 20
_WAIT_MS: Final = 200


class DeadLetter(NamedTuple):
    """One copy, and what its headers say."""

    partition: TopicPartition
    record: Record
    story: Mapping[str, str]

    @property
    def origin(self) -> str:
        """Where it comes from, for people."""
        return f"{self.story.get('topic', '?')}:{self.story.get('partition', '?')}@{self.story.get('offset', '?')}"


async def dead_letters(cluster: Cluster, topic: str) -> AsyncIterator[DeadLetter]:
    """All letters that a topic holds now, partition by partition."""
    info = await cluster.topic(topic)
    ranges = await offset_ranges(cluster, [TopicPartition(topic, index) for index in sorted(info.partitions)])
    for partition, held in ranges.items():
        if not held:
            continue
        async with Fetcher(cluster, FetcherOptions(max_wait_ms=_WAIT_MS)) as fetcher:
            fetcher.assign({partition: held.start})
            while fetcher.positions[partition] < held.stop:
                for fetched in await fetcher.fetch():
                    for record in fetched.records(batch_bytes_max=_BATCH_BYTES_MAX):
                        if record.offset < held.stop:
                            yield DeadLetter(partition, record, _story(record))


def _story(record: Record) -> dict[str, str]:
    return {
        name.removeprefix(PREFIX): (value or b"").decode(errors="replace")
        for name, value in record.headers
        if name.startswith(PREFIX)
    }


async def publish_again(producer: Producer, letter: DeadLetter, topic: str | None = None) -> None:
    """Publish it to its topic, or another one, and return when it is acknowledged; ValueError without an origin."""
    target = topic or letter.story.get("topic")
    if not target:
        raise ValueError(f"{letter.partition}@{letter.record.offset} does not say where it comes from")
    headers = [
        (_AGAIN_PREFIX + name.removeprefix(PREFIX) if name.startswith(PREFIX) else name, value)
        for name, value in letter.record.headers
        if not name.startswith(_AGAIN_PREFIX)
    ]
    record = letter.record
    await (await producer.send(target, record.value, key=record.key, headers=headers))
