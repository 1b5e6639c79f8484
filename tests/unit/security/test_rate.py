"""Rates: held over a minute, free within the burst, and never charged for what is refused."""

import pytest

from martlet.security.rate import Rate


@pytest.mark.parametrize("size", [1_000, 100_000, 1_000_000])
def test_a_client_that_takes_as_much_as_it_may_is_held_to_the_rate_over_a_minute(size: int) -> None:
    rate, now_ms, sent = Rate(1_000_000), 5_000_000.0, 0
    end_ms = now_ms + 60_000
    while now_ms < end_ms:
        now_ms += max(rate.take(size, now_ms), 0.2)
        sent += size
    assert 0.9e6 <= sent / 60 <= 1.1e6


def test_a_burst_of_a_second_is_free_and_a_pause_pays_for_another() -> None:
    rate = Rate(100)
    assert [rate.take(50, 0), rate.take(50, 0)] == [0, 0]
    assert rate.take(50, 0) == 500
    assert not rate.is_paid(1_499)
    assert rate.is_paid(1_500)
    assert rate.take(100, 10_000) == 0


def test_what_is_refused_is_not_charged() -> None:
    rate = Rate(10)
    assert [rate.try_take(1, 0) for _ in range(11)] == [True] * 10 + [False]
    assert [rate.try_take(1, 100), rate.try_take(1, 100)] == [True, False]


def test_another_rate_counts_for_what_follows() -> None:
    rate = Rate(10)
    rate.take(10, 0)
    rate.set_rate(1_000)
    assert rate.take(1_000, 0) == 1_000
