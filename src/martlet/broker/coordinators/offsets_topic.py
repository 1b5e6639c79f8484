"""`__consumer_offsets`, the internal topic that holds everything about groups: made on first need, and then looked up.

Its number of partitions decides which of them holds a group and is fixed once it exists; the setting counts only when
it is made.
"""

import asyncio
from typing import Final

from martlet.base.errors import ApiError, ErrorCode
from martlet.base.ids import BrokerId
from martlet.broker.administration.topic_admin import TopicAdmin
from martlet.cluster.image import MetadataImage
from martlet.cluster.topic_decisions import TopicWish
from martlet.cluster.topic_names import CONSUMER_OFFSETS_TOPIC
from martlet.coordinator.shard_of import shard_of

BATCH_BYTES_MAX: Final = 16 << 20
"""What one change of a group may take in the log."""

_CONFIGS: Final = {
    "cleanup.policy": "compact",
    "segment.bytes": str(100 << 20),
    "compression.type": "producer",
    "max.message.bytes": str(BATCH_BYTES_MAX),
    # With a single replica one is enough: no partition is asked for more than it has.
    "min.insync.replicas": "2",
}


class OffsetsTopic:
    """Knows the topic, and makes it when it is not there."""

    name: Final = CONSUMER_OFFSETS_TOPIC

    def __init__(
        self, image: MetadataImage, admin: TopicAdmin, partition_count: int, replication_factor: int = 1
    ) -> None:
        """`replication_factor` is a wish: with fewer brokers, as many as there are."""
        self._image = image
        self._admin = admin
        self._wished_partition_count = partition_count
        self._wished_factor = replication_factor
        self._making: asyncio.Task[None] | None = None

    @property
    def partition_count(self) -> int:
        """0 while there is no such topic."""
        topic = self._image.topic(self.name)
        return topic.partition_count if topic is not None else 0

    def has_topic(self, name: str) -> bool:
        """Whether there is a topic of this name."""
        return self._image.topic(name) is not None

    def partition_of(self, group_id: str) -> int:
        """The partition of a group; raises COORDINATOR_NOT_AVAILABLE while there is no topic."""
        count = self.partition_count
        if not count:
            raise ApiError(ErrorCode.COORDINATOR_NOT_AVAILABLE, f"{self.name} does not exist")
        return shard_of(group_id, count)

    def leader_of(self, index: int) -> BrokerId | None:
        """Which broker leads a partition."""
        record = self._image.partition(self.name, index)
        return record.leader if record is not None else None

    async def ensure(self) -> None:
        """Return when the topic exists; any number of callers make it once. Raises COORDINATOR_NOT_AVAILABLE."""
        if self.partition_count:
            return
        if self._making is None or self._making.done():
            self._making = asyncio.create_task(self._make(), name="martlet-make-offsets-topic")
        try:
            # Whoever asked first may be cancelled, the others still wait.
            await asyncio.shield(self._making)
        except ApiError as error:
            raise ApiError(ErrorCode.COORDINATOR_NOT_AVAILABLE, f"{self.name} cannot be made: {error}") from error

    async def aclose(self) -> None:
        """Wait for what is under way."""
        if self._making is not None:
            self._making.cancel()
            await asyncio.gather(self._making, return_exceptions=True)

    async def _make(self) -> None:
        wish = TopicWish(
            name=self.name,
            partition_count=self._wished_partition_count,
            replication_factor=self._wished_factor,
            configs=_CONFIGS,
            by_broker=True,
        )
        try:
            await self._admin.create_topic(wish)
        except ApiError as error:
            if error.code is not ErrorCode.TOPIC_ALREADY_EXISTS:
                raise
