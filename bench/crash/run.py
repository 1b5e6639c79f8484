"""`./dev crash`: a broker is killed under load again and again, and nothing acknowledged may be lost.

    python -m bench.crash [--rounds 200] [--seed N] [--transactions] [--work-dir DIR]

Each round lets the broker work for a random time of 0.05 to 1.5 s after its first accepted message, kills it with
SIGKILL, and starts it again on the same data and port; some rounds kill it a second time while it starts. Meanwhile an
idempotent producer, a publisher that never repeats itself and a reader go on (`bench.crash.clients`). Every few rounds,
and twice at the end, everything is read back and judged (`bench.crash.history`): the last time after a clean stop, by
librdkafka. Restart time is from starting the process to the first message accepted.

The default flush policy is in force. What kill -9 cannot show, losing the page cache, tests/crash/test_power_loss.py
shows on the simulated disk. Ends with status 1 on any violation, and then keeps the data.
"""

import argparse
import contextlib
import random
import shutil
import statistics
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from bench.crash.clients import (
    ANSWER_SECONDS_MAX,
    IdempotentPublisher,
    SinglePublisher,
    TailReader,
    publish_once,
    read_everything,
    read_with_librdkafka,
)
from bench.crash.history import VIOLATIONS_SHOWN, History, Kind, violations
from bench.crash.transaction_groups import GroupsReport, run_groups_test
from bench.processes import BrokerProcess, ProcessFailed, end_with_children
from bench.report import say
from bench.wire_client import TopicInfo, WireClient

RESTART_SECONDS_MAX: Final = 2.0
_TOPIC: Final = "crash"
_PARTITIONS: Final = 3
_WORK_SECONDS: Final = (0.05, 1.5)
_SECOND_KILL_SHARE: Final = 0.1
_SECOND_KILL_SECONDS: Final = (0.02, 0.6)
_START_SECONDS_MAX: Final = 40.0
_CHECK_EVERY_ROUNDS: Final = 20
_ACKNOWLEDGED_PER_ROUND_MIN: Final = 20
"""A run in which nothing happens must not pass."""


@dataclass
class CrashReport:
    """How a crash test went."""

    rounds: int
    seed: int
    history: History
    seconds: float = 0.0
    kills: int = 0
    messages_read: int = 0
    restart_seconds: list[float] = field(default_factory=list)
    violations: list[str] = field(default_factory=list)

    def summary(self) -> str:
        history = self.history
        idempotent = history.acknowledged_of(Kind.IDEMPOTENT)
        restarts_ms = [1000 * seconds for seconds in self.restart_seconds] or [0.0]
        return (
            f"crash: {self.rounds} rounds, {self.kills} kills, seed {self.seed}, {self.seconds:.0f} s: "
            f"{len(history.acknowledged):,} acknowledged ({idempotent:,} idempotent), "
            f"{len(history.unknown):,} unknown, {len(history.refused):,} refused, {self.messages_read:,} read back, "
            f"{sum(map(len, history.seen.values())):,} read meanwhile; "
            f"restart {statistics.median(restarts_ms):.0f} ms, at most {max(restarts_ms):.0f} ms; "
            f"{len(self.violations)} violations"
        )


class CrashTest:
    """One run; `run` may be called once."""

    def __init__(self, directory: Path, *, rounds: int, seed: int, restart_seconds_max: float) -> None:
        self.report = CrashReport(rounds, seed, History())
        self._broker = BrokerProcess(directory)
        self._random = random.Random(f"crash {seed}")
        self._restart_seconds_max = restart_seconds_max
        self._topic = TopicInfo(_TOPIC, bytes(16), _PARTITIONS)

    def run(self) -> CrashReport:
        report, history = self.report, self.report.history
        started = time.monotonic()
        with self._broker as broker:
            broker.start_and_wait()
            with broker.client() as client:
                client.create_topics([_TOPIC], partitions=_PARTITIONS)
                self._topic = client.topic(_TOPIC)
            with self._clients() as idempotent:
                idempotent.wait_working()
                for number in range(1, report.rounds + 1):
                    self._round()
                    if number % _CHECK_EVERY_ROUNDS == 0 and self._check(f"round {number}"):
                        break
                idempotent.finish()
            self._check("after the last round")
            broker.stop()
            self._start_broker()
            self._check("after a clean restart, by librdkafka", independent=True)
        report.seconds = time.monotonic() - started
        wanted = report.rounds * _ACKNOWLEDGED_PER_ROUND_MIN
        if history.acknowledged_of(Kind.IDEMPOTENT) < wanted and not report.violations:
            report.violations.append(f"fewer than {wanted} idempotent messages were acknowledged: too little happened")
        return report

    @contextlib.contextmanager
    def _clients(self) -> Iterator[IdempotentPublisher]:
        """Publishers and the reader, at work while the block runs."""
        port, topic, history, seed = self._broker.port, self._topic, self.report.history, self.report.seed
        idempotent = IdempotentPublisher(port, topic, history, seed)
        single = SinglePublisher(port, topic, history, seed)
        reader = TailReader(port, topic, history)
        with ExitStack() as stack:
            for worker, finish in (
                (reader.worker, reader.finish),
                (single.worker, single.finish),
                (idempotent.worker, idempotent.worker.stop),
            ):
                worker.start()
                stack.callback(finish)
            yield idempotent

    def _round(self) -> None:
        time.sleep(self._random.uniform(*_WORK_SECONDS))
        self._kill()
        if self._random.random() < _SECOND_KILL_SHARE:
            self._broker.start()
            time.sleep(self._random.uniform(*_SECOND_KILL_SECONDS))
            self._kill()
        seconds = self._start_broker()
        self.report.restart_seconds.append(seconds)
        if seconds > self._restart_seconds_max:
            self.report.violations.append(f"a restart took {seconds:.2f} s, more than {self._restart_seconds_max:g} s")

    def _kill(self) -> None:
        self._broker.kill()
        self.report.kills += 1

    def _start_broker(self) -> float:
        """Start it and publish until a message is accepted; the seconds that took."""
        self._broker.start()
        deadline = time.perf_counter() + _START_SECONDS_MAX
        while time.perf_counter() < deadline:
            with (
                contextlib.suppress(OSError),
                WireClient(self._broker.port, timeout_seconds=ANSWER_SECONDS_MAX) as client,
            ):
                if publish_once(client, self._topic, self.report.history, Kind.PROBE, 0, 1):
                    return time.perf_counter() - self._broker.started_at
            self._broker.check_running()
            time.sleep(0.002)
        raise ProcessFailed(f"no message was accepted after {_START_SECONDS_MAX:.0f} s: {self._broker.last_words()}")

    def _check(self, when: str, *, independent: bool = False) -> bool:
        """Read everything and judge it; whether something is wrong."""
        report, history = self.report, self.report.history
        acknowledged = dict(history.acknowledged)
        read = read_with_librdkafka if independent else read_everything
        content = read(self._broker.port, self._topic)
        found = violations(history, content, acknowledged)
        report.messages_read = sum(map(len, content.values()))
        slowest_ms = 1000 * max(report.restart_seconds, default=0.0)
        say(
            f"  {when}: {report.messages_read:,} messages read, slowest restart {slowest_ms:.0f} ms, {len(found)} wrong"
        )
        report.violations += [text for text in found if text not in report.violations]
        return bool(found)


def run_crash_test(
    directory: Path, *, rounds: int, seed: int, restart_seconds_max: float = RESTART_SECONDS_MAX
) -> CrashReport:
    """Run it in `directory`, which stays behind."""
    test = CrashTest(directory, rounds=rounds, seed=seed, restart_seconds_max=restart_seconds_max)
    return test.run()


def main() -> int:
    parser = argparse.ArgumentParser(prog="./dev crash", description="kill -9 under load, many times.")
    parser.add_argument("--rounds", type=int, default=200)
    parser.add_argument("--seed", type=int, default=None, help="of the moments and the messages; random when not given")
    parser.add_argument("--transactions", action="store_true", help="kill it while groups of transactions end")
    parser.add_argument("--work-dir", type=Path, help="where the data goes (the directory for temporary files)")
    arguments = parser.parse_args()
    end_with_children()
    seed = random.randrange(1 << 32) if arguments.seed is None else arguments.seed
    work = Path(tempfile.mkdtemp(prefix="martlet-crash-", dir=arguments.work_dir))
    say(f"crash test: {arguments.rounds} rounds, seed {seed}")
    report: CrashReport | GroupsReport
    if arguments.transactions:
        report = run_groups_test(work, rounds=arguments.rounds, seed=seed)
    else:
        report = run_crash_test(work, rounds=arguments.rounds, seed=seed)
    for text in report.violations[:VIOLATIONS_SHOWN]:
        print(f"VIOLATION {text}")
    print(report.summary())
    if report.violations:
        print(f"the data is kept in {work}")
        return 1
    shutil.rmtree(work, ignore_errors=True)
    return 0
