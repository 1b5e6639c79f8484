"""What a stream knows of the topics it reads: their partitions and ids, and when it has to check them again.

How it works: the topics are read again when that was done a second ago. What is asked of them meanwhile runs under
`unless_changed`: a client waits a minute for a topic that it cannot find, because it may have been created this moment;
here the topics are read again and again during that time, and a question about topics that are not the same any
more is given up at once.

Owned by the planner of one stream, on its loop. Proved by: tests/spark/test_messages_lost.py
"""

import asyncio
from collections.abc import Coroutine
from typing import Any, Final, TypeVar

from martlet.base.clock import Clock
from martlet.base.ids import TopicPartition
from martlet.client.cluster import Cluster
from martlet.spark.planning import subscribed_partitions, subscribed_topics, topic_ids
from martlet.spark.subscription import Subscription

_AGE_MS: Final = 1_000
"""How soon new partitions and topics are noticed."""

T = TypeVar("T")


class TopicWatch:
    """The topics of one subscription as they were when last read."""

    def __init__(self, subscription: Subscription, clock: Clock) -> None:
        self.partitions: list[TopicPartition] = []
        self.ids: dict[str, str] = {}
        self._subscription = subscription
        self._clock = clock
        self._refreshed_at_ms: int | None = None

    @property
    def is_old(self) -> bool:
        return self._refreshed_at_ms is None or self._clock.monotonic_ms() - self._refreshed_at_ms > _AGE_MS

    async def refresh(self, cluster: Cluster) -> bool:
        """Ask what there is now; True when it is not what there was."""
        before = (self.partitions, self.ids)
        topics = await subscribed_topics(cluster, self._subscription)
        self.partitions = sorted(subscribed_partitions(topics, self._subscription))
        self.ids = topic_ids(topics)
        self._refreshed_at_ms = self._clock.monotonic_ms()
        return before != (self.partitions, self.ids)

    async def unless_changed(self, cluster: Cluster, work: Coroutine[Any, Any, T]) -> T | None:
        """The result of the work; None when it was given up because the topics are not the same any more."""
        task = asyncio.create_task(work)
        try:
            while True:
                done, _ = await asyncio.wait([task], timeout=_AGE_MS / 1000)
                if done:
                    return task.result()
                if await self.refresh(cluster):
                    return None
        finally:
            task.cancel()
