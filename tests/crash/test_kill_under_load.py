"""A short run of the crash test that `./dev crash` runs for 200 rounds: kill -9 under load loses nothing acknowledged.

Restarts may take longer here than the two seconds that the long run demands, because other tests share the machine.
"""

from pathlib import Path

from bench.crash.history import VIOLATIONS_SHOWN
from bench.crash.run import run_crash_test

_ROUNDS = 8
_RESTART_SECONDS_MAX = 10.0


def test_kill_9_under_load_loses_nothing_acknowledged_and_duplicates_nothing(tmp_path: Path) -> None:
    report = run_crash_test(tmp_path, rounds=_ROUNDS, seed=2024, restart_seconds_max=_RESTART_SECONDS_MAX)
    assert report.violations[:VIOLATIONS_SHOWN] == [], report.summary()
    assert report.kills >= _ROUNDS
    assert report.messages_read >= len(report.history.acknowledged)
