"""Faults of the metadata store: lost commits, late watches, leases that end early or late, outages."""

from functools import partial
from typing import TYPE_CHECKING

from martlet.base.ids import BrokerId
from martlet.cluster.keys import PARTITION_PREFIX, live_key
from sim.faults.fault import Fault, FaultKind
from sim.remote_store import CommitFault

if TYPE_CHECKING:
    from sim.cluster_run import ClusterRun


class StoreFaults:
    """The metadata store: lost commits, late watches, leases that end early or late, outages."""

    def __init__(self, run: "ClusterRun") -> None:
        self.run = run
        self.world = run.world
        self.kinds: dict[str, FaultKind] = {
            "commit lost before": (3, partial(self._lose_commit, CommitFault.BEFORE)),
            "commit lost after": (4, partial(self._lose_commit, CommitFault.AFTER)),
            "commit late": (3, partial(self._lose_commit, CommitFault.LATE)),
            "commit lost and watch lag": (4, partial(self._lose_commit, CommitFault.DEAF)),
            "watch lag": (4, self._watch_lag),
            "watch broken": (1, self._watch_broken),
            "watch lag and compaction": (2, self._watch_lag_and_compaction),
            "lease ends early": (4, self._lease_early),
            "leases end late": (1, self._leases_late),
            "store outage": (2, self._store_outage),
        }

    def _lose_commit(self, kind: CommitFault, fault: Fault, victim: BrokerId) -> None:
        of = ("", PARTITION_PREFIX, PARTITION_PREFIX)[fault.draw // 8 % 3]
        for _ in range(1 + fault.draw // 2 % 3):
            self.world.store_server.lose_next_commit(kind, of=of)

    def _watch_lag(self, fault: Fault, victim: BrokerId) -> None:
        server = self.world.store_server
        server.hold_watches(self.run.brokers[victim].name)
        self.world.at_ms(self.world.now_ms + fault.length_ms, server.release_watches)

    def _watch_broken(self, fault: Fault, victim: BrokerId) -> None:
        self.world.store_server.break_watches()

    def _watch_lag_and_compaction(self, fault: Fault, victim: BrokerId) -> None:
        self._watch_lag(fault, victim)
        server = self.world.store_server
        self.world.at_ms(self.world.now_ms + fault.length_ms - 1, server.state.compact)

    def _lease_early(self, fault: Fault, victim: BrokerId) -> None:
        self.world.store_server.state.end_lease_of(live_key(victim))

    def _leases_late(self, fault: Fault, victim: BrokerId) -> None:
        self.world.store_server.state.restart_leases(self.world.clock.now_ms())

    def _store_outage(self, fault: Fault, victim: BrokerId) -> None:
        server = self.world.store_server
        server.stop()
        self.world.at_ms(self.world.now_ms + fault.length_ms, server.heal)
