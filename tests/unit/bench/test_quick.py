"""The regression guard: what counts as worse, in which direction, and what is judged at all."""

from bench.quick import changes, is_guarded, merged, record_of
from bench.report import Figure

RATE = {"publish": {"ratio": 0.80}}


def figure(ratio: float, name: str = "publish", unit: str = "msg/s") -> Figure:
    return Figure(name, unit, [ratio, ratio * 2, ratio / 2], [1.0, 1.0, 1.0])


def test_a_rate_may_lose_a_fifth_and_no_more() -> None:
    (kept,) = changes(RATE, [figure(0.65)])
    assert not kept.is_fallen
    (fallen,) = changes(RATE, [figure(0.63)])
    assert fallen.is_fallen
    assert str(fallen).endswith("FALLEN")


def test_a_time_falls_by_growing() -> None:
    record = {"round trip, p50": {"ratio": 1.0}}
    (kept,) = changes(record, [figure(1.2, "round trip, p50", "µs")])
    assert not kept.is_fallen
    (fallen,) = changes(record, [figure(1.3, "round trip, p50", "µs")])
    assert fallen.is_fallen


def test_what_is_new_or_has_no_limit_is_not_judged() -> None:
    assert changes(RATE, [figure(0.1, "new"), Figure("publish", "msg/s", [1.0])]) == []


def test_tails_are_not_guarded() -> None:
    assert not is_guarded(figure(1.0, "round trip, p99", "µs"))


def test_a_repeated_measurement_counts_with_the_first() -> None:
    first, second = [figure(0.5)], [figure(1.0)]
    (both,) = merged(first, second)
    assert len(both.values) == len(both.limits) == 6


def test_a_record_holds_the_median_and_the_spread() -> None:
    assert record_of([figure(0.8)]) == {"publish": {"ratio": 0.8, "min": 0.4, "max": 1.6}}
