"""What a stream has processed, committed to a consumer group, so that its lag is seen like any consumer's.

Invariants:
SPK-7 Nothing that goes wrong here reaches the query; it is logged, once for each kind of trouble.
"""

import asyncio
import logging
from collections.abc import Mapping
from typing import Final

from martlet.base.errors import ApiError
from martlet.base.ids import TopicPartition
from martlet.client.cluster import Cluster
from martlet.client.errors import ClientError
from martlet.client.groups import Groups

logger = logging.getLogger(__name__)

_COMMIT_SECONDS: Final = 5


class GroupProgress:
    """Commits when something has changed; owned by one stream's planner."""

    def __init__(self, group: str | None) -> None:
        self._group = group
        self._groups: Groups | None = None
        self._committed: Mapping[TopicPartition, int] = {}
        self._reported: set[str] = set()

    async def processed(self, cluster: Cluster, positions: Mapping[TopicPartition, int]) -> None:
        """Everything before these offsets has been processed."""
        if self._group is None:
            return
        changed = {p: offset for p, offset in positions.items() if self._committed.get(p) != offset}
        if not changed:
            return
        if self._groups is None:
            self._groups = Groups(cluster)
        try:
            async with asyncio.timeout(_COMMIT_SECONDS):
                await self._groups.commit(self._group, changed)
        except (ApiError, ClientError, TimeoutError) as error:
            self._tell(error)
        else:
            self._committed = dict(positions)

    def _tell(self, error: Exception) -> None:
        reason = str(error) or "no answer in time"
        if reason not in self._reported:
            self._reported.add(reason)
            logger.warning("progress was not committed to group %r, its lag is out of date: %s", self._group, reason)
