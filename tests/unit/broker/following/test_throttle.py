"""The limit on how fast replicas that are behind may catch up."""

import pytest

from martlet.broker.following.throttle import ReplicaThrottle


def test_a_rate_of_zero_limits_nothing() -> None:
    throttle = ReplicaThrottle(0)
    throttle.took(1 << 30, now=1.0)
    assert not throttle.limits
    assert throttle.wait_seconds(1.0) == 0.0


def test_one_seconds_worth_may_be_taken_at_once() -> None:
    throttle = ReplicaThrottle(1_000)
    throttle.took(1_000, now=5.0)
    assert throttle.wait_seconds(5.0) == 0.0


def test_more_than_that_is_waited_for() -> None:
    throttle = ReplicaThrottle(1_000)
    throttle.took(4_000, now=5.0)
    assert throttle.wait_seconds(5.0) == pytest.approx(3.0)
    assert throttle.wait_seconds(7.0) == pytest.approx(1.0)
    assert throttle.wait_seconds(8.5) == 0.0


def test_a_long_rest_saves_up_no_more_than_a_second() -> None:
    throttle = ReplicaThrottle(1_000)
    throttle.took(500, now=0.0)
    throttle.took(2_000, now=100.0)
    assert throttle.wait_seconds(100.0) == pytest.approx(1.0)


def test_a_rate_that_changes_counts_from_then_on_and_for_what_was_taken_too_early() -> None:
    throttle = ReplicaThrottle(1_000)
    throttle.took(11_000, now=0.0)
    assert throttle.wait_seconds(0.0) == pytest.approx(10.0)
    throttle.change_rate(10_000, now=5.0)
    assert throttle.wait_seconds(5.0) == pytest.approx(0.5)
    throttle.change_rate(0, now=5.0)
    assert throttle.wait_seconds(5.0) == 0.0
    throttle.took(1 << 30, now=6.0)
    throttle.change_rate(100, now=7.0)
    assert throttle.wait_seconds(7.0) == 0.0, "what was taken without a limit is not held against it"
    throttle.took(200, now=7.0)
    assert throttle.wait_seconds(7.0) == pytest.approx(1.0)


def test_over_a_long_time_the_rate_holds() -> None:
    throttle = ReplicaThrottle(1_000)
    now, taken = 0.0, 0
    while now < 60:
        throttle.took(700, now)
        taken += 700
        now += max(throttle.wait_seconds(now), 0.001)
    assert taken <= 61_000 + 700
