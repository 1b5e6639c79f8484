"""Percentiles and buckets of times."""

from hypothesis import given
from hypothesis import strategies as st

from martlet.cli.latency_histogram import LatencyHistogram


def histogram(*times_ms: float) -> LatencyHistogram:
    made = LatencyHistogram()
    for time_ms in times_ms:
        made.add(time_ms)
    return made


def test_a_percentile_is_a_time_that_was_measured() -> None:
    made = histogram(*range(1, 101))
    assert [made.percentile(percent) for percent in (50, 90, 99, 99.9, 100)] == [50, 90, 99, 100, 100]
    assert histogram(7.0).percentile(50) == 7.0


def test_without_times_nothing_is_said() -> None:
    report = histogram().to_json()
    assert (report["count"], report["max_ms"], report["percentiles_ms"]["p50"]) == (0, None, None)
    assert histogram().facts()["max"] == "-"


def test_buckets_double_and_begin_where_the_first_time_is() -> None:
    assert histogram(0.3, 0.4, 3.0).buckets() == [(0.5, 2), (1.0, 0), (2.0, 0), (4.0, 1)]
    assert histogram(0.3, 0.4, 3.0).rows()[0] == ("< 0.5 ms", 2, "#" * 40)
    assert histogram(0.3, 0.4, 3.0).rows()[-1] == ("< 4 ms", 1, "#" * 20)


@given(st.lists(st.floats(0, 1e6), min_size=1))
def test_every_time_is_in_one_bucket_and_percentiles_never_fall(times_ms: list[float]) -> None:
    made = histogram(*times_ms)
    assert sum(count for _, count in made.buckets()) == len(times_ms)
    found = [made.percentile(percent) or 0.0 for percent in (1, 50, 90, 99, 100)]
    assert found == sorted(found)
    assert found[-1] == max(times_ms)
