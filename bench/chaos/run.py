"""`./dev chaos`: three brokers and a real etcd under every fault at once, and nothing acknowledged may be lost.

    python -m bench.chaos [--minutes 10] [--seed N] [--only FAULT]... [--transactions] [--work-dir DIR] [--keep]

A cluster with replication 3 and `min.insync.replicas` 2 is used all the time (`bench.chaos.clients`) while faults of
every kind come in random order, up to three at a time, in shifting subsets (`bench.chaos.faults`). A calm phase follows
each stormy one: everything is healed, and within a bounded time all replicas must be in sync and every partition must
accept messages again. Every few minutes the clients stop, everything is read back and judged
(`sim.history_checker`), and the logs of all replicas are compared byte by byte; then a new topic begins.
The seed decides which faults come in which order; the moments at which they hit are the machine's.

A run in which too little was acknowledged does not pass. Ends with status 1 on any violation, and keeps the data then.
"""

import argparse
import random
import shutil
import statistics
import tempfile
import threading
import time
from collections import Counter
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from confluent_kafka import KafkaException
from sim.history_checker import History, summary_of
from tests.cluster.running_cluster import RunningCluster

from bench.chaos.clients import IdempotentPublisher, Reader, SinglePublisher, Target, Worker, read_back
from bench.chaos.faults import Fault, Faults, Kind
from bench.chaos.logs import tracebacks
from bench.chaos.moves import order_something
from bench.chaos.replicas import batches_at, differences
from bench.chaos.transactions import KINDS, TransactionsReport, TransactionsRun
from bench.processes import end_with_children, raise_file_limit
from bench.report import say

VIOLATIONS_SHOWN: Final = 20
_BROKERS: Final = 3
_PARTITIONS: Final = 6
_PRODUCERS: Final = 3
_PER_SECOND: Final = 100.0
"""Messages of one producer, while nothing is wrong."""
_CHAPTER_SECONDS: Final = 420.0
_STORM_SECONDS: Final = (8.0, 24.0)
_CALM_SECONDS: Final = 1.5
_QUIET_SHARE: Final = 0.15
"""Of the phases, this share has no fault at all."""
_ACTIVE_MAX: Final = 3
_GAP_SECONDS: Final = (0.1, 1.5)
_LOOK_SECONDS: Final = 0.05


@dataclass(frozen=True)
class Demands:
    """What a run has to reach besides doing nothing wrong."""

    acknowledged_per_second_min: float = 40.0
    """On average over the run, so that a cluster that does nothing cannot pass."""
    recovery_seconds_max: float = 60.0


@dataclass
class ChaosReport:
    """How a run went."""

    seed: int
    seconds: float = 0.0
    faults: Counter[Kind] = field(default_factory=Counter)
    shapes: Counter[str] = field(default_factory=Counter)
    recoveries: list[float] = field(default_factory=list)
    totals: Counter[str] = field(default_factory=Counter)
    exits: list[str] = field(default_factory=list)
    """Brokers that ended by themselves while the store could not be reached."""
    violations: list[str] = field(default_factory=list)

    def table(self) -> str:
        """Faults by kind, the network's by shape."""
        lines = [f"{'fault':60}{'count':>6}", "-" * 66]
        for kind in Kind:
            lines.append(f"{kind.value:60}{self.faults[kind]:>6}")
            lines += [
                f"    {shape.partition(': ')[2]:56}{count:>6}"
                for shape, count in sorted(self.shapes.items())
                if kind is Kind.NETWORK and shape.startswith(f"{kind.value}: ")
            ]
        return "\n".join(lines)

    def summary(self) -> str:
        recoveries = self.recoveries or [0.0]
        counts = ", ".join(f"{self.totals[name]:,} {name}" for name in self.totals)
        return (
            f"chaos: seed {self.seed}, {self.seconds:.0f} s, {self.faults.total()} faults: {counts}; "
            f"{self.totals['acknowledged'] / max(1.0, self.seconds):,.0f} acknowledged a second; "
            f"recovery {statistics.median(recoveries):.1f} s, at most {max(recoveries):.1f} s; "
            f"{len(self.exits)} restarts by the supervisor; {len(self.violations)} violations"
        )


@dataclass
class Recovery:
    """Seconds from healing everything until all partitions accepted messages, and until all replicas were in sync."""

    accepts: float = 0.0
    all: float = 0.0

    def __str__(self) -> str:
        return f"accepts after {self.accepts:.1f} s, in sync after {self.all:.1f} s"


class ChaosRun:
    """One run in `directory`, which stays behind; `run` may be called once."""

    def __init__(
        self,
        directory: Path,
        *,
        seconds: float,
        seed: int,
        kinds: tuple[Kind, ...] = tuple(Kind),
        demands: Demands = Demands(),  # noqa: B008 - it is frozen
    ) -> None:
        self.report = ChaosReport(seed)
        self._demands = demands
        self._seconds = seconds
        self._kinds = kinds
        self._random = random.Random(f"chaos {seed}")
        racks = {number: {"rack": f"rack-{number}"} for number in range(1, _BROKERS + 1)}
        self._cluster = RunningCluster(_BROKERS, directory=directory, own_settings=racks)
        self._faults = Faults(self._cluster, random.Random(f"faults {seed}"), self._is_all_in_sync, self._order)
        self._topic = ""
        self._started = time.monotonic()
        self._publishers: list[IdempotentPublisher] = []

    def run(self) -> ChaosReport:
        report = self.report
        with self._cluster:
            self._started = time.monotonic()
            chapter = 0
            while not report.violations and self._elapsed() < self._seconds and not self._has_shown_enough():
                chapter += 1
                left = self._seconds - self._elapsed()
                self._chapter(chapter, left if left < 1.5 * _CHAPTER_SECONDS else _CHAPTER_SECONDS)
            report.seconds = self._elapsed()
            wanted = report.seconds * self._demands.acknowledged_per_second_min
            if report.totals["acknowledged"] < wanted and not report.violations:
                report.violations.append(
                    f"only {report.totals['acknowledged']:,} messages were acknowledged, fewer than {wanted:,.0f}"
                )
            report.violations += tracebacks(broker.output for broker in self._cluster.brokers.values())
            if report.violations:
                self._cluster.print_tails()
        return report

    def _has_shown_enough(self) -> bool:
        """Whether the run may end before its time, between two phases; a long run never does."""
        return False

    def _elapsed(self) -> float:
        return time.monotonic() - self._started

    def _chapter(self, number: int, seconds: float) -> None:
        """A topic of its own, from its creation to the judgement of its history."""
        self._topic = f"chaos-{number}"
        history = History()
        self._cluster.create_topic(
            self._topic, partitions=_PARTITIONS, replication=_BROKERS, config={"min.insync.replicas": "2"}
        )
        target = Target(self._cluster.bootstrap_servers, self._topic, _PARTITIONS, history)
        ends_at = time.monotonic() + seconds
        with ExitStack() as stack:
            workers, readers = self._start_clients(target, stack)
            while time.monotonic() < ends_at and not self.report.violations and not self._has_shown_enough():
                self._phase(history, ends_at)
            for worker in workers:
                worker.ask_to_stop()
            for worker in workers:
                worker.join()
        self.report.totals["consumers left open"] += sum(reader.left_open for reader in readers)
        self._judge(target)

    def _start_clients(self, target: Target, stack: ExitStack) -> tuple[list[Worker], list[Reader]]:
        seed = f"{self.report.seed} {target.topic}"
        self._publishers = [
            IdempotentPublisher(f"producer-{n}", target, random.Random(f"{seed} p{n}"), per_second=_PER_SECOND)
            for n in range(_PRODUCERS)
        ]
        ports = [int(server.rpartition(":")[2]) for server in target.servers.split(",")]
        single = SinglePublisher(target, ports, random.Random(f"{seed} s"), per_second=_PER_SECOND / 2)
        stack.callback(single.close)
        readers = [Reader(f"reader-{n}", target, random.Random(f"{seed} r{n}"), rack=f"rack-{n}") for n in range(1, 3)]
        workers = [one.worker for one in readers] + [one.worker for one in self._publishers] + [single.worker]
        for worker in workers:
            worker.start()
            stack.callback(worker.ask_to_stop)
        return workers, readers

    def _phase(self, history: History, ends_at: float) -> None:
        before, started = history.acknowledged_count, time.monotonic()
        done: Counter[Kind] = Counter()
        if self._random.random() >= _QUIET_SHARE:
            self._storm(min(ends_at, started + self._random.uniform(*_STORM_SECONDS)), done)
        else:
            time.sleep(self._random.uniform(2, 5))
        self._faults.end_all()
        recovery = self._recover()
        self.report.recoveries.append(recovery.all)
        self._take_exits()
        self.report.violations += [str(violation) for violation in history.found_so_far()]
        acknowledged = history.acknowledged_count - before
        seconds = time.monotonic() - started
        names = ", ".join(f"{count} × {kind.value}" for kind, count in done.items()) or "nothing done"
        say(f"[{self._elapsed():5.0f} s] {acknowledged / seconds:5.0f} msg/s, {recovery}: {names}")
        time.sleep(_CALM_SECONDS)

    def _storm(self, until: float, done: Counter[Kind]) -> None:
        most = len(self._kinds)
        subset = self._random.sample(self._kinds, self._random.randint(min(2, most), most))
        next_at = time.monotonic()
        if Kind.WIPE in self._kinds:
            # Always while all is in sync, or there would be too few of them: later in a storm it seldom is.
            self._note(self._faults.begin(Kind.WIPE), done)
        while time.monotonic() < until:
            self._faults.end_due()
            if time.monotonic() >= next_at and len(self._faults.active) < _ACTIVE_MAX:
                # The rarest so far first, so that every kind has its share.
                order = sorted(subset, key=lambda kind: (self.report.faults[kind], self._random.random()))
                for kind in order[: self._random.randrange(1, 3)]:
                    fault = self._faults.begin(kind)
                    self._note(fault, done)
                    if fault is not None:
                        break
                next_at = time.monotonic() + self._random.uniform(*_GAP_SECONDS)
            time.sleep(_LOOK_SECONDS)

    def _note(self, fault: Fault | None, done: Counter[Kind]) -> None:
        if fault is not None:
            self.report.faults[fault.kind] += 1
            self.report.shapes[f"{fault.kind.value}: {fault.shape}"] += 1
            done[fault.kind] += 1

    def _is_all_in_sync(self) -> bool:
        return all(broker.is_running for broker in self._cluster.brokers.values()) and self._cluster.is_in_sync(
            self._topic
        )

    def _order(self) -> threading.Thread:
        brokers = list(self._cluster.brokers)
        return order_something(self._cluster.bootstrap_servers, self._topic, _PARTITIONS, brokers, self._random)

    def _recover(self) -> "Recovery":
        """Until every producer has something new acknowledged in every partition, and all replicas are in sync."""
        healed = time.monotonic()
        recovery = Recovery()
        before = [dict(publisher.acknowledged_in) for publisher in self._publishers]

        def accepts_everywhere() -> bool:
            self._faults.end_due()
            return all(
                publisher.acknowledged_in[partition] > earlier.get(partition, 0)
                for publisher, earlier in zip(self._publishers, before, strict=True)
                for partition in range(_PARTITIONS)
            )

        def is_well() -> bool:
            self._faults.end_due()
            return self._is_all_in_sync()

        limit = self._demands.recovery_seconds_max
        try:
            self._cluster.wait_until(accepts_everywhere, "every partition to accept", seconds=limit)
            recovery.accepts = time.monotonic() - healed
            self._cluster.wait_until(is_well, "all replicas to be in sync", seconds=limit)
        except AssertionError as error:
            self.report.violations.append(f"after healing the run {str(error).splitlines()[0]}")
            self._say_what_lacks(before)
        recovery.all = time.monotonic() - healed
        return recovery

    def _say_what_lacks(self, before: list[dict[int, int]]) -> None:
        for publisher, earlier in zip(self._publishers, before, strict=True):
            stuck = [n for n in range(_PARTITIONS) if publisher.acknowledged_in[n] <= earlier.get(n, 0)]
            if stuck:
                say(f"  {publisher.worker.name} has nothing acknowledged in partitions {stuck} since healing")
        for number in self._cluster.brokers:
            try:
                topic = self._cluster.metadata(self._topic, from_broker=number).topics[self._topic]
            except KafkaException as error:
                say(f"  broker {number} gives no metadata: {error}")
                continue
            for index, one in sorted(topic.partitions.items()):
                say(f"  broker {number}: {self._topic}-{index} led by {one.leader}, in sync {one.isrs}, {one.error}")

    def _take_exits(self) -> None:
        for one in self._faults.exits:
            text = f"broker {one.broker} ended by itself: {one.last_words}"
            (self.report.exits if one.store_was_away else self.report.violations).append(text)
        self._faults.exits.clear()

    def _judge(self, target: Target) -> None:
        report = self.report
        try:
            read_back(target)
        except (KafkaException, TimeoutError) as error:
            report.violations.append(f"{target.topic} could not be read back: {error}")
        found = target.history.judge()
        report.totals.update(target.history.counts())
        report.violations += [text for text in map(str, found) if text not in report.violations]
        places = sorted({(one.partition, offset) for one in found for offset in one.offsets})
        for partition, offset in places[:VIOLATIONS_SHOWN]:
            say("\n".join(batches_at(self._cluster, partition, offset)))
        differing = differences(self._cluster, target.topic, target.partitions)
        report.violations += differing
        say(f"[{self._elapsed():5.0f} s] {target.topic} read back: {summary_of(found)} wrong, {len(differing)} differ")


def main() -> int:
    parser = argparse.ArgumentParser(prog="./dev chaos", description="Every fault at once, under load.")
    parser.add_argument("--minutes", type=float, default=10.0)
    parser.add_argument("--seed", type=int, default=None, help="of the faults and the messages; random when not given")
    parser.add_argument("--only", action="append", choices=[kind.name.lower() for kind in Kind], help="only this fault")
    parser.add_argument("--work-dir", type=Path, help="where the data goes (the directory for temporary files)")
    parser.add_argument("--transactions", action="store_true", help="clients use transactions, and are killed too")
    parser.add_argument("--keep", action="store_true", help="keep data and logs even if nothing was wrong")
    arguments = parser.parse_args()
    end_with_children()
    raise_file_limit()
    seed = random.randrange(1 << 32) if arguments.seed is None else arguments.seed
    kinds = tuple(Kind[name.upper()] for name in arguments.only or ()) or tuple(Kind)
    work = Path(tempfile.mkdtemp(prefix="martlet-chaos-", dir=arguments.work_dir))
    say(f"chaos: {arguments.minutes:g} minutes, seed {seed}")
    seconds = 60 * arguments.minutes
    report: ChaosReport | TransactionsReport
    if arguments.transactions:
        report = TransactionsRun(work, seconds=seconds, seed=seed, kinds=kinds if arguments.only else KINDS).run()
    else:
        report = ChaosRun(work, seconds=seconds, seed=seed, kinds=kinds).run()
    print(report.table())
    for text in report.violations[:VIOLATIONS_SHOWN]:
        print(f"VIOLATION {text}")
    for text in report.exits[:VIOLATIONS_SHOWN]:
        print(f"while the store was away, {text}")
    print(report.summary())
    if report.violations or arguments.keep:
        print(f"data and logs are kept in {work}")
    else:
        shutil.rmtree(work, ignore_errors=True)
    return 1 if report.violations else 0
