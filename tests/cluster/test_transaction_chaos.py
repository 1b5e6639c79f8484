"""Two minutes of `./dev chaos --transactions`: brokers and clients are killed, and every input is carried over once."""

from pathlib import Path

import pytest
from bench.chaos.transactions import TransactionsRun

_SECONDS = 120.0
_FAULTS_MIN = 10


@pytest.mark.timeout(900)
def test_inputs_are_carried_over_exactly_once_while_brokers_and_clients_are_killed(tmp_path: Path) -> None:
    report = TransactionsRun(tmp_path, seconds=_SECONDS, seed=7).run()
    assert report.violations[:20] == [], report.summary()
    assert report.faults.total() >= _FAULTS_MIN, report.summary()
    assert report.faults["client killed"], report.summary()
    assert report.faults["client fenced by another"], report.summary()
