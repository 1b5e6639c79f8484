"""`./dev bench failover`: how long a killed leader stops publishing, and that a clean stop is not noticed.

    python -m bench.failover [--quick] [--only kill|stop] [--rounds N] [--json FILE] [--markdown FILE] [--work-dir DIR]

Three brokers with the shipped settings, a real etcd, one partition with replication 3 and `min.insync.replicas` 2, and
a confluent-kafka producer (acks=all, idempotence) that publishes a small message every few milliseconds. `--rounds` is
how often a leader is killed, and how often one is stopped.

- `kill`: kill -9 of the leader. The gap is from the kill to the first acknowledgement by another leader, as the client
  sees it: lease, election, and the client's own way to the new leader. It may be the lease and two seconds.
- `stop`: a clean stop of the leader. The gap is the longest time between two acknowledgements from the signal until the
  process has ended. No message may fail, no error may reach the program, and it may be one second.

A stopped or killed broker comes back, and all replicas are in sync, before the next round, which has a producer of its
own. One that has seen a broker restart a moment ago is another matter: librdkafka does not go back to a broker that
refused it for up to 10 s (`reconnect.backoff.max.ms`), and if that broker leads by then, it waits by itself.
"""

import itertools
import statistics
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Final, Self

from confluent_kafka import KafkaError, Message, Producer
from tests.cluster.running_cluster import RunningCluster

from bench.command import Suites, run_command
from bench.report import Figure, say, value_at_most
from bench.rounds import Context

LEASE_MS: Final = 6_000
_QUICK_LEASE_MS: Final = 2_000
_AFTER_LEASE_SECONDS: Final = 2.0
_STOP_GAP_SECONDS_MAX: Final = 1.0
_TOPIC: Final = "failover"
_EVERY_SECONDS: Final = 0.005
_RESUME_SECONDS_MAX: Final = 60.0
_BEFORE_SECONDS: Final = 1.0


class SteadyPublisher:
    """Publishes all the time and remembers when each message was acknowledged. A context manager."""

    def __init__(self, servers: str, topic: str = _TOPIC) -> None:
        self._topic = topic
        self.acknowledged_at: list[float] = []
        self.errors: list[str] = []
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name="publisher", daemon=True)
        self._producer = Producer(
            {
                "bootstrap.servers": servers,
                "enable.idempotence": True,
                "acks": "all",
                "linger.ms": 0,
                "error_cb": self._on_error,
                "log_level": 0,
            }
        )

    def __enter__(self) -> Self:
        self._thread.start()
        self.wait_for_news(time.perf_counter())
        return self

    def __exit__(self, *_: object) -> None:
        self._stopping.set()
        self._thread.join(10)
        self._producer.flush(30)

    def wait_for_news(self, since: float) -> float:
        """The moment of the first acknowledgement after `since`."""
        deadline = time.perf_counter() + _RESUME_SECONDS_MAX
        while not (times := self.times_after(since)):
            if time.perf_counter() > deadline:
                raise TimeoutError(f"nothing was acknowledged for {_RESUME_SECONDS_MAX:.0f} s: {self.errors[-3:]}")
            time.sleep(0.002)
        return times[0]

    def times_after(self, since: float) -> list[float]:
        recent = itertools.takewhile(lambda moment: moment > since, reversed(self.acknowledged_at))
        return list(recent)[::-1]

    def _run(self) -> None:
        while not self._stopping.is_set():
            try:
                self._producer.produce(self._topic, b"x" * 100, on_delivery=self._on_delivery)
            except BufferError:
                self._producer.poll(0.1)
            self._producer.poll(_EVERY_SECONDS)

    def _on_delivery(self, error: KafkaError | None, _message: Message) -> None:
        if error is None:
            self.acknowledged_at.append(time.perf_counter())
        else:
            self.errors.append(f"a message failed: {error}")

    def _on_error(self, error: KafkaError) -> None:
        # librdkafka tells of lost connections by the way; it deals with them itself.
        if error.fatal() or error.code() == KafkaError._ALL_BROKERS_DOWN:  # noqa: SLF001 - librdkafka's name
            self.errors.append(str(error))


def kills(context: Context) -> list[Figure]:
    """kill -9 of the leader."""
    lease_ms = context.sized(LEASE_MS, _QUICK_LEASE_MS)
    target = value_at_most(lease_ms / 1000 + _AFTER_LEASE_SECONDS, "s")
    figure = Figure("no publish after kill -9 of a leader", "s", target=target)
    say("kill -9 ...")
    errors: list[str] = []
    with _cluster(context, lease_ms) as cluster:
        for number in range(context.rounds):
            with SteadyPublisher(cluster.bootstrap_servers) as publisher:
                time.sleep(_BEFORE_SECONDS)
                # Asked late: every five minutes the controller gives leaderships back to whom they belong.
                leader = cluster.leader_of(_TOPIC)
                killed_at = time.perf_counter()
                cluster.kill(leader)
                # What the dead leader still answered may be on its way.
                settled_at = killed_at + 0.05
                figure.add(publisher.wait_for_news(settled_at) - killed_at)
            errors += publisher.errors
            say(f"  kill {number + 1} of {context.rounds}: {figure.values[-1]:.2f} s")
            cluster.start(leader)
            cluster.wait_in_sync(_TOPIC)
    figure.note = f"lease {lease_ms / 1000:g} s; {_distribution(figure.values)}; {len(errors)} messages failed"
    return [figure]


def stops(context: Context) -> list[Figure]:
    """A clean stop of the leader."""
    lease_ms = context.sized(LEASE_MS, _QUICK_LEASE_MS)
    gap = Figure("longest pause during a clean stop", "s", target=value_at_most(_STOP_GAP_SECONDS_MAX, "s"))
    failed = Figure("client errors during a clean stop", "errors", target=value_at_most(0, "errors"))
    say("clean stop ...")
    errors: list[str] = []
    with _cluster(context, lease_ms) as cluster:
        for number in range(context.rounds):
            leader = cluster.leader_of(_TOPIC)
            with SteadyPublisher(cluster.bootstrap_servers) as publisher:
                time.sleep(_BEFORE_SECONDS)
                begun_at = time.perf_counter() - 0.1
                seconds = cluster.stop(leader)
                publisher.wait_for_news(time.perf_counter())
                gap.add(longest_pause(publisher.times_after(begun_at)))
            failed.add(len(publisher.errors))
            errors += publisher.errors
            say(f"  stop {number + 1} of {context.rounds}: {gap.values[-1]:.2f} s, stopped after {seconds:.2f} s")
            cluster.start(leader)
            cluster.wait_in_sync(_TOPIC)
    failed.note = "; ".join(errors[:2])
    gap.note = _distribution(gap.values)
    return [gap, failed]


@contextmanager
def _cluster(context: Context, lease_ms: int) -> Iterator[RunningCluster]:
    """With the topic in it."""
    settings: dict[str, Any] = {"lease_ms": lease_ms, "replica_lag_time_max_ms": 30_000}
    with context.directory("cluster") as place, RunningCluster(3, direct=True, directory=place, **settings) as cluster:
        cluster.create_topic(_TOPIC, partitions=1, replication=3, config={"min.insync.replicas": "2"})
        yield cluster


def longest_pause(times: Sequence[float]) -> float:
    """The longest time between two of these moments."""
    return max((later - earlier for earlier, later in itertools.pairwise(times)), default=0.0)


def _distribution(values: Sequence[float]) -> str:
    """Smallest, quartiles, 95th, largest."""
    if len(values) < 2:
        return ", ".join(f"{value:.2f} s" for value in values)
    cuts = statistics.quantiles(values, n=20, method="inclusive")
    named = {"min": min(values), "p25": cuts[4], "p50": cuts[9], "p75": cuts[14], "p95": cuts[18], "max": max(values)}
    return ", ".join(f"{name} {value:.2f}" for name, value in named.items())


_SUITES: Final[Suites] = {"kill": kills, "stop": stops}


if __name__ == "__main__":
    sys.exit(run_command("failover", "Time without a publish.", _SUITES, rounds=50, quick_rounds=3))
