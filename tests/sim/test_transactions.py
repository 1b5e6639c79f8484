"""Transactions in the simulator: whatever strikes, each is seen whole or not at all, and every input once.

Forty seeds run here, in two classes so that they can run side by side; `./dev sim --transactions` runs any number.
"""

import logging
from collections.abc import Iterator

import pytest
from sim.transactions_run import run_seed

SEEDS_PER_TEST = 5


@pytest.fixture(autouse=True)
def quiet_logs() -> Iterator[None]:
    """Faults make brokers complain, thousands of times."""
    logging.disable(logging.CRITICAL)
    yield
    logging.disable(logging.NOTSET)


def run_seeds(first: int) -> None:
    outcomes = [run_seed(seed) for seed in range(first, first + SEEDS_PER_TEST)]
    assert [(outcome.seed, outcome.violations) for outcome in outcomes if outcome.violations] == []
    # Nobody passes by doing nothing: faults strike, and transactions are committed, aborted and begun again.
    assert sum(len(outcome.faults) for outcome in outcomes) > 4 * SEEDS_PER_TEST
    assert sum(outcome.acknowledged for outcome in outcomes) > 10 * SEEDS_PER_TEST
    assert sum(outcome.acknowledged for outcome in outcomes) < sum(outcome.sent for outcome in outcomes)


class TestFirstSeeds:
    @pytest.mark.parametrize("first", range(0, 20, SEEDS_PER_TEST))
    def test_every_transaction_is_seen_whole_or_not_at_all(self, first: int) -> None:
        run_seeds(first)


class TestMoreSeeds:
    @pytest.mark.parametrize("first", range(20, 40, SEEDS_PER_TEST))
    def test_every_transaction_is_seen_whole_or_not_at_all(self, first: int) -> None:
        run_seeds(first)


def test_one_seed_gives_one_trace() -> None:
    assert run_seed(3).trace_hash == run_seed(3).trace_hash
