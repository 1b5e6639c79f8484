"""Counting: every slot exists beforehand, topics are bounded, histograms sort into fixed buckets."""

import pytest

from martlet.base.errors import ErrorCode, InvariantViolation
from martlet.observe.metrics import BrokerMetrics, DropReason, DurationHistogram, RejectReason


def test_a_topic_gets_the_same_counters_each_time() -> None:
    metrics = BrokerMetrics()
    counters = metrics.topic("orders")
    counters.bytes_in += 100
    counters.messages_in += 3
    assert metrics.topic("orders") is counters
    assert metrics.topic("orders").bytes_in == 100
    assert metrics.topic("payments").bytes_in == 0


def test_topics_past_the_limit_share_one_set_of_counters() -> None:
    metrics = BrokerMetrics(topic_series_max=2)
    own = (metrics.topic("a"), metrics.topic("b"))
    assert metrics.topic("c") is metrics.topic("d") is metrics.other_topics
    assert all(counters is not metrics.other_topics for counters in own)
    assert len(metrics.topics) == 2


def test_a_limit_of_zero_gives_no_topic_its_own_series() -> None:
    metrics = BrokerMetrics(topic_series_max=0)
    assert metrics.topic("orders") is metrics.other_topics
    assert metrics.topics == {}


def test_a_forgotten_topic_makes_room_for_another() -> None:
    metrics = BrokerMetrics(topic_series_max=1)
    metrics.topic("a")
    metrics.forget_topic("a")
    metrics.forget_topic("never seen")
    assert metrics.topic("b") is not metrics.other_topics


def test_errors_are_counted_by_api_and_no_error_is_none() -> None:
    metrics = BrokerMetrics()
    metrics.count_errors(3, [ErrorCode.NONE, ErrorCode.INVALID_REQUEST, 42, 3])
    metrics.count_errors(9, [42])
    assert metrics.errors_total == {(3, 42): 2, (3, 3): 1, (9, 42): 1}


def test_every_reason_has_a_slot() -> None:
    metrics = BrokerMetrics()
    for rejected in RejectReason:
        metrics.connections_rejected[rejected] += 1
    for dropped in DropReason:
        metrics.connections_dropped[dropped] += 1
    metrics.requests_total[92] += 1
    assert set(metrics.connections_rejected.values()) | set(metrics.connections_dropped.values()) == {1}


def test_two_brokers_in_one_process_count_apart() -> None:
    first, second = BrokerMetrics(), BrokerMetrics()
    first.requests_total[0] += 1
    first.count_errors(0, [3])
    first.flush_seconds.observe(0.1)
    assert second.requests_total[0] == len(second.errors_total) == second.flush_seconds.count == 0


def test_a_duration_on_a_bound_belongs_to_the_bucket_below_it() -> None:
    histogram = DurationHistogram((0.1, 1.0))
    for seconds in (0.0, 0.1, 0.100001, 1.0, 5.0):
        histogram.observe(seconds)
    assert histogram.counts == [2, 2, 1]
    assert histogram.count == 5
    assert histogram.total_seconds == pytest.approx(6.200001)


@pytest.mark.parametrize("bounds", [(1.0, 0.5), (1.0, 1.0)])
def test_bounds_that_do_not_rise_are_refused(bounds: tuple[float, ...]) -> None:
    with pytest.raises(InvariantViolation):
        DurationHistogram(bounds)


def test_a_gauge_is_registered_once_under_our_prefix() -> None:
    metrics = BrokerMetrics()
    metrics.watch("martlet_disk_free_bytes", "Free space.", lambda: 1.0)
    with pytest.raises(InvariantViolation):
        metrics.watch("martlet_disk_free_bytes", "Free space.", lambda: 2.0)
    with pytest.raises(InvariantViolation):
        metrics.watch("disk_free_bytes", "Free space.", lambda: 2.0)
