"""The text that Prometheus reads, parsed back with prometheus_client's own parser."""

import re

from prometheus_client.parser import text_string_to_metric_families

from martlet.base.errors import ErrorCode, StorageFailure
from martlet.observe.exposition import MetricsRegistry
from martlet.observe.metrics import NO_API, BrokerMetrics, RejectReason

Samples = dict[tuple[str, tuple[tuple[str, str], ...]], float]


def scrape(metrics: BrokerMetrics) -> Samples:
    registry = MetricsRegistry(metrics, api_names={0: "produce", 1: "fetch"}, info={"version": "1.2.3"})
    return {
        (sample.name, tuple(sorted(sample.labels.items()))): sample.value
        for family in text_string_to_metric_families(registry.render().decode())
        for sample in family.samples
    }


def test_network_and_request_counters_carry_their_names() -> None:
    metrics = BrokerMetrics(bytes_in=10, bytes_out=20)
    metrics.requests_total[0] += 7
    metrics.requests_total[99] += 1
    metrics.count_errors(0, [ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.NOT_LEADER_OR_FOLLOWER])
    metrics.count_errors(99, [ErrorCode.INVALID_REQUEST])
    metrics.count_errors(NO_API, [ErrorCode.UNKNOWN_SERVER_ERROR])
    samples = scrape(metrics)
    assert samples["martlet_received_bytes_total", ()] == 10
    assert samples["martlet_sent_bytes_total", ()] == 20
    assert samples["martlet_requests_total", (("api", "produce"),)] == 7
    assert samples["martlet_requests_total", (("api", "99"),)] == 1
    assert {labels: count for (name, labels), count in samples.items() if name == "martlet_request_errors_total"} == {
        (("api", "produce"), ("error", "not_leader_or_follower")): 2,
        (("api", "99"), ("error", "invalid_request")): 1,
        (("api", "(broker)"), ("error", "unknown_server_error")): 1,
    }
    assert samples["martlet_build_info", (("version", "1.2.3"),)] == 1


def test_zero_requests_and_errors_are_left_out_but_reasons_are_always_there() -> None:
    metrics = BrokerMetrics()
    metrics.count_errors(0, [ErrorCode.NONE])
    metrics.connections_rejected[RejectReason.CONNECTIONS_MAX] += 1
    samples = scrape(metrics)
    names = [name for name, _ in samples]
    assert "martlet_requests_total" not in names
    assert "martlet_request_errors_total" not in names
    assert samples["martlet_connections_rejected_total", (("reason", "connections_max"),)] == 1
    assert samples["martlet_connections_rejected_total", (("reason", "connections_per_address_max"),)] == 0


def test_each_topic_has_its_series_and_the_rest_share_one() -> None:
    metrics = BrokerMetrics(topic_series_max=1)
    metrics.topic("orders").messages_in += 5
    metrics.topic("payments").messages_in += 6
    metrics.topic("refunds").messages_in += 7
    samples = scrape(metrics)
    assert samples["martlet_topic_messages_in_total", (("topic", "orders"),)] == 5
    assert samples["martlet_topic_messages_in_total", (("topic", "(other)"),)] == 13
    assert ("martlet_topic_messages_in_total", (("topic", "payments"),)) not in samples


def test_histogram_buckets_are_cumulative_and_end_at_infinity() -> None:
    metrics = BrokerMetrics()
    for seconds in (0.0001, 0.002, 100.0):
        metrics.flush_seconds.observe(seconds)
    samples = scrape(metrics)
    assert samples["martlet_flush_seconds_bucket", (("le", "0.0005"),)] == 1
    assert samples["martlet_flush_seconds_bucket", (("le", "0.0025"),)] == 2
    assert samples["martlet_flush_seconds_bucket", (("le", "10.0"),)] == 2
    assert samples["martlet_flush_seconds_bucket", (("le", "+Inf"),)] == 3
    assert samples["martlet_flush_seconds_count", ()] == 3


def test_a_gauge_is_read_at_scrape_and_a_failing_one_hides_only_itself() -> None:
    metrics = BrokerMetrics(connections_open=4)

    def broken() -> float:
        raise StorageFailure("the disk is gone")

    readings = [1.0, 2.0]
    metrics.watch("martlet_broken", "Fails.", broken)
    metrics.watch("martlet_working", "Works.", lambda: readings[-1])
    assert scrape(metrics)["martlet_working", ()] == 2
    readings.append(3.0)
    samples = scrape(metrics)
    assert samples["martlet_working", ()] == 3
    assert samples["martlet_connections", ()] == 4
    assert ("martlet_broken", ()) not in samples


def test_every_series_of_ours_is_named_by_the_rule_and_explained() -> None:
    metrics = BrokerMetrics()
    metrics.topic("orders")
    registry = MetricsRegistry(metrics, api_names={}, info={"version": "1"})
    text = registry.render().decode()
    for family in text_string_to_metric_families(text):
        if family.name.startswith(("process_", "python_gc_")):
            continue
        assert re.fullmatch(r"martlet_[a-z0-9_]+", family.name)
        assert family.documentation.endswith(".")
    assert "text/plain" in registry.content_type


def test_a_table_of_gauges_has_a_series_for_each_row_at_the_moment_of_the_scrape() -> None:
    metrics = BrokerMetrics()
    counts = {("classic", "Stable"): 2.0}
    metrics.watch_table("martlet_things", "Things.", ("type", "state"), counts.items)
    assert scrape(metrics)["martlet_things", (("state", "Stable"), ("type", "classic"))] == 2
    counts[("consumer", "Empty")] = 1.0
    assert scrape(metrics)["martlet_things", (("state", "Empty"), ("type", "consumer"))] == 1


def test_what_groups_do_is_counted() -> None:
    metrics = BrokerMetrics(group_rebalances=3, offset_commits=40)
    metrics.coordinator_load_seconds.observe(0.2)
    samples = scrape(metrics)
    assert samples["martlet_group_rebalances_total", ()] == 3
    assert samples["martlet_offset_commits_total", ()] == 40
    assert samples["martlet_coordinator_load_seconds_count", ()] == 1
