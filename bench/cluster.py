"""`./dev bench cluster`: what three brokers with replication 3 take, beside a single broker in the same run.

    python -m bench.cluster [--quick] [--only NAME]... [--rounds N] [--json FILE] [--markdown FILE] [--work-dir DIR]

All processes share this machine, so three brokers do three times the work on the same processors and the same disk: the
ratio says what replication costs here, not what three machines would give. Load, batches and acknowledgements are those
of `bench.throughput`: acks=all, up to five batches of a megabyte unanswered on each connection.

- `publish`: bulk publish to one partition (one leader, two followers), and to three partitions with a leader on each
  broker and a client for each leader. Both keep `min.insync.replicas` at 2.
- `latency`: round trip of one small publish at a light rate: until it is on all in-sync replicas.

Each topic has the flush policy that is the default for its replication: one replica flushes before it acknowledges,
three do not need to.
"""

import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from sim.randomness import SimRandomness
from tests.cluster.running_cluster import RunningCluster

from bench.batches import RequestFile, build_values_batch, bulk_batch, write_requests
from bench.command import Suites, run_command
from bench.processes import BrokerProcess, run_helper
from bench.report import Figure, say
from bench.rounds import MEGABYTE, Context, in_turn, settle
from bench.throughput import publish_load

_TOPIC: Final = "bulk"
_BROKERS: Final = 3
_VALUE_BYTES: Final = 1024
_DISTINCT: Final = 4
_WARMUP_REQUESTS: Final = 40
_RATE: Final = 200.0
_SMALL_BYTES: Final = 100


@dataclass(frozen=True)
class _Load:
    """Requests for one partition, and the port of who leads it."""

    requests: RequestFile
    port: int


def publish(context: Context) -> list[Figure]:
    """One leader, and a leader on each broker."""
    return [
        _publish_figure(context, "publish 1 KB, replication 3, one partition", partitions=1),
        _publish_figure(context, "publish 1 KB, replication 3, a leader on each broker", partitions=_BROKERS),
    ]


def _publish_figure(context: Context, name: str, *, partitions: int) -> Figure:
    say(f"{name} ...")
    figure = Figure(name, "msg/s")
    total_bytes = context.sized(400 * MEGABYTE, 20 * MEGABYTE)

    def three_brokers() -> float:
        with context.directory("cluster") as place, _cluster(place, partitions) as cluster:
            return _rate(_loads(cluster, place, partitions), total_bytes)

    def one_broker() -> float:
        with context.directory("single") as place, BrokerProcess(place) as broker:
            broker.start_and_wait()
            with broker.client() as client:
                client.create_topics([_TOPIC], partitions=partitions)
                client.topic(_TOPIC)
            loads = [_Load(_bulk_requests(place, partition), broker.port) for partition in range(partitions)]
            result = _rate(loads, total_bytes)
            broker.kill()
            return result

    for value, limit in in_turn(context, name, three_brokers, one_broker):
        figure.add(value, limit)
    figure.note = f"{figure.value * _VALUE_BYTES / MEGABYTE:,.0f} MB/s in, three times that written; limit: one broker"
    return figure


@contextmanager
def _cluster(place: Path, partitions: int) -> Iterator[RunningCluster]:
    """Three brokers, directly reachable, with the shipped time limits and the topic in them."""
    settings: dict[str, Any] = {"lease_ms": 6_000, "replica_lag_time_max_ms": 30_000}
    with RunningCluster(_BROKERS, direct=True, directory=place / "brokers", **settings) as cluster:
        config = {"min.insync.replicas": "2"}
        cluster.create_topic(_TOPIC, partitions=partitions, replication=_BROKERS, config=config)
        yield cluster


def _loads(cluster: RunningCluster, place: Path, partitions: int) -> list[_Load]:
    leaders = [cluster.leader_of(_TOPIC, partition) for partition in range(partitions)]
    if len(set(leaders)) < partitions:
        raise RuntimeError(f"leaders are not spread: {leaders}")
    return [
        _Load(_bulk_requests(place, partition), cluster.brokers[leader].port)
        for partition, leader in enumerate(leaders)
    ]


def _bulk_requests(place: Path, partition: int) -> RequestFile:
    batches = [(partition, *bulk_batch(_VALUE_BYTES, seed=seed)) for seed in range(_DISTINCT)]
    return write_requests(place / f"requests-{partition}", _TOPIC, batches)


def _rate(loads: list[_Load], total_bytes: int) -> float:
    """Messages a second over all clients, which begin together."""
    settle()

    def run(load: _Load) -> float:
        more = {"error_at": load.requests.error_at}
        result = run_helper(
            "bench.load_client", publish_load(load.requests, load.port, total_bytes // len(loads), **more)
        )
        return load.requests.messages_of(result["requests"], _WARMUP_REQUESTS) / float(result["seconds"])

    with ThreadPoolExecutor(len(loads)) as pool:
        return sum(pool.map(run, loads))


def latency(context: Context) -> list[Figure]:
    """p50 and p99 of one small publish."""
    say("latency ...")
    median = Figure("publish round trip, replication 3, p50", "µs")
    tail = Figure("publish round trip, replication 3, p99", "µs")
    with context.directory("latency") as place, _cluster(place, 1) as cluster, BrokerProcess(place / "one") as single:
        single.start_and_wait()
        with single.client() as client:
            client.create_topics([_TOPIC])
            client.topic(_TOPIC)
        batch = build_values_batch([SimRandomness(0).token(_SMALL_BYTES)])
        requests = write_requests(place / "small", _TOPIC, [(0, batch, 1)])
        samples = context.sized(1_000, 60)
        for number in range(context.rounds):
            leader = cluster.brokers[cluster.leader_of(_TOPIC)]
            replicated = _round_trips(requests, leader.port, samples)
            alone = _round_trips(requests, single.port, samples)
            for figure, share in ((median, 0.50), (tail, 0.99)):
                figure.add(_at(replicated, share), _at(alone, share))
            now, limit = median.values[-1], median.limits[-1]
            say(f"  round {number + 1} of {context.rounds}: p50 {now:,.0f} beside {limit:,.0f}")
    median.note = f"{_RATE:.0f} a second, {_SMALL_BYTES} B; limit: one broker, which flushes first"
    return [median, tail]


def _round_trips(requests: RequestFile, port: int, samples: int) -> list[float]:
    settle()
    load: dict[str, Any] = {
        "role": "latency",
        "port": port,
        "frames_path": str(requests.path),
        "frame_sizes": requests.sizes,
        "warmup_requests": _WARMUP_REQUESTS,
        "requests": samples,
        "rate": _RATE,
        "error_at": requests.error_at,
    }
    return sorted(run_helper("bench.load_client", load)["microseconds"])


def _at(ordered: list[float], share: float) -> float:
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))]


_SUITES: Final[Suites] = {"publish": publish, "latency": latency}


if __name__ == "__main__":
    sys.exit(run_command("cluster", "Three brokers beside one.", _SUITES, rounds=5, quick_rounds=1))
