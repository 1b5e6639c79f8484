"""The counters of one broker process: plain integers that the hot path adds to, and nothing else.

A handler writes `counters.bytes_in += n` and is done; names, labels and text are made by `exposition` when
metrics are scraped. So counting costs one attribute load and one integer add, and this module imports no
metrics library.

Rules: one event loop writes; a value is never reset while the process lives; whatever can become a label has
a bound known beforehand (API keys, error codes, the reasons below) or a limit (topics).

Proved by: tests/unit/observe/test_metrics.py.
"""

from bisect import bisect_left
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Final, NamedTuple

from martlet.base.invariant import invariant

NO_API: Final = -1
"""Stands for the API where something failed that no request had asked for."""

OTHER_TOPICS: Final = "(other)"
"""The label that gathers the topics past the limit; no topic can be called so."""

TOPIC_SERIES_MAX_DEFAULT: Final = 200

FLUSH_SECONDS: Final = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 10.0)
LOAD_SECONDS: Final = (0.01, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 300.0)
LOOP_LAG_SECONDS: Final = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0)


class RejectReason(StrEnum):
    """Why a connection was refused before its first byte was read."""

    CONNECTIONS_MAX = "connections_max"
    ADDRESS_MAX = "connections_per_address_max"
    ADDRESS_RATE = "connections_per_address_rate"
    LOST_CLUSTER = "lost_cluster"


class DropReason(StrEnum):
    """Why the broker, and not the client, ended a connection that was being served."""

    PROTOCOL_VIOLATION = "protocol_violation"
    UNSUPPORTED_REQUEST = "unsupported_request"
    ACKS_0_FAILURE = "acks_0_failure"
    IDLE = "idle"
    STALLED = "stalled"
    INTERNAL_ERROR = "internal_error"
    LOST_CLUSTER = "lost_cluster"
    AUTHENTICATION = "authentication"
    """The client could not prove who it is, or does not any more."""


@dataclass(slots=True)
class TopicCounters:
    """What went through one topic here; a partition asks for it once and keeps it."""

    messages_in: int = 0
    batches_in: int = 0
    bytes_in: int = 0
    """Record bytes appended."""
    bytes_out: int = 0
    """Record bytes put into fetch answers."""
    fetches: int = 0
    """Times a partition of the topic was part of an answered fetch."""
    replica_bytes_in: int = 0
    """Record bytes copied from leaders."""
    replica_bytes_out: int = 0
    """Record bytes given to followers."""


class DurationHistogram:
    """Durations in seconds, sorted into buckets fixed at birth; the last slot of `counts` is past every bound."""

    __slots__ = ("bounds", "counts", "total_seconds")

    def __init__(self, bounds: tuple[float, ...]) -> None:
        invariant(list(bounds) == sorted(set(bounds)), "the bounds of a histogram rise strictly")
        self.bounds = bounds
        self.counts = [0] * (len(bounds) + 1)
        self.total_seconds = 0.0

    def observe(self, seconds: float) -> None:
        self.counts[bisect_left(self.bounds, seconds)] += 1
        self.total_seconds += seconds

    @property
    def count(self) -> int:
        return sum(self.counts)


class Gauge(NamedTuple):
    """A value read only at a scrape, e.g. the free bytes of the disk."""

    name: str
    text: str
    read: Callable[[], float]


class GaugeTable(NamedTuple):
    """Values with labels, read only at a scrape, e.g. how many groups are in which state.

    What `read` gives must be bounded by something else than what clients do.
    """

    name: str
    text: str
    labels: tuple[str, ...]
    read: Callable[[], Iterable[tuple[tuple[str, ...], float]]]


@dataclass(slots=True)
class BrokerMetrics:
    """Everything one broker counts. Created by the wiring, handed to what counts, read by `exposition`.

    What is counted by API key counts served APIs only, so that no client can make it grow.
    """

    topic_series_max: int = TOPIC_SERIES_MAX_DEFAULT
    bytes_in: int = 0
    """Bytes received on Kafka connections."""
    bytes_out: int = 0
    """Bytes sent on Kafka connections."""
    requests_total: Counter[int] = field(default_factory=Counter)
    errors_total: Counter[tuple[int, int]] = field(default_factory=Counter)
    """Errors in answers, by API key and protocol error code; see `count_errors`."""
    connections_open: int = 0
    connections_accepted: int = 0
    connections_rejected: dict[RejectReason, int] = field(default_factory=lambda: dict.fromkeys(RejectReason, 0))
    connections_dropped: dict[DropReason, int] = field(default_factory=lambda: dict.fromkeys(DropReason, 0))
    parked_fetches: int = 0
    """Fetches waiting for data at this moment."""
    parked_produces: int = 0
    """Publishes waiting for a flush or for replicas at this moment."""
    flush_seconds: DurationHistogram = field(default_factory=lambda: DurationHistogram(FLUSH_SECONDS))
    flush_failures: int = 0
    damaged_reads: int = 0
    scrubbed_bytes: int = 0
    scrub_passes: int = 0
    unclean_elections: int = 0
    """Elections begun here of replicas that may lack acknowledged messages."""
    loop_lag_seconds: DurationHistogram = field(default_factory=lambda: DurationHistogram(LOOP_LAG_SECONDS))
    group_rebalances: int = 0
    """New assignments of groups, by clients or by the broker."""
    offset_commits: int = 0
    """Offsets written, one for each partition of each commit."""
    replica_fetch_errors: int = 0
    """Fetches from leaders that failed, and partitions of them that did."""
    coordinator_load_seconds: DurationHistogram = field(default_factory=lambda: DurationHistogram(LOAD_SECONDS))
    gauges: list[Gauge] = field(default_factory=list)
    gauge_tables: list[GaugeTable] = field(default_factory=list)
    other_topics: TopicCounters = field(default_factory=TopicCounters)
    topics: dict[str, TopicCounters] = field(default_factory=dict)

    def count_errors(self, api_key: int, codes: Iterable[int]) -> None:
        """The errors that one answer of this API tells; a zero among them is none."""
        for code in codes:
            if code:
                self.errors_total[api_key, code] += 1

    def topic(self, name: str) -> TopicCounters:
        """The counters of a topic, to be asked for once per partition and kept.

        Past `topic_series_max` topics the rest share one object, so a client that creates topics cannot
        make the metrics grow without end.
        """
        counters = self.topics.get(name)
        if counters is None:
            if len(self.topics) >= self.topic_series_max:
                return self.other_topics
            counters = self.topics[name] = TopicCounters()
        return counters

    def forget_topic(self, name: str) -> None:
        """Drop the series of a deleted topic; its place is free for another."""
        self.topics.pop(name, None)

    def watch(self, name: str, text: str, read: Callable[[], float]) -> None:
        """Export what `read` returns as gauge `name`; it is called at each scrape and must be quick."""
        self._check_name(name)
        self.gauges.append(Gauge(name, text, read))

    def watch_table(
        self,
        name: str,
        text: str,
        labels: tuple[str, ...],
        read: Callable[[], Iterable[tuple[tuple[str, ...], float]]],
    ) -> None:
        """Export what `read` returns as gauge `name`, one series for each row of label values."""
        self._check_name(name)
        self.gauge_tables.append(GaugeTable(name, text, labels, read))

    def _check_name(self, name: str) -> None:
        invariant(name.startswith("martlet_"), "a metric's name begins with martlet_")
        taken = {gauge.name for gauge in self.gauges} | {table.name for table in self.gauge_tables}
        invariant(name not in taken, "a gauge is registered once")
