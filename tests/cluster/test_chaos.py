"""A short run of what `./dev chaos` does for as long as you like: every fault under load, nothing acknowledged lost."""

from pathlib import Path

import pytest
from bench.chaos import VIOLATIONS_SHOWN, ChaosRun, Demands

_SECONDS = 150.0
_ON_A_BUSY_MACHINE = Demands(acknowledged_per_second_min=15, recovery_seconds_max=120)


@pytest.mark.timeout(600)
def test_a_cluster_under_every_fault_loses_nothing_and_recovers_each_time(tmp_path: Path) -> None:
    report = ChaosRun(tmp_path, seconds=_SECONDS, seed=20, demands=_ON_A_BUSY_MACHINE).run()
    assert report.violations[:VIOLATIONS_SHOWN] == [], report.summary()
    assert report.faults.total() >= 15, report.table()
    assert len(report.faults) >= 6, report.table()
