"""`./dev bench kafka_transactions`: Kafka's Java clients in transactions of both generations, and its dump tool after.

    python -m bench.kafka_transactions [--work-dir DIR]

Kafka's TransactionalMessageCopier carries a topic over with random aborts, once from Kafka 4.3 (second generation) and
once from 3.7 (first generation); a reader of committed data must find every message once and in order. Then the broker
stops, and Kafka's DumpLogSegments must read the logs, the `.txnindex` files and the records of `__transaction_state`
without a complaint. Maven and Java are needed. Ends with status 1 when anything is not so.
"""

import argparse
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic
from tests.cluster.transaction_workload import read_committed

from bench.peers.systems.cache import maven_jars
from bench.peers.systems.kafka import VERSION, jars
from bench.processes import BrokerProcess, end_with_children
from bench.report import say

FIRST_GENERATION_VERSION: Final = "3.7.2"
_SOURCE: Final = "source"
_MESSAGES: Final = 500
_TRANSACTION_SIZE: Final = 20
_SECONDS_MAX: Final = 120
_COPIER: Final = "org.apache.kafka.tools.TransactionalMessageCopier"
_DUMP: Final = "org.apache.kafka.tools.DumpLogSegments"
_COMPLAINTS: Final = ("Exception", "isvalid: false", "Mismatches", "Misaligned", "not monotonically")


class KafkaTransactions:
    """One run; what is wrong gathers in `problems`."""

    def __init__(self, directory: Path) -> None:
        self.problems: list[str] = []
        self._broker = BrokerProcess(directory)
        self._libraries = {
            VERSION: jars(),
            FIRST_GENERATION_VERSION: maven_jars(
                f"kafka-tools-{FIRST_GENERATION_VERSION}",
                [("org.apache.kafka", "kafka-tools", FIRST_GENERATION_VERSION)],
            ),
        }

    def run(self) -> None:
        with self._broker as broker:
            broker.start_and_wait()
            servers = f"127.0.0.1:{broker.port}"
            targets = {version: f"copied-by-{version}" for version in self._libraries}
            _make_topics(servers, [_SOURCE, *targets.values()])
            for version, target in targets.items():
                self._copy(version, servers, target)
            broker.stop()
        for directory in sorted(self._broker.data.rglob("copied-by-*")):
            self._dump(sorted(directory.glob("*.log")), "endTxnMarker")
            self._dump(sorted(directory.glob("*.txnindex")), "lastStableOffset")
        written = [path for path in self._broker.data.rglob("__transaction_state-*/*.log") if path.stat().st_size]
        self._dump(written, "transactionStatus", "--transaction-log-decoder")

    def _copy(self, version: str, servers: str, target: str) -> None:
        arguments = ["--broker-list", servers, "--input-topic", _SOURCE, "--input-partition", "0"]
        arguments += ["--output-topic", target, "--max-messages", str(_MESSAGES), "--consumer-group", target]
        arguments += ["--transaction-size", str(_TRANSACTION_SIZE), "--transactional-id", target]
        self._java(version, _COPIER, [*arguments, "--enable-random-aborts"])
        found = read_committed(servers, target, 1)[0]
        is_right = found == [str(number) for number in range(_MESSAGES)]
        say(f"Kafka {version}: {len(found)} messages, each once and in order: {'yes' if is_right else 'NO'}")
        if not is_right:
            self.problems.append(f"what Kafka {version} has copied is not what there was: {len(found)} messages")

    def _dump(self, paths: Sequence[Path], expected: str, *more: str) -> None:
        if not paths:
            self.problems.append(f"there is no file in which to look for {expected}")
        for path in paths:
            arguments = ["--files", str(path), *(["--print-data-log"] if path.suffix == ".log" else []), *more]
            output = self._java(VERSION, _DUMP, arguments)
            found = sum(expected in line for line in output.splitlines())
            say(f"{path.parent.name}/{path.name}: {found} lines with {expected}")
            complaints = [word for word in _COMPLAINTS if word in output]
            if complaints or not found:
                self.problems.append(f"{path}: {complaints or f'no {expected}'}")

    def _java(self, version: str, main: str, arguments: Sequence[str]) -> str:
        command = ["java", "-cp", str(self._libraries[version] / "*"), main, *arguments]
        done = subprocess.run(command, capture_output=True, text=True, timeout=_SECONDS_MAX, check=False)
        if done.returncode:
            self.problems.append(f"{main} of Kafka {version} ended with {done.returncode}: {done.stderr[-500:]}")
        return done.stdout


def _make_topics(servers: str, names: Sequence[str]) -> None:
    admin = AdminClient({"bootstrap.servers": servers})
    for created in admin.create_topics([NewTopic(name, 1, 1) for name in names]).values():
        created.result(_SECONDS_MAX)
    producer = Producer({"bootstrap.servers": servers, "enable.idempotence": True})
    for number in range(_MESSAGES):
        producer.produce(_SOURCE, str(number), partition=0)
    producer.flush(_SECONDS_MAX)


def main() -> int:
    parser = argparse.ArgumentParser(prog="./dev bench kafka_transactions", description="Java clients in transactions.")
    parser.add_argument("--work-dir", type=Path, help="where the data goes (the directory for temporary files)")
    arguments = parser.parse_args()
    end_with_children()
    work = Path(tempfile.mkdtemp(prefix="martlet-java-", dir=arguments.work_dir))
    test = KafkaTransactions(work)
    test.run()
    for problem in test.problems:
        print(f"PROBLEM {problem}")
    print(f"Kafka's clients and tools in transactions: {len(test.problems)} problems")
    if not test.problems:
        shutil.rmtree(work, ignore_errors=True)
    return 1 if test.problems else 0


if __name__ == "__main__":
    sys.exit(main())
