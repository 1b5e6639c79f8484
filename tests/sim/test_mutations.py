"""Guards of replication and transactions taken away one by one: the simulator must find each, or it proves nothing.

`python -m sim.mutations` tries all of them with as many seeds as one likes. Here three hundred are enough for
each: most show within a few, nearly all within two dozen, one that needs a bit changed at rest within a hundred.
"""

import logging
from collections.abc import Iterator

import pytest
from sim.mutations import MUTATIONS, TRANSACTION_MUTATIONS, find

SEEDS_MAX = 300


@pytest.fixture(autouse=True)
def quiet_logs() -> Iterator[None]:
    """Faults make brokers complain, thousands of times."""
    yield
    logging.disable(logging.NOTSET)


@pytest.mark.timeout(400)
@pytest.mark.parametrize("mutation", [mutation.__name__ for mutation in (*MUTATIONS, *TRANSACTION_MUTATIONS)])
def test_a_guard_taken_out_is_found_out(mutation: str) -> None:
    found = find(mutation, 0, SEEDS_MAX)
    print(f"seed {found.seed}: {found.reason[:200]}")
    assert found.seed is not None
