"""A single broker in the simulator: whatever strikes, what it acknowledged is there, once, where it said.

Every guard that is taken out must be found out, else the simulator proves nothing.
"""

import logging
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from sim.host import HostDisk
from sim.single_broker_run import run_seed

from martlet.broker.partitions.flush_policy import FlushPolicy
from martlet.log.flushing import FlushTicket
from martlet.log.producer_state import ProducerStates

SEEDS_PER_TEST = 10
SEEDS_TO_FIND_A_MUTATION = 40
ROOT = Path(__file__).parents[2]


@pytest.fixture(autouse=True)
def quiet_logs() -> Iterator[None]:
    """Faults make brokers complain, thousands of times."""
    logging.disable(logging.CRITICAL)
    yield
    logging.disable(logging.NOTSET)


@pytest.mark.parametrize("first", range(0, 100, SEEDS_PER_TEST))
def test_what_was_acknowledged_is_read_back_exactly_once_whatever_strikes(first: int) -> None:
    began = time.process_time()
    outcomes = [run_seed(seed) for seed in range(first, first + SEEDS_PER_TEST)]
    rate = SEEDS_PER_TEST / (time.process_time() - began)
    print(f"{rate:.1f} seeds per second of processor time")
    assert [(outcome.seed, outcome.violations) for outcome in outcomes if outcome.violations] == []
    # A run cannot pass by doing nothing: brokers die and come back, and most of what is sent is acknowledged.
    assert sum(outcome.starts for outcome in outcomes) > 2 * SEEDS_PER_TEST
    assert sum(outcome.acknowledged for outcome in outcomes) > 0.9 * sum(outcome.sent for outcome in outcomes)


def trace_hash_in_a_fresh_process(seed: int, hash_seed: str) -> str:
    program = f"from sim.single_broker_run import run_seed; print(run_seed({seed}).trace_hash)"
    done = subprocess.run(
        [sys.executable, "-c", program],
        cwd=ROOT,
        env={**os.environ, "PYTHONHASHSEED": hash_seed},
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    return done.stdout.strip()


def test_one_seed_gives_one_trace_in_every_process_and_under_every_hash_seed() -> None:
    for seed in (3, 4):
        here = run_seed(seed).trace_hash
        assert {trace_hash_in_a_fresh_process(seed, hash_seed) for hash_seed in ("1", "2")} == {here}


def skip_file_sync(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(FlushTicket, "sync", lambda self: None)


def skip_directory_sync(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(HostDisk, "sync_directory", lambda self, path: None)


def acknowledge_before_flush(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(FlushPolicy, "before_acknowledge", False)


def forget_what_producers_sent(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(ProducerStates, "check", lambda self, header: None)


MUTATIONS = [skip_file_sync, skip_directory_sync, acknowledge_before_flush, forget_what_producers_sent]


@pytest.mark.parametrize("mutation", MUTATIONS, ids=lambda mutation: mutation.__name__)
def test_a_guard_taken_out_is_found_out(mutation: Callable[[pytest.MonkeyPatch], None]) -> None:
    with pytest.MonkeyPatch.context() as patch:
        mutation(patch)
        assert any(run_seed(seed).violations for seed in range(SEEDS_TO_FIND_A_MUTATION))
