"""Workers on a subscription in simulated clusters under faults: no lost message, none after its acknowledgement.

`./dev sim --queues` runs as many seeds as one likes.
"""

import logging
from collections.abc import Iterator

import pytest
from sim.queues_run import run_seed
from sim.seeds import Kind, run_one

SEEDS = 12


@pytest.fixture(autouse=True)
def quiet_logs() -> Iterator[None]:
    """Faults make brokers complain, thousands of times."""
    logging.disable(logging.CRITICAL)
    yield
    logging.disable(logging.NOTSET)


@pytest.mark.timeout(120)
@pytest.mark.parametrize("seed", range(SEEDS))
def test_queues_survive_the_faults_of_a_seed(seed: int) -> None:
    assert run_one(seed, kind=Kind.QUEUES).reasons == []


def test_a_seed_with_queues_is_the_same_run_each_time() -> None:
    assert run_seed(3).trace_hash == run_seed(3).trace_hash
