"""A short run of what `./dev chaos` does for as long as you like: every fault under load, nothing acknowledged lost."""

from collections import Counter
from pathlib import Path

import pytest
from bench.chaos.faults import Kind
from bench.chaos.run import VIOLATIONS_SHOWN, ChaosRun, Demands

_SECONDS_MAX = 150.0
_FAULTS_MIN = 30
_OF_EACH_KIND_MIN = 2
_ON_A_BUSY_MACHINE = Demands(acknowledged_per_second_min=15, recovery_seconds_max=120)
_MISSING_AT_ONCE = 3


class _ShortRun(ChaosRun):
    """Ends when every kind has struck twice. Each storm begins with faults that were not there yet, or hardly."""

    def _has_shown_enough(self) -> bool:
        faults = self.report.faults
        return faults.total() >= _FAULTS_MIN and all(faults[kind] >= _OF_EACH_KIND_MIN for kind in Kind)

    def _storm(self, until: float, done: Counter[Kind]) -> None:
        # A disk is wiped only while nothing else is wrong, so that comes first.
        missing = sorted(
            (kind for kind in Kind if self.report.faults[kind] < _OF_EACH_KIND_MIN),
            key=lambda kind: (
                self.report.faults[kind],
                kind is not Kind.WIPE,
                kind is not Kind.NETWORK,
                self._random.random(),
            ),
        )
        for kind in missing[:_MISSING_AT_ONCE]:
            self._note(self._faults.begin(kind), done)
        super()._storm(until, done)


@pytest.mark.timeout(600)
def test_a_cluster_under_every_fault_loses_nothing_and_recovers_each_time(tmp_path: Path) -> None:
    report = _ShortRun(tmp_path, seconds=_SECONDS_MAX, seed=20, demands=_ON_A_BUSY_MACHINE).run()
    assert report.violations[:VIOLATIONS_SHOWN] == [], report.summary()
    assert report.faults.total() >= 15, report.table()
    assert not [kind.value for kind in Kind if not report.faults[kind]], report.table()
