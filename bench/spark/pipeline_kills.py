"""`python -m bench.spark.pipeline_kills`: a pipeline killed again and again while messages arrive, judged by content.

Victims, by chance: the driver (the `martlet` process), Spark's JVM (which is the executor too in local mode), a Python
worker or planner, the broker; with `--cluster`, on a standalone cluster of a master and two workers, also an executor
while its driver lives. Everything by kill -9, in the middle of whatever it does. What dies is started again, by Spark
or here, and at the end the pipeline runs until it has caught up.

Judged is what is there against what the topic holds: an archive must hold each message once; a topic written from a
topic must miss none, and its repeats are counted.
"""

import argparse
import asyncio
import contextlib
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import psutil  # type: ignore[import-untyped]
import pyarrow.parquet as pq

from bench.processes import ROOT, BrokerProcess, end_with_children
from bench.report import say
from bench.spark.cluster import SparkCluster
from martlet.base.addresses import parse_bootstrap
from martlet.base.errors import MartletError
from martlet.base.ids import TopicPartition
from martlet.client.admin import Admin, NewTopic
from martlet.client.cluster import Cluster
from martlet.client.fetcher import Fetcher
from martlet.client.offsets import offset_ranges
from martlet.client.producer import Producer
from martlet.spark.pipelines.lake.layouts import open_table

SOURCE: Final = "orders"
COPY: Final = "orders-copy"
PARTITIONS: Final = 3
KINDS: Final = ("parquet", "delta", "topic")
VICTIMS: Final = ("driver", "jvm", "worker", "broker")
CLUSTER_VICTIMS: Final = (*VICTIMS, "executor")
_FLOW: Final = f"""
from martlet.spark.pipelines import flow

@flow(reads="{SOURCE}", writes="{COPY}")
def copy(orders):
    return orders
"""
_FILE: Final = "copy_orders.py"
_STARTS_MAX: Final = 5
_MESSAGES_PER_SECOND: Final = 100
_BATCH: Final = 400
_PATIENCE_SECONDS: Final = 300.0

Content = Counter[tuple[int, bytes]]


class PipelineProcess:
    """The pipeline by its command line, in a process group of its own."""

    def __init__(self, kind: str, bootstrap: str, work: Path, cluster: SparkCluster | None = None) -> None:
        self.work = work
        self._cluster = cluster
        self._state = work / "state"
        (work / _FILE).write_text(_FLOW, "utf-8")
        target = [_FILE] if kind == "topic" else ["archive", "--topic", SOURCE, "--to", "archive", "--layout", kind]
        settings = {
            "spark.sql.shuffle.partitions": "2",
            "spark.driver.memory": "768m",
            "spark.driver.extraJavaOptions": "-XX:+UseSerialGC -XX:TieredStopAtLevel=1",
        }
        master = ["--master", "local[2,3]"]
        if cluster is not None:
            master = ["--master", cluster.url, "--same-env"]
            settings["spark.executor.memory"] = "600m"
            settings["spark.executor.extraJavaOptions"] = settings["spark.driver.extraJavaOptions"]
            settings["spark.executorEnv.PYTHONPATH"] = str(ROOT / "src")
        confs = [part for name, value in settings.items() for part in ("--conf", f"{name}={value}")]
        self._command = [sys.executable, "-c", "from martlet.cli.main import main; main()", "pipeline", "run", *target]
        self._command += ["--name", "victim", "--state", str(self._state), "--bootstrap", bootstrap, *confs]
        self._command += [*master, "--every", "0", "--messages-per-batch", str(_BATCH)]
        self._process: subprocess.Popen[bytes] | None = None

    def start(self, *more: str) -> None:
        with open(self.work / "pipeline.log", "ab") as log:
            self._process = subprocess.Popen(
                [*self._command, *more],
                cwd=self.work,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env=os.environ | {"PYTHONPATH": str(ROOT / "src")},
                start_new_session=True,
            )

    @property
    def process(self) -> subprocess.Popen[bytes]:
        if self._process is None:
            raise RuntimeError("the pipeline was not started")
        return self._process

    def rows(self) -> int:
        """What this run has processed, by its status file."""
        try:
            status: dict[str, Any] = json.loads((self._state / "victim" / "status.json").read_text("utf-8"))
        except (OSError, ValueError):
            return 0
        if status["pid"] != self.process.pid:
            return 0
        return sum(flow["rows"] for flow in status["flows"])

    def wait_for_rows(self, more: int) -> bool:
        """Until it has processed more than N; False when it ended instead."""
        deadline = time.monotonic() + _PATIENCE_SECONDS
        while self.rows() <= more:
            if self.process.poll() is not None:
                return False
            if time.monotonic() > deadline:
                raise SystemExit(f"no progress in {_PATIENCE_SECONDS:.0f} s; see {self.work / 'pipeline.log'}")
            time.sleep(0.1)
        return True

    def victims(self, kind: str) -> list[psutil.Process]:
        driver = psutil.Process(self.process.pid)
        if kind == "driver":
            return [driver]
        executors = [] if self._cluster is None else self._cluster.executors()
        if kind == "executor":
            return executors
        wanted = "java" if kind == "jvm" else "python"
        parents = [driver] if kind == "jvm" else [driver, *executors]
        children = [child for parent in parents for child in _children(parent)]
        return [child for child in children if _name(child).startswith(wanted)]

    def wait_gone(self) -> None:
        """Until nothing of its group is left; what lingers is killed too, as a machine's death would."""
        self.process.wait(60)
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)

    def finish(self) -> None:
        """Run until it has caught up."""
        self.start("--until-end", "--messages-per-batch", "100000")
        if self.process.wait(_PATIENCE_SECONDS):
            raise SystemExit(f"the last run failed; see {self.work / 'pipeline.log'}")


def _children(process: psutil.Process) -> list[psutil.Process]:
    """All below it; none of one that ended meanwhile."""
    try:
        found: list[psutil.Process] = process.children(recursive=True)
    except psutil.NoSuchProcess:
        return []
    return found


def _name(process: psutil.Process) -> str:
    """What it runs; nothing for one that ended meanwhile, as Spark's short-lived ones do."""
    try:
        name: str = process.name()
    except psutil.NoSuchProcess:
        return ""
    return name


@dataclass
class Publisher:
    """Publishes numbered messages from a thread until asked to stop, whatever happens to the broker."""

    bootstrap: str
    numbers: int = 0
    _over: threading.Event = field(default_factory=threading.Event)
    _thread: threading.Thread | None = None

    def start(self) -> None:
        self._thread = threading.Thread(target=lambda: asyncio.run(self._publish()), daemon=True)
        self._thread.start()

    def stop(self) -> None:
        self._over.set()
        if self._thread is not None:
            self._thread.join(60)

    async def _publish(self) -> None:
        async with Cluster(parse_bootstrap(self.bootstrap)) as cluster, Producer(cluster) as producer:
            while not self._over.is_set():
                for _ in range(_MESSAGES_PER_SECOND // 10):
                    self.numbers += 1
                    value = f"{self.numbers}:{random.random()}".encode()
                    await producer.send(SOURCE, value, key=str(self.numbers % 100).encode())
                await asyncio.sleep(0.1)
            await producer.flush()


async def prepare(bootstrap: str) -> None:
    async with Cluster(parse_bootstrap(bootstrap)) as cluster:
        for topic in (SOURCE, COPY):
            await Admin(cluster).create_topic(NewTopic(name=topic, partitions=PARTITIONS, configs={}))


async def topic_content(bootstrap: str, topic: str) -> Content:
    """Every message of a topic: its partition and value."""
    content: Content = Counter()
    async with Cluster(parse_bootstrap(bootstrap)) as cluster, Fetcher(cluster) as fetcher:
        held = await offset_ranges(cluster, [TopicPartition(topic, index) for index in range(PARTITIONS)])
        fetcher.assign({partition: offsets.start for partition, offsets in held.items()})
        while any(fetcher.positions[partition] < offsets.stop for partition, offsets in held.items()):
            for fetched in await fetcher.fetch():
                for record in fetched.records(batch_bytes_max=1 << 28):
                    content[fetched.partition.partition, record.value or b""] += 1
    return content


def archive_content(path: Path, layout: str) -> Content:
    content: Content = Counter()
    table = open_table(str(path), layout)
    for file in table.files():
        rows = pq.read_table(table.location(file), columns=["partition", "value"], partitioning=None)
        content.update(zip(rows["partition"].to_pylist(), rows["value"].to_pylist(), strict=True))
    return content


@dataclass(frozen=True)
class Verdict:
    """What the killing came to."""

    kills: Counter[str]
    messages: int
    missing: int
    repeated: int

    def is_good(self, kind: str) -> bool:
        return self.messages > 0 and self.missing == 0 and (kind == "topic" or self.repeated == 0)


def judge(wanted: Content, found: Content, kills: Counter[str], kind: str) -> Verdict:
    """Compare by content; a copy may put a message into another partition."""
    if kind == "topic":
        wanted, found = _without_partitions(wanted), _without_partitions(found)
    return Verdict(kills, wanted.total(), (wanted - found).total(), (found - wanted).total())


def _without_partitions(content: Content) -> Content:
    values: Content = Counter()
    for (_, value), count in content.items():
        values[0, value] += count
    return values


def kill_one(kind: str, pipeline: PipelineProcess, broker: BrokerProcess, chance: random.Random) -> bool:
    """One victim, and what has to be done for things to go on; False when there was none of the kind."""
    if kind == "broker":
        broker.kill()
        time.sleep(chance.uniform(0, 1))
        broker.start_and_wait()
        return True
    try:
        chance.choice(pipeline.victims(kind)).kill()
    except (psutil.NoSuchProcess, IndexError):
        return False
    if kind in ("driver", "jvm"):
        pipeline.wait_gone()
    return True


def work_until_busy(pipeline: PipelineProcess) -> None:
    """Until the pipeline is seen to process rows; one that gave up, say for a lost broker, is started again."""
    for _ in range(_STARTS_MAX):
        if pipeline.wait_for_rows(pipeline.rows()):
            return
        pipeline.wait_gone()
        pipeline.start()
    raise SystemExit(f"the pipeline does not stay up; see {pipeline.work / 'pipeline.log'}")


def run_kills(
    work: Path,
    kind: str,
    kills: int,
    seed: int,
    victims: tuple[str, ...] = VICTIMS,
    cluster: SparkCluster | None = None,
) -> Verdict:
    """Start everything, kill so often, let it catch up, judge."""
    chance = random.Random(seed)
    killed: Counter[str] = Counter()
    with BrokerProcess(work / "broker") as broker:
        broker.start_and_wait()
        bootstrap = f"127.0.0.1:{broker.port}"
        asyncio.run(prepare(bootstrap))
        publisher = Publisher(bootstrap)
        publisher.start()
        pipeline = PipelineProcess(kind, bootstrap, work, cluster)
        pipeline.start()
        try:
            while killed.total() < kills:
                work_until_busy(pipeline)
                time.sleep(chance.uniform(0, 1.5))
                victim = chance.choice(victims)
                if kill_one(victim, pipeline, broker, chance):
                    killed[victim] += 1
                    say(f"kill {killed.total()} of {kills}: {victim}; {publisher.numbers:,} published")
                if pipeline.process.poll() is not None:
                    pipeline.start()
        finally:
            pipeline.process.kill()
            pipeline.wait_gone()
            publisher.stop()
        pipeline.finish()
        wanted = asyncio.run(topic_content(bootstrap, SOURCE))
        copied = asyncio.run(topic_content(bootstrap, COPY)) if kind == "topic" else None
    found = copied if copied is not None else archive_content(work / "archive", kind)
    return judge(wanted, found, killed, kind)


def run_kills_on_cluster(
    work: Path, kind: str, kills: int, seed: int, victims: tuple[str, ...] = CLUSTER_VICTIMS
) -> Verdict:
    """The same on a standalone cluster of its own."""
    with SparkCluster(work / "spark") as cluster:
        return run_kills(work, kind, kills, seed, victims, cluster)


def main() -> int:
    parser = argparse.ArgumentParser(description="Kill a pipeline again and again and judge what it wrote.")
    parser.add_argument("--kills", type=int, default=30)
    parser.add_argument("--kind", choices=KINDS, action="append", help="what is written; may be repeated  [all]")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--cluster", action="store_true", help="on a standalone cluster with two workers")
    parser.add_argument(
        "--victim", choices=CLUSTER_VICTIMS, action="append", help="whom to kill; may be repeated  [all]"
    )
    arguments = parser.parse_args()
    if "executor" in (arguments.victim or ()) and not arguments.cluster:
        parser.error("only with --cluster is an executor a process of its own")
    run = run_kills_on_cluster if arguments.cluster else run_kills
    victims = tuple(arguments.victim or (CLUSTER_VICTIMS if arguments.cluster else VICTIMS))
    end_with_children()
    good = True
    for kind in arguments.kind or KINDS:
        work = Path(tempfile.mkdtemp(prefix="martlet-kills-"))
        try:
            verdict = run(work, kind, arguments.kills, arguments.seed, victims)
        except (MartletError, OSError):
            say(f"what is left lies in {work}")
            raise
        good = good and verdict.is_good(kind)
        kills = ", ".join(f"{count} {victim}" for victim, count in sorted(verdict.kills.items()))
        print(
            f"{kind}: {verdict.messages:,} messages, killed {kills}: {verdict.missing} missing, "
            f"{verdict.repeated} repeated: {'ok' if verdict.is_good(kind) else 'WRONG'}",
            flush=True,
        )
        if verdict.is_good(kind):
            shutil.rmtree(work, ignore_errors=True)
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
