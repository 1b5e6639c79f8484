"""The internal topic under a coordinator: created on first need.

Its number of partitions decides which of them holds a key, by Kafka's arithmetic, and is fixed once the topic exists;
the wanted number counts only when it is created.

Proved by: tests/unit/broker/coordinators/test_internal_topic.py,
tests/unit/broker/coordinators/test_coordinator_host.py
"""

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final

from martlet.base.errors import ApiError, ErrorCode
from martlet.base.ids import BrokerId
from martlet.broker.administration.topic_admin import TopicAdmin
from martlet.cluster.image import MetadataImage
from martlet.cluster.topic_decisions import TopicWish

BATCH_BYTES_MAX: Final = 16 << 20
"""What one operation of a machine may write to the log."""

STATE_TOPIC_CONFIGS: Final = {
    "cleanup.policy": "compact",
    "segment.bytes": str(100 << 20),
    "compression.type": "producer",
    "max.message.bytes": str(BATCH_BYTES_MAX),
    # With a single replica one is enough: no partition is asked for more than it has.
    "min.insync.replicas": "2",
}
"""Of a topic in which the newest record of each key is the state."""

_WORD_MASK: Final = 0xFFFF_FFFF
_POSITIVE_MASK: Final = 0x7FFF_FFFF


def java_hash(text: str) -> int:
    """Java's `String.hashCode` as an unsigned 32-bit number: over UTF-16 code units, not characters."""
    units = text.encode("utf-16-le", "surrogatepass")
    value = 0
    for low, high in zip(units[::2], units[1::2], strict=True):
        value = (31 * value + (high << 8 | low)) & _WORD_MASK
    return value


def partition_of_key(key: str, partition_count: int) -> int:
    """The partition of an internal topic with `partition_count` that holds everything about `key`."""
    return (java_hash(key) & _POSITIVE_MASK) % partition_count


@dataclass(frozen=True, slots=True)
class InternalTopicSpec:
    """What an internal topic is to be like."""

    name: str
    partition_count: int
    replication_factor: int = 1
    """With fewer brokers, as many as there are."""
    configs: Mapping[str, str | None] | None = None
    partition_rule: Callable[[str, int], int] = partition_of_key


class InternalTopic:
    """Knows the topic, and creates it when it does not exist."""

    def __init__(self, spec: InternalTopicSpec, image: MetadataImage, admin: TopicAdmin) -> None:
        self.name = spec.name
        self._spec = spec
        self._image = image
        self._admin = admin
        self._creating: asyncio.Task[None] | None = None

    @property
    def partition_count(self) -> int:
        """0 while there is no such topic."""
        topic = self._image.topic(self.name)
        return topic.partition_count if topic is not None else 0

    def has_topic(self, name: str) -> bool:
        """Whether there is a topic of this name."""
        return self._image.topic(name) is not None

    def partition_of(self, key: str) -> int:
        """The partition of a key; raises COORDINATOR_NOT_AVAILABLE while there is no topic."""
        count = self.partition_count
        if not count:
            raise ApiError(ErrorCode.COORDINATOR_NOT_AVAILABLE, f"{self.name} does not exist")
        return self._spec.partition_rule(key, count)

    def leader_of(self, index: int) -> BrokerId | None:
        """Which broker leads a partition."""
        record = self._image.partition(self.name, index)
        return record.leader if record is not None else None

    async def ensure(self) -> None:
        """Return when the topic exists; any number of callers create it once. Raises COORDINATOR_NOT_AVAILABLE."""
        if self.partition_count:
            return
        if self._creating is None or self._creating.done():
            self._creating = asyncio.create_task(self._create(), name=f"martlet-create-{self.name}")
        try:
            # The caller that started it may be cancelled, the others still wait.
            await asyncio.shield(self._creating)
        except ApiError as error:
            raise ApiError(ErrorCode.COORDINATOR_NOT_AVAILABLE, f"{self.name} cannot be created: {error}") from error

    async def aclose(self) -> None:
        """End what is under way."""
        if self._creating is not None:
            self._creating.cancel()
            await asyncio.gather(self._creating, return_exceptions=True)

    async def _create(self) -> None:
        wish = TopicWish(
            name=self.name,
            partition_count=self._spec.partition_count,
            replication_factor=self._spec.replication_factor,
            configs=STATE_TOPIC_CONFIGS if self._spec.configs is None else self._spec.configs,
            by_broker=True,
        )
        try:
            await self._admin.create_topic(wish)
        except ApiError as error:
            if error.code is not ErrorCode.TOPIC_ALREADY_EXISTS:
                raise
