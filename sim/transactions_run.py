"""One seed's run of three brokers with transactions under faults, and the judgement of it.

The world, the faults and the checks of replication are those of `cluster_run.py`; what differs is who uses the cluster
(`transaction_workload.py`) and who judges (`transaction_history.py`, `transaction_ghost.py`). After the faults the
carriers go on until every input has been carried over; then nothing may be open any more (TX-4), and a reader of
committed data finds every input once.
"""

import asyncio
from dataclasses import replace
from functools import partial
from typing import Final

from martlet.base.ids import BrokerId
from martlet.broker.ground.settings import BrokerSettings
from sim.cluster_run import (
    BROKERS,
    FAULTS_END_MS,
    HEAL_WITHIN_MS,
    MIN_IN_SYNC,
    ClusterRun,
    Outcome,
    run_seed_of,
)
from sim.late_requests import LateRequests
from sim.link import LinkQuality
from sim.scheduler import NS_PER_MS
from sim.transaction_ghost import TransactionGhost
from sim.transaction_workload import TransactionClients
from sim.world import SimWorld

CARRIED_WITHIN_MS: Final = 2 * HEAL_WITHIN_MS
DONE_MIN: Final = 2
"""A run in which fewer transactions are committed proves nothing."""


class TransactionsRun(ClusterRun):
    """Builds the world of one seed and lets it run."""

    def __init__(self, world: SimWorld, quality: LinkQuality) -> None:
        super().__init__(world, quality)
        names = [host.name for host in self.brokers.values()]
        self._sources, self._shards = 1 + world.workload.below(2), 1 + world.workload.below(2)
        latency_ms = quality.latency_ns_max // NS_PER_MS
        self.transactions = TransactionClients(world, names, partitions=self._sources, latency_ms=latency_ms)
        self.transactions.reader_rack = self.clients.reader_rack
        self.transaction_ghost = TransactionGhost(self.ghost.report)
        self.ghost.on_committed = self.transaction_ghost.committed
        self._filled = False

    def settings(self, broker: BrokerId) -> BrokerSettings:
        return replace(super().settings(broker), transactions_topic_partitions=self._shards)

    # --- clients

    def _start_clients(self) -> None:
        self.transactions.sending_until_ms = FAULTS_END_MS
        self.clients.topic_exists = True
        for host in self.publishers:
            host.start(partial(self._publish_in_transactions, host.name))
        self.reader.start(self._follow)

    async def _publish_in_transactions(self, name: str) -> None:
        host = next(one for one in self.publishers if one.name == name)
        async with asyncio.TaskGroup() as group:
            for number in range(self._sources):
                group.create_task(self.transactions.carry(host, number))
            group.create_task(self.transactions.write(host))

    async def _follow(self) -> None:
        configs = {
            "min.insync.replicas": str(MIN_IN_SYNC),
            "segment.bytes": str(self.segment_bytes),
            "index.interval.bytes": "1000",
            "martlet.flush": self.flush,
            "retention.ms": "-1",
        }
        await self.transactions.create_topics(self.reader, configs, BROKERS)
        async with asyncio.TaskGroup() as group:
            group.create_task(self._fill())
            late = LateRequests(self.transaction_ghost, self.world.randomness.stream("late requests"))
            latecomer = group.create_task(late.send(self.transactions.cluster(self.reader)))
            self.world.at_ms(FAULTS_END_MS, latecomer.cancel)
            group.create_task(self.transactions.follow(self.reader))

    async def _fill(self) -> None:
        await self.transactions.fill(self.reader)
        self._filled = True

    def restart_publisher(self, number: int) -> None:
        host = self.publishers[number % len(self.publishers)]
        if self.transactions.topics_exist and host.is_running:
            host.crash(power_loss=False)
            host.start(partial(self._publish_in_transactions, host.name))

    # --- the end

    def _check_liveness(self) -> None:
        steps = (
            (lambda: self._filled, "SIM-4: the source was not filled"),
            (lambda: not any(host.is_running for host in self.publishers), "SIM-4: not every input was carried over"),
            (self._has_leaders, "SIM-1: a partition has no leader"),
            (self._is_whole, "SIM-2: an in-sync set is not full"),
            (lambda: not self._open(), "TX-4: a transaction is open"),
            (self._is_quiet, "SIM-2: a log grows on"),
        )
        for condition, failure in steps:
            if not self._wait(condition, CARRIED_WITHIN_MS, failure):
                self.ghost.violations += [f"TX-4: {line}" for line in self._open()]
                return
        self.reader.crash(power_loss=False)
        self.reader.start(partial(self.transactions.read_all, self.reader))
        if not self._wait(lambda: not self.reader.is_running, HEAL_WITHIN_MS, "SIM-3: not everything can be read"):
            return
        if not self._wait(self._is_whole, HEAL_WITHIN_MS, "SIM-2: an in-sync set is not full again"):
            return
        self._check_leftovers()
        if self.transactions.done < DONE_MIN:
            self.ghost.violations.append(f"idle: only {self.transactions.done} transactions were committed")

    def _open(self) -> list[str]:
        apps = [self.ghost.app(broker) for broker in self.brokers]
        return self.transaction_ghost.open_in([app for app in apps if app is not None])

    def _is_quiet(self) -> bool:
        """Whether everything that was appended is committed."""
        services = [app.services for app in map(self.ghost.app, self.brokers) if app is not None]
        return all(
            partition.high_watermark == partition.log.end_offset
            for one in services
            if one is not None
            for partition in one.partitions.led()
        )

    def _judge(self) -> list[str]:
        return self.transactions.judge()

    def _outcome(self) -> Outcome:
        counts = self.transactions.history.counts()
        ends = counts["done"] + counts["given up"] + counts["unknown"]
        return replace(super()._outcome(), acknowledged=counts["done"], sent=ends)


def run_seed(seed: int, *, keep_trace: bool = False) -> Outcome:
    """One whole run."""
    return run_seed_of(TransactionsRun, seed, keep_trace=keep_trace)
