"""`./dev demo`: the whole story in one go. The queue, payments published, fraud found by Spark, alerts as they arrive.

Nothing is special about it: the broker is `martlet up`, the pipeline is `martlet pipeline run fraud`, the alerts are
read from their topic. At the end the alerts are compared with what the rules say of the payments published.
"""

import argparse
import asyncio
import json
import os
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any, Final, cast

from bench.payments import CardPayment, PaymentsPlan, expected_alerts, make_payments
from bench.processes import ROOT, BrokerProcess, end_with_children
from martlet.base.addresses import parse_bootstrap
from martlet.base.ids import TopicPartition
from martlet.client.admin import Admin, NewTopic
from martlet.client.cluster import Cluster
from martlet.client.fetcher import Fetcher, FetcherOptions
from martlet.client.producer import Producer
from martlet.spark.pipelines.catalogue import FraudOptions
from martlet.spark.pipelines.fraud_rules import FraudLimits

PAYMENTS: Final = "payments"
ALERTS: Final = "fraud-alerts"
PARTITIONS: Final = 4
_MARTLET: Final = [sys.executable, "-c", "from martlet.cli.main import main; main()"]
_TICKS_PER_SECOND: Final = 10
_WARM_UP: Final = 50
_PATIENCE_SECONDS: Final = 240.0


@dataclass
class Seen:
    """What has happened so far; each field has one writer."""

    published: int = 0
    alerts: Counter[str] = field(default_factory=Counter)
    status: dict[str, Any] = field(default_factory=dict)

    @property
    def flow(self) -> dict[str, Any]:
        flows = self.status.get("flows") or [{}]
        return cast(dict[str, Any], flows[0])


def say(text: str) -> None:
    print(text, flush=True)


class FraudPipeline:
    """`martlet pipeline run fraud` in a process of its own; its status lines go to `seen`."""

    def __init__(self, bootstrap: str, state: Path, seen: Seen) -> None:
        self._state = state
        self._seen = seen
        self._environment = os.environ | {"MARTLET_BOOTSTRAP": bootstrap, "PYTHONPATH": str(ROOT / "src")}
        # A small heap and few partitions: it shares two cores with the broker and the publisher.
        settings = {"spark.sql.shuffle.partitions": "2", "spark.driver.memory": "768m"}
        confs = [part for name, value in settings.items() for part in ("--conf", f"{name}={value}")]
        command = [*_MARTLET, "pipeline", "run", "fraud", "--json", "--state", str(state), "--every", "2", *confs]
        self._process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=self._environment)
        threading.Thread(target=self._read, daemon=True).start()

    def _read(self) -> None:
        for line in cast(IO[str], self._process.stdout):
            self._seen.status = json.loads(line)

    def check(self) -> None:
        if self._process.poll() not in (None, 0):
            raise SystemExit(f"the pipeline ended; see {self._state / 'fraud' / 'spark.log'}")

    def look(self) -> dict[str, Any]:
        """Its status as `martlet pipeline status` has it now."""
        asked = [*_MARTLET, "pipeline", "status", "fraud", "--json", "--state", str(self._state)]
        done = subprocess.run(asked, capture_output=True, text=True, env=self._environment, check=True, timeout=60)
        return cast(dict[str, Any], json.loads(done.stdout))

    def stop(self) -> None:
        asked = [*_MARTLET, "pipeline", "stop", "fraud", "--state", str(self._state)]
        subprocess.run(asked, env=self._environment, check=True, timeout=120, capture_output=True)
        self._process.wait(60)

    def kill(self) -> None:
        if self._process.poll() is None:
            self._process.kill()


async def publish(cluster: Cluster, payments: list[CardPayment], seconds: float, seen: Seen) -> None:
    """All payments, evenly over the seconds."""
    share = max(1, int(len(payments) / (seconds * _TICKS_PER_SECOND)))
    loop = asyncio.get_running_loop()
    begun = loop.time()
    async with Producer(cluster) as producer:
        for tick, start in enumerate(range(0, len(payments), share)):
            for each in payments[start : start + share]:
                await producer.send(PAYMENTS, each.value(), key=each.card.encode())
                seen.published += 1
            await asyncio.sleep(max(0.0, begun + (tick + 1) / _TICKS_PER_SECOND - loop.time()))
        await producer.flush()


async def show_alerts(cluster: Cluster, seen: Seen) -> None:
    """Each alert as it arrives, until cancelled."""
    async with Fetcher(cluster, FetcherOptions(max_wait_ms=200)) as fetcher:
        fetcher.assign({TopicPartition(ALERTS, index): 0 for index in range(PARTITIONS)})
        while True:
            for fetched in await fetcher.fetch():
                for record in fetched.records(batch_bytes_max=1 << 26):
                    alert = json.loads(record.value or b"{}")
                    seen.alerts[alert["rule"]] += 1
                    say(f"  ALERT  {alert['at'][11:19]}  card {alert['card']}  {alert['rule']:9} {alert['detail']}")


async def wait_until_processed(pipeline: FraudPipeline, seen: Seen, total: int) -> None:
    """Until the pipeline has read all that was published."""
    deadline = time.monotonic() + _PATIENCE_SECONDS
    while seen.flow.get("rows", 0) < total:
        pipeline.check()
        if time.monotonic() > deadline:
            raise SystemExit(
                f"after {_PATIENCE_SECONDS:.0f} s only {seen.flow.get('rows', 0)} of {total} are processed"
            )
        await asyncio.sleep(0.2)


async def tell_progress(seen: Seen, total: int) -> None:
    while True:
        await asyncio.sleep(5)
        flow = seen.flow
        state = seen.status.get("state", "starting")
        say(
            f"  [{state}] published {seen.published:,} of {total:,}, processed {flow.get('rows', 0):,}, "
            f"alerts {seen.alerts.total()}"
        )


async def play(
    bootstrap: str, pipeline: FraudPipeline, payments: list[CardPayment], seconds: float, seen: Seen
) -> None:
    async with Cluster(parse_bootstrap(bootstrap)) as cluster:
        for topic in (PAYMENTS, ALERTS):
            await Admin(cluster).create_topic(NewTopic(name=topic, partitions=PARTITIONS, configs={}))
        watchers = [
            asyncio.create_task(show_alerts(cluster, seen)),
            asyncio.create_task(tell_progress(seen, len(payments))),
        ]
        try:
            while seen.status.get("state", "starting") == "starting":
                pipeline.check()
                await asyncio.sleep(0.2)
            say("Spark is up. The first batch takes longest: a few payments to warm it up ...")
            await publish(cluster, payments[:_WARM_UP], 1.0, seen)
            await wait_until_processed(pipeline, seen, _WARM_UP)
            say(f"Publishing {len(payments) - _WARM_UP:,} payments over {seconds:.0f} s ...")
            await publish(cluster, payments[_WARM_UP:], seconds, seen)
            await wait_until_processed(pipeline, seen, len(payments))
            # The alerts of the last batch are on their way to us.
            await asyncio.sleep(1.5)
        finally:
            for watcher in watchers:
                watcher.cancel()


def closing_table(seen: Seen, status: dict[str, Any], expected: Counter[str], seconds: float) -> str:
    flow = status["flows"][0]
    rows = [
        ("payments published", f"{seen.published:,}"),
        ("payments processed", f"{flow['rows']:,}"),
        ("lag", f"{flow['lag_messages']} messages"),
        ("cards remembered", f"{flow['state_rows']:,}"),
        ("last batch", f"{flow['batch_ms'] / 1000:.1f} s"),
    ]
    rules = sorted(expected.keys() | seen.alerts.keys())
    rows += [(f"alerts: {rule}", f"{seen.alerts[rule]} of {expected[rule]} expected") for rule in rules]
    rows.append(("seconds in all", f"{seconds:.0f}"))
    width = max(len(name) for name, _ in rows)
    return "\n".join(f"  {name.ljust(width)}  {value}" for name, value in rows)


def run_demo(work: Path, plan: PaymentsPlan, seconds: float) -> int:
    begun = time.monotonic()
    seen = Seen()
    payments = make_payments(plan, int(time.time() * 1000))
    defaults = FraudOptions()
    limits = FraudLimits(
        defaults.velocity_payments, defaults.velocity_seconds, defaults.amount_max, defaults.amount_factor
    )
    expected = Counter(alert.rule for _, alert in expected_alerts(payments, limits))
    with BrokerProcess(work / "broker") as broker:
        broker.start_and_wait()
        bootstrap = f"127.0.0.1:{broker.port}"
        say(f"The queue is up at {bootstrap}. Starting the fraud pipeline on Spark ...")
        pipeline = FraudPipeline(bootstrap, work / "pipelines", seen)
        try:
            asyncio.run(play(bootstrap, pipeline, payments, seconds, seen))
            status = pipeline.look()
            pipeline.stop()
        finally:
            pipeline.kill()
    say(f"\n{closing_table(seen, status, expected, time.monotonic() - begun)}")
    return 0 if seen.alerts == expected and status["flows"][0]["rows"] == len(payments) else 1


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="./dev demo", description="Payments, fraud, alerts: the whole story in one go."
    )
    parser.add_argument("--payments", type=int, default=PaymentsPlan.payments, help="how many")
    parser.add_argument("--seconds", type=float, default=30.0, help="over how long they are published")
    parser.add_argument("--seed", type=int, default=PaymentsPlan.seed)
    parser.add_argument("--keep", type=Path, help="leave all data in this directory")
    arguments = parser.parse_args()
    end_with_children()
    work = arguments.keep or Path(tempfile.mkdtemp(prefix="martlet-demo-"))
    work.mkdir(parents=True, exist_ok=True)
    try:
        return run_demo(work, PaymentsPlan(payments=arguments.payments, seed=arguments.seed), arguments.seconds)
    finally:
        if arguments.keep is None:
            shutil.rmtree(work, ignore_errors=True)


if __name__ == "__main__":
    sys.exit(main())
