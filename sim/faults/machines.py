"""Faults of machines: processes that die, stop and stand still; disks that stall or fail; clocks that jump.

A power loss or a wiped disk is held back while the promise does not cover one more of them.
"""

from functools import partial
from typing import TYPE_CHECKING, Final

from martlet.base.ids import BrokerId
from sim.faults.fault import Fault, FaultKind

if TYPE_CHECKING:
    from sim.cluster_run import ClusterRun

_MINUTE_MS: Final = 60_000


class ProcessFaults:
    """Processes and machines that die, stop and stand still."""

    def __init__(self, run: "ClusterRun") -> None:
        self.run = run
        self.world = run.world
        self.kinds: dict[str, FaultKind] = {
            "kill": (6, self._kill),
            "power loss": (5, self._power_loss),
            "wipe": (2, self._wipe),
            "crash at a disk change": (3, self._crash_at_disk_change),
            "pause": (5, self._pause),
            "clean stop": (3, self._clean_stop),
            "clean stop and power loss": (2, self._clean_stop_and_power_loss),
        }

    def _kill(self, fault: Fault, victim: BrokerId) -> None:
        self.run.stay_down(victim, self.world.now_ms + fault.length_ms)
        self.run.brokers[victim].crash(power_loss=False)

    def _power_loss(self, fault: Fault, victim: BrokerId) -> bool:
        if not self.run.may_lose(victim):
            return False
        self.run.stay_down(victim, self.world.now_ms + fault.length_ms)
        self.run.brokers[victim].crash(power_loss=True)
        return True

    def _wipe(self, fault: Fault, victim: BrokerId) -> bool:
        if not self.run.may_lose(victim):
            return False
        self.run.stay_down(victim, self.world.now_ms + fault.length_ms)
        self.run.wipe(victim)
        return True

    def _crash_at_disk_change(self, fault: Fault, victim: BrokerId) -> bool:
        host = self.run.brokers[victim]
        host.dies_by_power = bool(fault.draw & 2) and self.run.may_lose(victim)
        if not host.is_running:
            return False
        if host.dies_by_power:
            self.run.armed.append(victim)
        self.run.stay_down(victim, self.world.now_ms + fault.length_ms)
        host.disk.stop_after(fault.draw % 40)
        return True

    def _pause(self, fault: Fault, victim: BrokerId) -> bool:
        self.run.brokers[victim].pause(2 * fault.length_ms)
        return self.run.brokers[victim].is_running

    def _clean_stop(self, fault: Fault, victim: BrokerId) -> None:
        self.run.stay_down(victim, self.world.now_ms + fault.length_ms)
        self.run.stop_requests[victim].send()

    def _clean_stop_and_power_loss(self, fault: Fault, victim: BrokerId) -> None:
        self.run.stay_down(victim, self.world.now_ms + _MINUTE_MS)
        self.run.stop_requests[victim].send()
        self.world.at_ms(self.world.now_ms + 3_000, partial(self._power_off, victim))

    def _power_off(self, victim: BrokerId) -> None:
        """Once it has stopped cleanly, nothing can be lost any more; if it has not, leave it."""
        self.run.stay_down(victim, self.world.now_ms)
        if not self.run.brokers[victim].is_running and self.run.has_stopped_cleanly(victim):
            self.run.brokers[victim].crash(power_loss=True)


class DeviceFaults:
    """Disks that stall or fail, clocks that jump."""

    def __init__(self, run: "ClusterRun") -> None:
        self.run = run
        self.world = run.world
        self.kinds: dict[str, FaultKind] = {
            "disk stall": (2, self._stall),
            "failing sync": (1, self._failing_sync),
            "failing write": (1, self._failing_write),
            "clock jump": (1, self._clock_jump),
        }

    def _stall(self, fault: Fault, victim: BrokerId) -> None:
        self.run.brokers[victim].stall_disk(2 * fault.length_ms)

    def _failing_sync(self, fault: Fault, victim: BrokerId) -> bool:
        self.run.brokers[victim].disk.fail_next_sync()
        return self.run.brokers[victim].is_running

    def _failing_write(self, fault: Fault, victim: BrokerId) -> bool:
        self.run.brokers[victim].disk.fail_next_write()
        return self.run.brokers[victim].is_running

    def _clock_jump(self, fault: Fault, victim: BrokerId) -> None:
        self.run.brokers[victim].clock.jump(fault.draw % _MINUTE_MS - _MINUTE_MS // 2)
