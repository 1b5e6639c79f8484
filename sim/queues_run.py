"""One seed's run of a cluster with workers on a subscription; see `queue_workers.py` for what must hold.

The world, its faults and what else is checked are those of `cluster_run.py`. Snapshots of the state are frequent.
"""

import asyncio
from functools import partial
from typing import Final

from martlet.queues import partition_queues
from sim.cluster_run import HEAL_WITHIN_MS, ClusterRun, Outcome, run_seed_of
from sim.cluster_workload import TOPIC
from sim.host import SimHost
from sim.link import LinkQuality
from sim.queue_workers import QueueWorkers
from sim.world import SimWorld

_SNAPSHOT_MIN_BYTES: Final = 300


class QueuesRun(ClusterRun):
    """Two machines share the topic's messages, besides all other clients."""

    def __init__(self, world: SimWorld, quality: LinkQuality) -> None:
        super().__init__(world, quality)
        self.workers = [world.add_host(f"worker{number}") for number in (1, 2)]
        self.client_hosts += self.workers
        self.queue = QueueWorkers(self.clients.cluster, TOPIC, self.ghost.report)

    def _start_clients(self) -> None:
        super()._start_clients()
        for host in self.workers:
            host.start(partial(self._work, host))

    async def _work(self, host: SimHost) -> None:
        while not self.clients.topic_exists:  # noqa: ASYNC110 - a run polls, as its other clients do
            await asyncio.sleep(0.1)
        await self.queue.subscribe(host)
        await self.queue.work(host, self.world.randomness.stream(f"{host.name} {host.starts}"))

    def _check_leftovers(self) -> None:
        partitions = self.clients.partitions
        self.reader.start(partial(self.queue.check_finished, self.reader, partitions))
        if not self._wait(lambda: not self.reader.is_running, HEAL_WITHIN_MS, "QUE-3: not everything is finished"):
            return
        self.queue.check_all_delivered(self.clients.found)
        for host in self.workers:
            host.crash(power_loss=False)
        if self._wait(self._is_whole, HEAL_WITHIN_MS, "SIM-2: an in-sync set is not full again"):
            super()._check_leftovers()


def run_seed(seed: int, *, keep_trace: bool = False) -> Outcome:
    """One whole run."""
    before = partition_queues.DELTAS_MIN_BYTES
    partition_queues.DELTAS_MIN_BYTES = _SNAPSHOT_MIN_BYTES  # type: ignore[misc]  # a run is short
    try:
        return run_seed_of(QueuesRun, seed, keep_trace=keep_trace)
    finally:
        partition_queues.DELTAS_MIN_BYTES = before  # type: ignore[misc]
