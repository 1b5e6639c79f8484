"""Kafka's own measuring programs, run against each system that speaks its protocol: Kafka's Java client is the load."""

import re
from collections.abc import Iterator
from typing import Final

from bench.peers.report import RATE, Sample
from bench.peers.session import Session
from bench.peers.systems.cache import run_tool
from bench.peers.systems.kafka import java
from bench.processes import ProcessFailed

_RATE: Final = re.compile(r"([\d.]+) records/sec")
_JVM: Final = ("-Xmx512M",)


def tools(session: Session) -> Iterator[Sample]:
    """kafka-producer-perf-test and kafka-consumer-perf-test with 1 KB values."""
    count = session.context.sized(500_000, 2_000)
    queue, servers = session.queue(), session.running.servers
    command = java(
        "org.apache.kafka.tools.ProducerPerformance", "--topic", queue, "--num-records", str(count), "--record-size",
        "1024", "--throughput", "-1", "--bootstrap-server", servers, jvm=_JVM,
    )  # fmt: skip
    text = run_tool(command)
    yield session.sample(f"producer-perf-test, 1 KB, {session.durability}", RATE, "msg/s", producer_rate(text))
    command = java(
        "org.apache.kafka.tools.ConsumerPerformance", "--topic", queue, "--num-records", str(count),
        "--bootstrap-server", servers, "--timeout", "60000", jvm=_JVM,
    )  # fmt: skip
    case = f"consumer-perf-test, 1 KB, {session.durability}"
    yield session.sample(case, RATE, "msg/s", consumer_rate(run_tool(command)))


def producer_rate(text: str) -> float:
    """Of the last line that tells one: the whole run's."""
    found = _RATE.findall(text)
    if not found:
        raise ProcessFailed(f"kafka-producer-perf-test printed no rate: {text[-300:]}")
    return float(found[-1])


def consumer_rate(text: str) -> float:
    """The column of messages a second while fetching, without the time that joining the group took."""
    lines = [line.split(", ") for line in text.splitlines() if ", " in line]
    names = next((line for line in lines if "fetch.nMsg.sec" in line), None)
    if names is None or lines[-1] is names or len(lines[-1]) != len(names):
        raise ProcessFailed(f"kafka-consumer-perf-test printed no table: {text[-300:]}")
    return float(lines[-1][names.index("fetch.nMsg.sec")])
