"""A short run of `./dev crash --transactions`: kill -9 while steps of a group end, each all or nothing."""

from pathlib import Path

import pytest
from bench.crash.transaction_groups import run_groups_test

_ROUNDS = 6


@pytest.mark.timeout(300)
def test_a_step_ends_whole_or_not_at_all_and_prepared_transactions_survive_each_kill(tmp_path: Path) -> None:
    report = run_groups_test(tmp_path, rounds=_ROUNDS, seed=5)
    assert report.violations == [], report.summary()
    assert report.counts["kills"] == _ROUNDS
    assert report.counts["steps"] == _ROUNDS
    assert report.counts["prepared ended"] == _ROUNDS
    assert report.counts["rows"] >= _ROUNDS * 12
