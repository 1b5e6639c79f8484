"""Prometheus text made from `BrokerMetrics` at the moment of a scrape; the only importer of prometheus_client.

Names follow `martlet_<thing>_<unit>[_total]` in base units (bytes, seconds). Counters that are still zero and
belong to a large label set (APIs, error codes) are left out until they move, so a scrape stays short.

A scrape costs about 30 µs of the event loop per topic with its own series; `topic_series_max` bounds that.

Proved by: tests/unit/observe/test_exposition.py.
"""

from collections.abc import Iterable, Iterator, Mapping
from typing import Final

from prometheus_client import CollectorRegistry, GCCollector, ProcessCollector, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric
from prometheus_client.exposition import CONTENT_TYPE_LATEST
from prometheus_client.registry import Collector

from martlet.base.errors import MartletError, error_code
from martlet.observe.metrics import NO_API, OTHER_TOPICS, BrokerMetrics, DurationHistogram, TopicCounters

_TOPIC_SERIES: Final = (
    ("messages_in", "martlet_topic_messages_in", "Messages appended."),
    ("batches_in", "martlet_topic_batches_in", "Record batches appended."),
    ("bytes_in", "martlet_topic_bytes_in", "Record bytes appended."),
    ("bytes_out", "martlet_topic_bytes_out", "Record bytes put into fetch answers."),
    ("fetches", "martlet_topic_fetches", "Answered fetches that named a partition of the topic."),
    ("replica_bytes_in", "martlet_topic_replica_bytes_in", "Record bytes copied from leaders."),
    ("replica_bytes_out", "martlet_topic_replica_bytes_out", "Record bytes given to followers."),
)

_NO_API_NAME: Final = "(broker)"


class MetricsRegistry:
    """Turns one broker's metrics and those of its process into the text that Prometheus reads."""

    content_type: Final = CONTENT_TYPE_LATEST

    def __init__(self, metrics: BrokerMetrics, *, api_names: Mapping[int, str], info: Mapping[str, str]) -> None:
        self._registry = CollectorRegistry(auto_describe=False)
        self._registry.register(_BrokerCollector(metrics, api_names, info))
        ProcessCollector(registry=self._registry)
        GCCollector(registry=self._registry)

    def render(self) -> bytes:
        return generate_latest(self._registry)


class _BrokerCollector(Collector):
    def __init__(self, metrics: BrokerMetrics, api_names: Mapping[int, str], info: Mapping[str, str]) -> None:
        self._metrics = metrics
        self._api_names = api_names
        self._info = info

    def collect(self) -> Iterator[Metric]:
        yield _info(self._info)
        yield from self._network()
        yield from self._connections()
        yield from self._waiting()
        yield from self._groups()
        yield from self._replicas()
        yield from _topics(self._metrics)
        yield from _gauges(self._metrics)

    def _network(self) -> Iterator[Metric]:
        metrics = self._metrics
        yield CounterMetricFamily("martlet_received_bytes", "Bytes received on Kafka connections.", metrics.bytes_in)
        yield CounterMetricFamily("martlet_sent_bytes", "Bytes sent on Kafka connections.", metrics.bytes_out)
        yield _by_label(
            CounterMetricFamily("martlet_requests", "Requests taken, by API.", labels=["api"]),
            ((self._api_names.get(key, str(key)), count) for key, count in sorted(metrics.requests_total.items())),
        )
        errors = CounterMetricFamily("martlet_request_errors", "Errors answered.", labels=["api", "error"])
        for (key, code), count in sorted(metrics.errors_total.items()):
            api = _NO_API_NAME if key == NO_API else self._api_names.get(key, str(key))
            errors.add_metric([api, error_code(code).name.lower()], count)
        yield errors

    def _connections(self) -> Iterator[Metric]:
        metrics = self._metrics
        yield GaugeMetricFamily("martlet_connections", "Kafka connections open now.", metrics.connections_open)
        yield CounterMetricFamily(
            "martlet_connections_accepted", "Kafka connections accepted.", metrics.connections_accepted
        )
        yield _by_label(
            CounterMetricFamily("martlet_connections_rejected", "Kafka connections refused.", labels=["reason"]),
            metrics.connections_rejected.items(),
        )
        yield _by_label(
            CounterMetricFamily("martlet_connections_dropped", "Connections the broker ended.", labels=["reason"]),
            metrics.connections_dropped.items(),
        )

    def _waiting(self) -> Iterator[Metric]:
        metrics = self._metrics
        yield GaugeMetricFamily("martlet_parked_fetches", "Fetches waiting for data.", metrics.parked_fetches)
        yield GaugeMetricFamily(
            "martlet_parked_produces", "Publishes waiting for a flush or for replicas.", metrics.parked_produces
        )
        yield _histogram("martlet_flush_seconds", "Time to force a log to the disk.", metrics.flush_seconds)
        yield CounterMetricFamily(
            "martlet_damaged_reads",
            "Reads refused because the copy here is damaged or unreadable there.",
            metrics.damaged_reads,
        )
        yield CounterMetricFamily(
            "martlet_scrubbed_bytes", "Bytes on disk checked for damage in the background.", metrics.scrubbed_bytes
        )
        yield CounterMetricFamily(
            "martlet_scrub_passes", "Times that all on disk has been checked for damage.", metrics.scrub_passes
        )
        yield CounterMetricFamily(
            "martlet_unclean_elections",
            "Elections begun by this broker of a leader that may lack acknowledged messages.",
            metrics.unclean_elections,
        )
        yield CounterMetricFamily("martlet_flush_failures", "Flushes the disk failed.", metrics.flush_failures)
        yield _histogram("martlet_loop_lag_seconds", "Lateness of the event loop.", metrics.loop_lag_seconds)

    def _groups(self) -> Iterator[Metric]:
        metrics = self._metrics
        yield CounterMetricFamily("martlet_group_rebalances", "New assignments of groups.", metrics.group_rebalances)
        yield CounterMetricFamily(
            "martlet_offset_commits", "Offsets committed, one for each partition.", metrics.offset_commits
        )
        yield _histogram(
            "martlet_coordinator_load_seconds",
            "Time to load one partition of a coordinator.",
            metrics.coordinator_load_seconds,
        )

    def _replicas(self) -> Iterator[Metric]:
        errors = self._metrics.replica_fetch_errors
        yield CounterMetricFamily("martlet_replica_fetch_errors", "Fetches from leaders that failed.", errors)


def _info(info: Mapping[str, str]) -> Metric:
    family = GaugeMetricFamily("martlet_build_info", "What is running, in the labels.", labels=list(info))
    family.add_metric(list(info.values()), 1)
    return family


def _by_label(family: CounterMetricFamily, values: Iterable[tuple[str, int]]) -> Metric:
    for label, count in values:
        family.add_metric([label], count)
    return family


def _histogram(name: str, text: str, histogram: DurationHistogram) -> Metric:
    buckets: list[tuple[str, float]] = []
    below = 0
    for bound, count in zip((*map(str, histogram.bounds), "+Inf"), histogram.counts, strict=True):
        below += count
        buckets.append((bound, below))
    return HistogramMetricFamily(name, text, buckets, histogram.total_seconds)


def _topics(metrics: BrokerMetrics) -> Iterator[Metric]:
    rows: list[tuple[str, TopicCounters]] = sorted(metrics.topics.items())
    rows.append((OTHER_TOPICS, metrics.other_topics))
    for attribute, name, text in _TOPIC_SERIES:
        family = CounterMetricFamily(name, text, labels=["topic"])
        for topic, counters in rows:
            family.add_metric([topic], getattr(counters, attribute))
        yield family


def _gauges(metrics: BrokerMetrics) -> Iterator[Metric]:
    for gauge in metrics.gauges:
        try:
            value = gauge.read()
        except MartletError:
            # A failing disk must not hide every other number; the missing series tells.
            continue
        yield GaugeMetricFamily(gauge.name, gauge.text, value)
    for table in metrics.gauge_tables:
        family = GaugeMetricFamily(table.name, table.text, labels=table.labels)
        for labels, value in table.read():
            family.add_metric(labels, value)
        yield family
