"""With the default flush policy nothing acknowledged is lost when the power goes: on a disk that drops unsynced pages.

kill -9 leaves the page cache alone, so `./dev crash` cannot show this; the simulated disk can, hundreds of times a
second, and every seed replays. Each seed is a machine that lives several times (`log_machine`).
"""

import pytest

from tests.crash.log_machine import LogMachine

_LIVES = 6
_SEEDS_PER_TEST = 75


def run_seed(seed: int, *, acknowledge_early: bool = False) -> LogMachine:
    machine = LogMachine(seed, acknowledge_early=acknowledge_early)
    for _ in range(_LIVES):
        machine.run_life()
        if machine.found:
            return machine
    machine.check()
    return machine


@pytest.mark.parametrize("first_seed", range(0, 300, _SEEDS_PER_TEST))
def test_power_loss_takes_nothing_that_was_acknowledged_or_read(first_seed: int) -> None:
    crashes = acknowledged = 0
    for seed in range(first_seed, first_seed + _SEEDS_PER_TEST):
        machine = run_seed(seed)
        assert machine.found == [], f"seed {seed}"
        crashes += machine.crashes
        acknowledged += len(machine.history.acknowledged)
    # A run in which nothing happened would prove nothing.
    assert crashes > 2 * _SEEDS_PER_TEST
    assert acknowledged > 20 * _SEEDS_PER_TEST


def test_acknowledging_before_the_flush_is_found_out() -> None:
    caught = [seed for seed in range(_SEEDS_PER_TEST) if run_seed(seed, acknowledge_early=True).found]
    assert len(caught) > _SEEDS_PER_TEST // 10


def test_a_seed_replays_exactly() -> None:
    first, second = run_seed(7), run_seed(7)
    assert first.history == second.history
    assert first.crashes == second.crashes
