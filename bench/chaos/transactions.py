"""`./dev chaos --transactions`: consume, transform, publish in transactions while brokers and clients are killed.

A cluster of three with replication 3 and a minimum of two in sync; a source and two targets. For each partition of the
source there is a carrier process (`bench.chaos.carrier`); it is killed with -9 or fenced by a second one again and
again, while faults of the cluster come as in `bench.chaos.run`. In the end everything is healed, every input is carried
over, nothing may be open, and what readers of committed data were given is judged (`sim.transaction_history`).
"""

import asyncio
import json
import random
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from contextlib import ExitStack
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Final

from confluent_kafka import Consumer, KafkaError, KafkaException, Producer, TopicPartition
from sim.transaction_history import Place, Transaction, TransactionHistory
from tests.cluster.running_cluster import RunningCluster

from bench.chaos.carrier import Errand
from bench.chaos.faults import Faults, Kind
from bench.chaos.logs import tracebacks
from martlet.base.addresses import parse_bootstrap
from martlet.base.clock import SystemClock
from martlet.client.cluster import Cluster
from martlet.client.transactions import Transactions
from martlet.cluster.topic_names import CONSUMER_OFFSETS_TOPIC, TRANSACTION_STATE_TOPIC

_BROKERS: Final = 3
_PARTITIONS: Final = 3
_TARGETS: Final = ("left", "right")
_SOURCE: Final = "source"
_GROUP: Final = "carriers"
_TIMEOUT_MS: Final = 15_000
_INPUTS_PER_SECOND: Final = 20.0
_CLIENT_GAP_SECONDS: Final = (2.0, 8.0)
_STORM_SECONDS: Final = (5.0, 12.0)
_CALM_SECONDS: Final = 3.0
_ACTIVE_MAX: Final = 2
_LOOK_SECONDS: Final = 0.1
_RECOVERY_SECONDS_MAX: Final = 150.0
_STANDSTILL_SECONDS_MAX: Final = 45.0
_DONE_PER_MINUTE_MIN: Final = 10
_END_OF_PARTITION: Final = KafkaError._PARTITION_EOF  # noqa: SLF001 - that is its name
KINDS: Final = (Kind.KILL, Kind.STOP, Kind.PAUSE, Kind.NETWORK, Kind.STORE_KILL, Kind.STORE_PAUSE)


@dataclass
class TransactionsReport:
    """How a run went."""

    seed: int
    seconds: float = 0.0
    faults: Counter[str] = field(default_factory=Counter)
    counts: dict[str, int] = field(default_factory=dict)
    inputs: int = 0
    violations: list[str] = field(default_factory=list)
    exits: list[str] = field(default_factory=list)
    """Brokers that ended by themselves while the store could not be reached."""

    def table(self) -> str:
        """Faults by kind."""
        return "\n".join(f"{name:60}{count:>6}" for name, count in self.faults.most_common())

    def summary(self) -> str:
        counts = ", ".join(f"{count:,} {name}" for name, count in self.counts.items())
        return (
            f"chaos with transactions: seed {self.seed}, {self.seconds:.0f} s, {self.faults.total()} faults; "
            f"transactions: {counts}; "
            f"{self.inputs:,} inputs; {len(self.violations)} violations"
        )


class _Process:
    """One carrier process; a thread takes down what it says it does."""

    def __init__(self, errand: Errand, history: TransactionHistory, lock: threading.Lock) -> None:
        self._errand = errand
        self._history = history
        self._lock = lock
        self.last_words = ""
        self._process = subprocess.Popen(
            [sys.executable, "-m", "bench.chaos.carrier"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps(asdict(errand)) + "\n")
        self._process.stdin.flush()
        self._listener = threading.Thread(target=self._listen, daemon=True)
        self._listener.start()

    @property
    def is_running(self) -> bool:
        return self._process.poll() is None

    def kill(self) -> None:
        """kill -9, and everything it said is taken down."""
        if self.is_running:
            self._process.send_signal(signal.SIGKILL)
        self._process.wait()
        self._listener.join()
        for pipe in (self._process.stdin, self._process.stdout):
            assert pipe is not None
            pipe.close()

    def _listen(self) -> None:
        transaction: Transaction | None = None
        assert self._process.stdout is not None
        for line in self._process.stdout:
            if not line.endswith("\n"):
                return  # it died in the middle of a word
            event, *what = json.loads(line)
            with self._lock:
                if event == "begin":
                    transaction = self._history.begin(self._errand.name)
                elif event == "ended":
                    self.last_words = what[0]
                elif transaction is not None:
                    self._take(event, what, transaction)

    def _take(self, event: str, what: list[object], transaction: Transaction) -> None:
        source = f"{self._errand.source}-{self._errand.partition}"
        if event == "writing":
            self._history.writing(transaction, str(what[0]), Place(source, int(str(what[1]))))
        elif event == "leaving":
            self._history.leaving(transaction, source, int(str(what[0])))
        elif event == "committing":
            self._history.committing(transaction)
        elif event == "committed":
            self._history.committed(transaction)
        elif event == "aborted":
            self._history.aborted(transaction)


class TransactionsRun:
    """One run in `directory`, which stays behind; `run` may be called once."""

    def __init__(self, directory: Path, *, seconds: float, seed: int, kinds: tuple[Kind, ...] = KINDS) -> None:
        self.report = TransactionsReport(seed)
        self._seconds = seconds
        self._kinds = kinds
        self._chance = random.Random(f"transactions {seed}")
        self._cluster = RunningCluster(_BROKERS, directory=directory, transactions_topic_partitions=4)
        chance = random.Random(f"faults {seed}")
        self._faults = Faults(self._cluster, chance, self._is_all_in_sync, threading.Thread)
        self._history = TransactionHistory()
        self._lock = threading.Lock()
        self._starts: Counter[int] = Counter()
        self._carriers: dict[int, _Process] = {}
        self._fenced: list[_Process] = []
        self._positions_in_the_end: dict[str, int] = {}
        self._over = threading.Event()
        self._filled = threading.Event()

    def run(self) -> TransactionsReport:
        report = self.report
        with self._cluster:
            started = time.monotonic()
            for topic in (_SOURCE, *_TARGETS):
                self._cluster.create_topic(
                    topic, partitions=_PARTITIONS, replication=_BROKERS, config={"min.insync.replicas": "2"}
                )
            with ExitStack() as stack:
                stack.callback(self._end_carriers)
                stack.callback(self._over.set)
                threads = [threading.Thread(target=work, daemon=True) for work in (self._fill, self._follow)]
                for thread in threads:
                    thread.start()
                while time.monotonic() < started + self._seconds:
                    self._storm(min(started + self._seconds, time.monotonic() + self._chance.uniform(*_STORM_SECONDS)))
                    self._faults.end_all()
                    self._rest(_CALM_SECONDS)
                self._filled.set()
                self._finish()
            for thread in threads:
                thread.join()
            report.seconds = time.monotonic() - started
            if not report.violations:
                self._judge()
            report.violations += tracebacks(broker.output for broker in self._cluster.brokers.values())
            if report.violations:
                self._cluster.print_tails()
        return report

    # --- faults

    def _storm(self, until: float) -> None:
        next_at = next_client_at = time.monotonic()
        while time.monotonic() < until:
            self._faults.end_due()
            self._keep_carrying()
            now = time.monotonic()
            if now >= next_at and len(self._faults.active) < _ACTIVE_MAX:
                fault = self._faults.begin(self._chance.choice(self._kinds))
                if fault is not None:
                    self.report.faults[fault.kind.value] += 1
                next_at = now + self._chance.uniform(0.5, 3.0)
            if now >= next_client_at:
                self._strike_client()
                next_client_at = now + self._chance.uniform(*_CLIENT_GAP_SECONDS)
            time.sleep(_LOOK_SECONDS)

    def _strike_client(self) -> None:
        """Kill a carrier, or have another one fence it."""
        number = self._chance.randrange(_PARTITIONS)
        if self._chance.random() < 0.5:
            self.report.faults["client killed"] += 1
            self._carriers[number].kill()
        else:
            self.report.faults["client fenced by another"] += 1
            self._fenced.append(self._carriers[number])
            self._start(number)

    def _rest(self, seconds: float) -> None:
        until = time.monotonic() + seconds
        while time.monotonic() < until:
            self._faults.end_due()
            self._keep_carrying()
            time.sleep(_LOOK_SECONDS)

    def _keep_carrying(self) -> None:
        for number in range(_PARTITIONS):
            carrier = self._carriers.get(number)
            if carrier is None or not carrier.is_running:
                if carrier is not None:
                    carrier.kill()
                self._start(number)
        for one in self._faults.exits:
            text = f"broker {one.broker} ended by itself: {one.last_words}"
            (self.report.exits if one.store_was_away else self.report.violations).append(text)
        self._faults.exits.clear()

    def _start(self, number: int) -> None:
        self._starts[number] += 1
        errand = Errand(
            servers=self._cluster.bootstrap_servers,
            name=f"carrier-{number}.{self._starts[number]}",
            transactional_id=f"carrier-{number}",
            group=_GROUP,
            source=_SOURCE,
            partition=number,
            targets=[*_TARGETS],
            target_partitions=_PARTITIONS,
            timeout_ms=_TIMEOUT_MS,
            seed=self._chance.randrange(1 << 30),
        )
        self._carriers[number] = _Process(errand, self._history, self._lock)

    def _end_carriers(self) -> None:
        for carrier in (*self._carriers.values(), *self._fenced):
            carrier.kill()

    def _is_all_in_sync(self) -> bool:
        topics = (_SOURCE, *_TARGETS, CONSUMER_OFFSETS_TOPIC, TRANSACTION_STATE_TOPIC)
        running = all(broker.is_running for broker in self._cluster.brokers.values())
        return running and all(map(self._cluster.is_in_sync, topics))

    # --- other clients

    def _fill(self) -> None:
        producer = Producer(
            {"bootstrap.servers": self._cluster.bootstrap_servers, "enable.idempotence": True, "log_level": 0}
        )
        number = 0
        while not self._filled.is_set() and not self._over.is_set():
            producer.produce(_SOURCE, str(number), partition=number % _PARTITIONS)
            producer.poll(1 / _INPUTS_PER_SECOND)
            number += 1
        producer.flush(60)

    def _new_reader(self, group: str) -> Consumer:
        return Consumer(
            {
                "bootstrap.servers": self._cluster.bootstrap_servers,
                "group.id": group,
                "isolation.level": "read_committed",
                "enable.auto.commit": False,
                "enable.partition.eof": True,
                "log_level": 0,
            }
        )

    def _follow(self) -> None:
        consumer = self._new_reader("follower")
        consumer.assign([TopicPartition(topic, n, 0) for topic in _TARGETS for n in range(_PARTITIONS)])
        while not self._over.is_set():
            for message in consumer.consume(200, 0.5):
                if message.error() is None:
                    place = f"{message.topic()}-{message.partition()}"
                    with self._lock:
                        self._history.saw("follower", place, message.offset() or 0, message.value() or b"")
        consumer.close()

    # --- the end

    def _finish(self) -> None:
        """Everything is healed and carried over, and nothing is open."""
        limit = _RECOVERY_SECONDS_MAX
        positions: dict[str, int] = {}
        ends: dict[str, int] = {}
        moved_at = time.monotonic()

        def is_carried() -> bool:
            nonlocal moved_at
            self._keep_carrying()
            before = dict(positions)
            positions.update(self._positions())
            ends.update(self._ends())
            if positions != before:
                moved_at = time.monotonic()
            elif time.monotonic() - moved_at > _STANDSTILL_SECONDS_MAX:
                self._replace_behind(positions, ends)
                moved_at = time.monotonic()
            return bool(ends) and positions == ends

        try:
            self._cluster.wait_until(self._is_all_in_sync, "all replicas to be in sync", seconds=limit)
            time.sleep(1)  # the filler's last messages
            self._cluster.wait_until(is_carried, "every input to be carried over", seconds=limit)
            self._end_carriers()
            self._cluster.wait_until(
                lambda: not asyncio.run(self._open()), "nothing to be open", seconds=_TIMEOUT_MS / 1000 + 20
            )
        except AssertionError as error:
            progress = f"carried over up to {positions} of {ends}"
            self.report.violations.append(f"after healing the run {str(error).splitlines()[0]}; {progress}")
            self.report.violations += [f"open: {line}" for line in asyncio.run(self._open())]
        self._positions_in_the_end = positions

    def _replace_behind(self, positions: dict[str, int], ends: dict[str, int]) -> None:
        """Clients that stand still are ended, as their operator would, and counted in the report."""
        for number, carrier in self._carriers.items():
            source = f"{_SOURCE}-{number}"
            if positions.get(source, 0) < ends.get(source, 0):
                self.report.faults["client stood still"] += 1
                carrier.kill()

    def _positions(self) -> dict[str, int]:
        consumer = self._new_reader(_GROUP)
        try:
            found = consumer.committed([TopicPartition(_SOURCE, n) for n in range(_PARTITIONS)], timeout=20)
            return {f"{_SOURCE}-{one.partition}": max(one.offset, 0) for one in found}
        except KafkaException:
            return {}
        finally:
            consumer.close()

    def _ends(self) -> dict[str, int]:
        consumer = self._new_reader("ends")
        try:
            return {
                f"{_SOURCE}-{n}": consumer.get_watermark_offsets(TopicPartition(_SOURCE, n), timeout=20)[1]
                for n in range(_PARTITIONS)
            }
        except KafkaException:
            return {}
        finally:
            consumer.close()

    async def _open(self) -> list[str]:
        """What is open in a partition, or hangs, or is being ended."""
        async with Cluster(parse_bootstrap(self._cluster.bootstrap_servers)) as cluster:
            transactions = Transactions(cluster)
            topics = (await cluster.refresh_all()).values()
            now_ms = SystemClock().now_ms()
            hanging = await transactions.hanging(topics, older_than_ms=0, now_ms=now_ms)
            listed = await transactions.listings(states=["Ongoing", "PrepareCommit", "PrepareAbort"])
            opened = await transactions.open_in(topics)
            return [*map(str, hanging), *map(str, listed), *map(str, opened)]

    def _judge(self) -> None:
        report = self.report
        for topic in _TARGETS:
            for number, messages in self._read_back(topic).items():
                self._history.final(f"{topic}-{number}", messages)
        inputs = [Place(name, offset) for name, end in self._ends().items() for offset in range(end)]
        report.inputs = len(inputs)
        report.violations += map(str, self._history.judge(self._positions_in_the_end, inputs))
        report.counts = self._history.counts()
        wanted = self._seconds / 60 * _DONE_PER_MINUTE_MIN
        if report.counts["done"] < wanted:
            report.violations.append(
                f"only {report.counts['done']} transactions were committed, fewer than {wanted:.0f}"
            )

    def _read_back(self, topic: str) -> dict[int, list[tuple[int, bytes]]]:
        consumer = self._new_reader("judge")
        found: dict[int, list[tuple[int, bytes]]] = {number: [] for number in range(_PARTITIONS)}
        ended: set[int] = set()
        deadline = time.monotonic() + _RECOVERY_SECONDS_MAX
        try:
            consumer.assign([TopicPartition(topic, number, 0) for number in found])
            while len(ended) < len(found):
                if time.monotonic() > deadline:
                    self.report.violations.append(f"{topic} cannot be read to its end")
                    break
                for message in consumer.consume(1_000, 0.5):
                    error = message.error()
                    if error is None:
                        found[message.partition() or 0].append((message.offset() or 0, message.value() or b""))
                    elif error.code() == _END_OF_PARTITION:
                        ended.add(message.partition() or 0)
        finally:
            consumer.close()
        return found
