"""Faults of the network: links between machines that are cut, slow or lossy."""

from functools import partial
from typing import TYPE_CHECKING

from martlet.base.ids import BrokerId
from sim.faults.fault import Fault, FaultKind, restore
from sim.remote_store import STORE_NAME
from sim.scheduler import NS_PER_MS

if TYPE_CHECKING:
    from sim.cluster_run import ClusterRun


class NetworkFaults:
    """Links between machines that are cut, slow or lossy."""

    def __init__(self, run: "ClusterRun") -> None:
        self.run = run
        self.world = run.world
        self.kinds: dict[str, FaultKind] = {
            "isolate": (3, self._isolate),
            "cut": (4, self._cut),
            "cut one way": (5, self._cut_one_way),
            "reset": (2, self._reset),
            "slow": (2, self._slow),
            "drip": (1, self._drip),
        }

    def _others(self, victim: BrokerId) -> list[str]:
        brokers = [host.name for broker, host in self.run.brokers.items() if broker != victim]
        return [*brokers, *brokers, STORE_NAME, *(host.name for host in self.run.client_hosts)]

    def _pair(self, fault: Fault, victim: BrokerId) -> tuple[str, str]:
        others = self._others(victim)
        pair = self.run.brokers[victim].name, others[fault.draw // 8 % len(others)]
        return pair if fault.draw & 4 else pair[::-1]

    def _isolate(self, fault: Fault, victim: BrokerId) -> None:
        network, name = self.world.network, self.run.brokers[victim].name
        network.isolate(name)
        for other in dict.fromkeys(self._others(victim)):
            # One link after the other comes back.
            heal_at_ms = self.world.now_ms + fault.length_ms + self.world.workload.below(500)
            self.world.at_ms(heal_at_ms, partial(network.heal, name, other))

    def _cut(self, fault: Fault, victim: BrokerId) -> None:
        pair = self._pair(fault, victim)
        self.world.network.cut(*pair)
        self.world.at_ms(self.world.now_ms + fault.length_ms, partial(self.world.network.heal, *pair))

    def _cut_one_way(self, fault: Fault, victim: BrokerId) -> None:
        pair = self._pair(fault, victim)
        self.world.network.cut_one_way(*pair)
        self.world.at_ms(self.world.now_ms + fault.length_ms, partial(self.world.network.heal, *pair))

    def _reset(self, fault: Fault, victim: BrokerId) -> None:
        self.world.network.reset(*self._pair(fault, victim))

    def _slow(self, fault: Fault, victim: BrokerId) -> None:
        """Packets take up to a second."""
        quality = self.world.network.link(*self._pair(fault, victim)).quality
        slowest = 10 + fault.draw % 1_000
        quality.latency_ns_min, quality.latency_ns_max = slowest * NS_PER_MS // 2, slowest * NS_PER_MS
        self.world.at_ms(self.world.now_ms + fault.length_ms, partial(restore, quality, self.run.quality))

    def _drip(self, fault: Fault, victim: BrokerId) -> None:
        pair = self._pair(fault, victim)
        self.world.network.slow_drip(*pair, 1 + fault.draw % 50)
        self.world.at_ms(self.world.now_ms + fault.length_ms, partial(self.world.network.slow_drip, *pair, None))
