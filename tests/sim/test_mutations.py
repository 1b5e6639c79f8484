"""Guards of replication taken away one at a time: the simulator must find each out, or it proves nothing.

`python -m tests.sim.mutations` tries all of them with as many seeds as one likes. Left out here is the one that takes
more than a hundred seeds to show: a replica may join before it has all that the epoch began with.
"""

import logging
from collections.abc import Iterator

import pytest

from tests.sim.mutations import MUTATIONS, find, joining_without_the_epochs_start

SEEDS_MAX = 100
QUICKLY_FOUND = [mutation.__name__ for mutation in MUTATIONS if mutation is not joining_without_the_epochs_start]


@pytest.fixture(autouse=True)
def quiet_logs() -> Iterator[None]:
    """Faults make brokers complain, thousands of times."""
    yield
    logging.disable(logging.NOTSET)


@pytest.mark.parametrize("mutation", QUICKLY_FOUND)
def test_a_guard_taken_out_is_found_out(mutation: str) -> None:
    found = find(mutation, 0, SEEDS_MAX)
    print(f"seed {found.seed}: {found.reason[:200]}")
    assert found.seed is not None
