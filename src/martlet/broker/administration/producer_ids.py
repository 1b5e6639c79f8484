"""Hands out producer ids, each of them once, from blocks reserved in the metadata store.

A machine that decides cannot wait for the store: it takes an id at once, from what was reserved before it was asked.

Invariant: an id is given once in the life of the cluster; ids of a block that a stopped broker had not given
yet are simply lost.
"""

import asyncio
from typing import Final

from martlet.base.errors import ApiError, ErrorCode
from martlet.base.ids import ProducerId
from martlet.broker.membership.metadata_changes import MetadataChanges
from martlet.cluster.broker_decisions import plan_producer_ids
from martlet.cluster.keys import PRODUCER_ID_COUNTER_KEY

PRODUCER_ID_BLOCK: Final = 1_000
_RESERVE: Final = 100
"""Ids at hand before a block is used up; one operation of a machine takes a few at most, many may run in between."""


class ProducerIdPool:
    """The rest of the current block, and the next one when that is nearly used up."""

    def __init__(self, changes: MetadataChanges) -> None:
        self._changes = changes
        self._ids: list[int] = []
        """The next one comes last."""
        self._refilling = asyncio.Lock()

    async def take(self) -> ProducerId:
        """The next id."""
        while not self._ids:
            await self._refill(1)
        return ProducerId(self._ids.pop())

    async def reserve(self) -> None:
        """Return when there are ids for `take_at_once`."""
        if len(self._ids) < _RESERVE:
            await self._refill(_RESERVE)

    def take_at_once(self) -> ProducerId:
        """The next id, if one is at hand; raises COORDINATOR_NOT_AVAILABLE, and the caller tries again later."""
        if not self._ids:
            raise ApiError(ErrorCode.COORDINATOR_NOT_AVAILABLE, "no producer id is at hand; they are being reserved")
        return ProducerId(self._ids.pop())

    async def _refill(self, least: int) -> None:
        async with self._refilling:
            if len(self._ids) < least:
                self._ids = [*reversed(await allocate_producer_ids(self._changes)), *self._ids]


async def allocate_producer_ids(changes: MetadataChanges, count: int = PRODUCER_ID_BLOCK) -> range:
    """Take ids that no producer has had or will have."""
    block = range(0)
    for _ in changes.attempts():
        plan, block = plan_producer_ids(await changes.get(PRODUCER_ID_COUNTER_KEY), count)
        if await changes.commit(plan) is not None:
            break
    return block
