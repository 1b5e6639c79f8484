"""The faults of one run of a simulated cluster: drawn when the run is planned, carried out when their time comes.

When, what and how long is drawn beforehand. A fault finds its victim when it strikes: half of the time the process that
leads something then.
"""

from functools import partial
from typing import TYPE_CHECKING, Final

from martlet.base.ids import BrokerId
from sim.faults.fault import Fault, FaultKind
from sim.faults.leaderships import LeadershipFaults
from sim.faults.machines import DeviceFaults, ProcessFaults
from sim.faults.network import NetworkFaults
from sim.faults.store import StoreFaults

if TYPE_CHECKING:
    from sim.cluster_run import ClusterRun

_BURST_MS: Final = 1_500


class Faults:
    """Plans and carries out the faults of one run; `struck` lists those that came to pass."""

    def __init__(self, run: "ClusterRun") -> None:
        self.run = run
        self.world = run.world
        self.struck: list[str] = []
        # In this order, which seeds draw from.
        self._kinds: dict[str, FaultKind] = {
            **ProcessFaults(run).kinds,
            **NetworkFaults(run).kinds,
            **DeviceFaults(run).kinds,
            **StoreFaults(run).kinds,
            **LeadershipFaults(run).kinds,
            "publisher crash": (1, self._publisher_crash),
        }

    def plan(self, begin_ms: int, end_ms: int, count: int) -> None:
        """Draw this many faults for that time: of a few kinds or of all, spread out or close together."""
        draw = self.world.workload.below
        kinds = [kind for kind, (weight, _) in self._kinds.items() for _ in range(weight)]
        if draw(2):
            kinds = [kinds[draw(len(kinds))] for _ in range(3 + draw(5))]
        bursts = [begin_ms + draw(end_ms - begin_ms) for _ in range(1 + draw(4))] if draw(2) else []
        for _ in range(count):
            at_ms = begin_ms + draw(end_ms - begin_ms)
            if bursts:
                at_ms = min(end_ms - 1, bursts[draw(len(bursts))] + draw(_BURST_MS))
            # Short ones more often than long ones; up to twice a lease.
            length_ms = 50 + draw(1 + draw(2 * self.run.lease_ms))
            fault = Fault(at_ms, kinds[draw(len(kinds))], length_ms, draw(1 << 30))
            self.world.at_ms(fault.at_ms, partial(self._strike, fault))

    def _strike(self, fault: Fault) -> None:
        if self.run.is_over:
            return
        victim = self._victim(fault)
        strike = self._kinds[fault.kind][1]
        if strike(fault, victim) is not False:
            self.struck.append(f"{fault.at_ms} {fault.kind} {victim} for {fault.length_ms}")
            self.world.scheduler.note("fault", f"{fault.kind} {victim} {fault.length_ms}")

    def _victim(self, fault: Fault) -> BrokerId:
        brokers = list(self.run.brokers)
        if fault.draw % 2:
            leaders = [
                record.leader for record in self.run.ghost.store.partitions.values() if record.leader is not None
            ]
            if leaders:
                return leaders[fault.draw // 2 % len(leaders)]
        return brokers[fault.draw // 2 % len(brokers)]

    def _publisher_crash(self, fault: Fault, victim: BrokerId) -> None:
        self.run.restart_publisher(fault.draw // 2)
