"""Three brokers in the simulator: whatever strikes, nothing acknowledged is lost, moved, changed or contradicted.

Three hundred seeds run here, in several classes so that they can run side by side; `./dev sim` runs any number.
"""

import logging
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from sim.cluster_run import run_seed

SEEDS_PER_TEST = 10
ROOT = Path(__file__).parents[2]


@pytest.fixture(autouse=True)
def quiet_logs() -> Iterator[None]:
    """Faults make brokers complain, thousands of times."""
    logging.disable(logging.CRITICAL)
    yield
    logging.disable(logging.NOTSET)


def run_seeds(first: int) -> None:
    outcomes = [run_seed(seed) for seed in range(first, first + SEEDS_PER_TEST)]
    assert [(outcome.seed, outcome.violations) for outcome in outcomes if outcome.violations] == []
    # A run cannot pass by doing nothing: faults strike, brokers come back, and most of what is sent is acknowledged.
    assert sum(len(outcome.faults) for outcome in outcomes) > 4 * SEEDS_PER_TEST
    assert sum(outcome.starts for outcome in outcomes) > 3 * SEEDS_PER_TEST
    assert sum(outcome.acknowledged for outcome in outcomes) > 0.8 * sum(outcome.sent for outcome in outcomes)
    assert sum(outcome.acknowledged for outcome in outcomes) > 50 * SEEDS_PER_TEST


class TestFirstSeeds:
    @pytest.mark.parametrize("first", range(0, 100, SEEDS_PER_TEST))
    def test_nothing_acknowledged_is_lost_or_contradicted_whatever_strikes(self, first: int) -> None:
        run_seeds(first)


class TestMoreSeeds:
    @pytest.mark.parametrize("first", range(100, 200, SEEDS_PER_TEST))
    def test_nothing_acknowledged_is_lost_or_contradicted_whatever_strikes(self, first: int) -> None:
        run_seeds(first)


class TestLastSeeds:
    @pytest.mark.parametrize("first", range(200, 300, SEEDS_PER_TEST))
    def test_nothing_acknowledged_is_lost_or_contradicted_whatever_strikes(self, first: int) -> None:
        run_seeds(first)


def trace_hash_in_a_fresh_process(seed: int, hash_seed: str) -> str:
    program = f"from sim.cluster_run import run_seed; print(run_seed({seed}).trace_hash)"
    done = subprocess.run(
        [sys.executable, "-c", program],
        cwd=ROOT,
        env={**os.environ, "PYTHONHASHSEED": hash_seed},
        capture_output=True,
        text=True,
        timeout=120,
        check=True,
    )
    return done.stdout.strip()


class TestDeterminism:
    def test_one_seed_gives_one_trace_in_every_process_and_under_every_hash_seed(self) -> None:
        for seed in (5, 6):
            here = run_seed(seed).trace_hash
            assert run_seed(seed).trace_hash == here
            assert {trace_hash_in_a_fresh_process(seed, hash_seed) for hash_seed in ("1", "2")} == {here}
