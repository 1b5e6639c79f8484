"""Retry policies: pauses, attempts, and the company of suspects."""

import pytest
from sim.randomness import SimRandomness

from martlet.queues.retry import Backoff, RetryPolicy


def pauses(policy: RetryPolicy) -> list[int]:
    return [policy.pause_ms(attempts, SimRandomness(3)) for attempts in range(1, 8)]


def test_an_exponential_pause_doubles_up_to_its_longest() -> None:
    policy = RetryPolicy(10, Backoff.EXPONENTIAL, delay_ms=100, delay_max_ms=1_000, jitter=0)
    assert pauses(policy) == [100, 200, 400, 800, 1_000, 1_000, 1_000]
    assert policy.pause_ms(250, SimRandomness(3)) == 1_000


def test_fixed_and_immediate_pauses_do_not_grow() -> None:
    assert set(pauses(RetryPolicy(10, Backoff.FIXED, delay_ms=70, jitter=0))) == {70}
    assert set(pauses(RetryPolicy(10, Backoff.IMMEDIATE))) == {0}


def test_jitter_takes_off_a_part_and_never_all() -> None:
    policy = RetryPolicy(10, Backoff.FIXED, delay_ms=1_000, jitter=0.5)
    randomness = SimRandomness(3)
    drawn = [policy.pause_ms(1, randomness) for _ in range(300)]
    assert 500 <= min(drawn) < 550
    assert 950 < max(drawn) <= 1_000
    assert RetryPolicy(10, Backoff.FIXED, delay_ms=1, jitter=1).pause_ms(1, randomness) == 1


def test_suspects_are_leased_in_smaller_groups_and_alone_at_the_last_attempt() -> None:
    sizes = RetryPolicy(8).group_sizes()
    assert sizes[1] == sizes[2] > 1_000_000
    assert sizes[3:8] == (64, 32, 16, 8, 4)
    assert set(sizes[8:]) == {1}
    assert RetryPolicy(2).group_sizes()[2] == 1
    assert RetryPolicy(1).group_sizes()[1] > 1, "with one attempt there are no suspects"


@pytest.mark.parametrize(
    ("arguments", "word"),
    [
        ({"attempts_max": 0}, "1 to 250"),
        ({"attempts_max": 251}, "1 to 250"),
        ({"delay_ms": 0}, "at least 1 ms"),
        ({"delay_ms": 9, "delay_max_ms": 8}, "the longest"),
        ({"jitter": 1.5}, "from 0 to 1"),
    ],
)
def test_a_policy_that_makes_no_sense_is_refused(arguments: dict[str, int], word: str) -> None:
    with pytest.raises(ValueError, match=word):
        RetryPolicy(**arguments)  # type: ignore[arg-type]  # the wrong numbers are the point
