"""Hands out producer ids, each of them once, from blocks reserved in the metadata store.

Invariant: an id is given once in the life of the cluster; ids of a block that a stopped broker had not given
yet are simply lost.
"""

import asyncio
from typing import Final

from martlet.base.ids import ProducerId
from martlet.broker.membership.metadata_changes import MetadataChanges
from martlet.cluster.broker_decisions import plan_producer_ids
from martlet.cluster.keys import PRODUCER_ID_COUNTER_KEY

PRODUCER_ID_BLOCK: Final = 1_000


class ProducerIdPool:
    """The rest of the current block, refilled when it is used up."""

    def __init__(self, changes: MetadataChanges) -> None:
        self._changes = changes
        self._block = iter(range(0))
        self._refilling = asyncio.Lock()

    async def take(self) -> ProducerId:
        """The next id."""
        async with self._refilling:
            number = next(self._block, None)
            if number is None:
                self._block = iter(await allocate_producer_ids(self._changes))
                number = next(self._block)
            return ProducerId(number)


async def allocate_producer_ids(changes: MetadataChanges, count: int = PRODUCER_ID_BLOCK) -> range:
    """Take ids that no producer has had or will have."""
    block = range(0)
    for _ in changes.attempts():
        plan, block = plan_producer_ids(await changes.get(PRODUCER_ID_COUNTER_KEY), count)
        if await changes.commit(plan) is not None:
            break
    return block
