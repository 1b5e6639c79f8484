"""An operator at work during the chaos run: partitions are moved and led by others while everything else goes wrong.

Each order is given once, through Martlet's own client, and its outcome is not waited for: the cluster has to
bring a move that it took on to its end, whatever happens meanwhile.
"""

import asyncio
import contextlib
import random
import threading
from typing import Final

from martlet.base.addresses import parse_bootstrap
from martlet.base.errors import MartletError
from martlet.base.ids import TopicPartition
from martlet.client.cluster import Cluster
from martlet.client.cluster_admin import ClusterAdmin
from martlet.client.options import ClientOptions

_PATIENCE_MS: Final = 3_000
_ALL_SHARE: Final = 0.8
"""Of the moves, this share puts the partition on all brokers; the others leave one out."""


def order_something(
    servers: str, topic: str, partitions: int, brokers: list[int], chance: random.Random
) -> threading.Thread:
    """Begin to move some partitions, or to elect leaders; the thread ends when the order was given, or could not be."""
    chosen = [TopicPartition(topic, index) for index in chance.sample(range(partitions), chance.randint(1, 2))]
    wishes = {partition: _replicas(brokers, chance) for partition in chosen}
    elects = chance.random() < 0.3

    async def order() -> None:
        options = ClientOptions(
            client_id="operator",
            connect_timeout_ms=_PATIENCE_MS,
            request_timeout_ms=_PATIENCE_MS,
            retry_timeout_ms=_PATIENCE_MS,
        )
        async with Cluster(parse_bootstrap(servers), options) as cluster:
            admin = ClusterAdmin(cluster)
            await (admin.elect(chosen) if elects else admin.reassign(wishes))

    def run() -> None:
        with contextlib.suppress(MartletError, OSError, TimeoutError):
            asyncio.run(asyncio.wait_for(order(), 3 * _PATIENCE_MS / 1000))

    thread = threading.Thread(target=run, name="operator", daemon=True)
    thread.start()
    return thread


def _replicas(brokers: list[int], chance: random.Random) -> list[int]:
    count = len(brokers) if chance.random() < _ALL_SHARE else len(brokers) - 1
    return chance.sample(brokers, count)
