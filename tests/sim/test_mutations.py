"""Guards of replication taken away one at a time: the simulator must find each out, or it proves nothing.

`python -m tests.sim.mutations` tries all of them with as many seeds as one likes. Here a hundred are enough for each:
most show within a few, the slowest within thirty.
"""

import logging
from collections.abc import Iterator

import pytest

from tests.sim.mutations import MUTATIONS, find

SEEDS_MAX = 100


@pytest.fixture(autouse=True)
def quiet_logs() -> Iterator[None]:
    """Faults make brokers complain, thousands of times."""
    yield
    logging.disable(logging.NOTSET)


@pytest.mark.parametrize("mutation", [mutation.__name__ for mutation in MUTATIONS])
def test_a_guard_taken_out_is_found_out(mutation: str) -> None:
    found = find(mutation, 0, SEEDS_MAX)
    print(f"seed {found.seed}: {found.reason[:200]}")
    assert found.seed is not None
