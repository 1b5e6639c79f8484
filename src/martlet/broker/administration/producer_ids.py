"""Hands out producer ids that nobody else ever gets, from blocks reserved in the metadata store.

Invariant: an id is given once in the life of the cluster; ids of a block that a stopped broker had not given
yet are simply lost.
"""

import asyncio
from typing import Final

from martlet.base.ids import ProducerId
from martlet.broker.administration.topic_admin import TopicAdmin

_BLOCK: Final = 1000


class ProducerIdPool:
    """The rest of the current block, refilled when it is used up."""

    def __init__(self, admin: TopicAdmin) -> None:
        self._admin = admin
        self._block = iter(range(0))
        self._refilling = asyncio.Lock()

    async def take(self) -> ProducerId:
        """The next id."""
        async with self._refilling:
            number = next(self._block, None)
            if number is None:
                self._block = iter(await self._admin.allocate_producer_ids(_BLOCK))
                number = next(self._block)
            return ProducerId(number)
