"""`./dev bench transactions`: committing transactions beside Kafka, of 1, 100 and 10,000 messages, and reading them.

    python -m bench.transactions [--quick] [--only PART] [--rounds N] [--json FILE] [--markdown FILE] [--work-dir DIR]

Both brokers run at the same time, each alone while it is measured, both with their topics left to the kernel to write
back; the client is librdkafka, the same for both, warm before the first round, and one producer without a pause between
its transactions. Messages have 100 bytes. Kafka is that of `bench.peers` (Maven and Java are needed).

- rate: transactions per second, beginning to answered commit; the limit is Kafka's in the same round.
- commit: how long `commit_transaction` took, p50 and p99 of a round.
- consume: messages per second that a reader of committed data gets, with one transaction in ten aborted.
- plain: messages per second of an idempotent producer without transactions. MARTLET_BENCH_OLD may name the tree of an
  older version with an environment of its own (`.venv`); then its rate is the limit.
"""

import contextlib
import itertools
import os
import statistics
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Final

from confluent_kafka import Consumer, KafkaError, Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from bench.command import Suites, run_command
from bench.peers.systems.kafka import Kafka
from bench.peers.systems.martlet import Martlet
from bench.peers.systems.system import Durability, System
from bench.processes import BrokerProcess, ServerProcess, free_port
from bench.report import Figure, ratio_at_least, ratio_at_most
from bench.rounds import Context, in_turn, settle

_MESSAGE: Final = b"x" * 100
_CALL_SECONDS: Final = 60.0
_SECONDS: Final = 20
_WARM_UP_SECONDS: Final = 5
_QUICK_SECONDS: Final = 2
_RATE_TARGETS: Final = {1: 2.0, 100: 2.0, 10_000: 1.0}
_COMMIT_TARGET: Final = 0.5
_PLAIN_TARGET: Final = 0.97
_CONSUMED: Final = 1_000_000
_CONSUMED_QUICK: Final = 20_000
_CONSUME_AT_ONCE: Final = 10_000
_END_OF_PARTITION: Final = KafkaError._PARTITION_EOF  # noqa: SLF001 - that is its name
_numbers = itertools.count()


class Side:
    """One broker with a topic and a transactional producer that stays the same over all rounds."""

    def __init__(self, servers: str, config: dict[str, str]) -> None:
        self.servers = servers
        self.topic = f"transactions-{next(_numbers)}"
        self._sequence = 0
        _create(servers, NewTopic(self.topic, num_partitions=1, replication_factor=1, config=config))
        self.producer = Producer(
            {
                "bootstrap.servers": servers,
                "transactional.id": self.topic,
                "linger.ms": 0,
                "queue.buffering.max.messages": 1_000_000,
            }
        )
        self.producer.init_transactions(_CALL_SECONDS)

    def transaction(self, messages: int, *, is_commit: bool = True) -> float:
        """One transaction; the seconds that its end took."""
        producer, topic = self.producer, self.topic
        producer.begin_transaction()
        for number in range(messages):
            producer.produce(topic, _MESSAGE, partition=0)
            if number % 1_000 == 999:
                producer.poll(0)
        producer.flush(_CALL_SECONDS)
        started = time.perf_counter()
        (producer.commit_transaction if is_commit else producer.abort_transaction)(_CALL_SECONDS)
        return time.perf_counter() - started

    def commit_for(self, seconds: float, messages: int) -> tuple[float, list[float]]:
        """Transactions per second, and how long each commit took in milliseconds."""
        ends: list[float] = []
        started = time.perf_counter()
        while time.perf_counter() - started < seconds:
            ends.append(1_000 * self.transaction(messages))
        return len(ends) / (time.perf_counter() - started), ends

    def consume_all(self) -> float:
        """Messages per second of a reader of committed data, from the first to the last."""
        consumer = Consumer(
            {
                "bootstrap.servers": self.servers,
                "group.id": f"reader-{next(_numbers)}",
                "isolation.level": "read_committed",
                "enable.auto.commit": False,
                "enable.partition.eof": True,
            }
        )
        consumer.assign([TopicPartition(self.topic, 0, 0)])
        count, is_over, started = 0, False, 0.0
        while not is_over:
            for message in consumer.consume(_CONSUME_AT_ONCE, 1.0):
                started = started or time.perf_counter()
                error = message.error()
                is_over = is_over or (error is not None and error.code() == _END_OF_PARTITION)
                count += error is None
        seconds = time.perf_counter() - started
        consumer.close()
        return count / seconds


@contextlib.contextmanager
def _sides(context: Context) -> Iterator[tuple[Side, Side]]:
    """Martlet and Kafka."""
    with ExitStack() as stack:
        place = stack.enter_context(context.directory("sides"))

        def start(system: System) -> Side:
            running = stack.enter_context(system.start(place / system.name, Durability.CACHED))
            return Side(running.servers, system.topic_config(Durability.CACHED))

        yield start(Martlet()), start(Kafka())


def commit(messages: int, context: Context) -> list[Figure]:
    """Rate and commit times with so many messages in a transaction."""
    name = f"{messages:,} message{'s' * (messages > 1)}"
    seconds = context.sized(_SECONDS, _QUICK_SECONDS)
    rate = Figure(f"{name}: rate", "transactions/s", target=ratio_at_least(_RATE_TARGETS[messages]))
    p50 = Figure(f"{name}: commit, p50", "ms")
    p99 = Figure(f"{name}: commit, p99", "ms", target=ratio_at_most(_COMMIT_TARGET))
    with _sides(context) as sides:
        for side in sides:
            side.commit_for(context.sized(_WARM_UP_SECONDS, 1), messages)
        took: dict[Side, list[float]] = {}

        def measure(side: Side) -> float:
            settle()
            found, took[side] = side.commit_for(seconds, messages)
            return found

        for one in range(context.rounds):
            order = sides if one % 2 == 0 else sides[::-1]
            rates = {side: measure(side) for side in order}
            ours, kafkas = sides
            rate.add(rates[ours], rates[kafkas])
            p50.add(_percentile(took[ours], 50), _percentile(took[kafkas], 50))
            p99.add(_percentile(took[ours], 99), _percentile(took[kafkas], 99))
    return [rate, p50, p99]


def consume(context: Context) -> list[Figure]:
    """Reading committed data."""
    figure = Figure("read committed", "messages/s", target=ratio_at_least(1.0))
    wanted = context.sized(_CONSUMED, _CONSUMED_QUICK)
    with _sides(context) as sides:
        for side in sides:
            for number in range(wanted // 100):
                side.transaction(100, is_commit=number % 10 != 9)
            side.consume_all()
        for ours, kafkas in in_turn(context, "read committed", sides[0].consume_all, sides[1].consume_all):
            figure.add(ours, kafkas)
    return [figure]


def plain(context: Context) -> list[Figure]:
    """An idempotent producer without transactions, beside an older version if there is one."""
    figure = Figure("plain idempotent publishing", "messages/s")
    old = os.environ.get("MARTLET_BENCH_OLD")
    seconds = context.sized(_SECONDS, _QUICK_SECONDS)
    with ExitStack() as stack:
        place = stack.enter_context(context.directory("plain"))

        def start(broker: ServerProcess) -> Callable[[], float]:
            stack.enter_context(broker).start()
            broker.wait_listening()
            return partial(_publish_plainly, f"127.0.0.1:{broker.port}", seconds)

        new = start(BrokerProcess(place / "new"))
        if old is None:
            new()
            for _ in range(context.rounds):
                figure.add(new())
            return [figure]
        figure.target = ratio_at_least(_PLAIN_TARGET)
        before = start(_old_broker(Path(old), place / "old"))
        for measure in (new, before):
            measure()
        for value, limit in in_turn(context, "plain", new, before):
            figure.add(value, limit)
    return [figure]


def _old_broker(tree: Path, directory: Path) -> ServerProcess:
    directory.mkdir()
    port = free_port()
    command = [str(tree / ".venv/bin/martlet"), "up", "--data", str(directory / "data")]
    command += ["--kafka", f"127.0.0.1:{port}", "--operations", "127.0.0.1:0"]
    return ServerProcess(command, port, directory / "broker.log")


def _publish_plainly(servers: str, seconds: float) -> float:
    topic = f"plain-{next(_numbers)}"
    _create(servers, NewTopic(topic, num_partitions=4, replication_factor=1, config={"martlet.flush": "never"}))
    producer = Producer(
        {
            "bootstrap.servers": servers,
            "enable.idempotence": True,
            "batch.num.messages": 100,
            "queue.buffering.max.messages": 100_000,
        }
    )
    count, started = 0, time.perf_counter()
    while time.perf_counter() - started < seconds:
        try:
            producer.produce(topic, _MESSAGE)
            count += 1
        except BufferError:
            producer.poll(0.01)
    producer.flush(_CALL_SECONDS)
    return count / (time.perf_counter() - started)


def _create(servers: str, topic: NewTopic) -> None:
    admin = AdminClient({"bootstrap.servers": servers})
    for created in admin.create_topics([topic]).values():
        created.result(_CALL_SECONDS)


def _percentile(values: list[float], percent: int) -> float:
    return statistics.quantiles(values, n=100, method="inclusive")[percent - 1] if len(values) > 1 else values[0]


_SUITES: Final[Suites] = {
    **{str(messages): partial(commit, messages) for messages in _RATE_TARGETS},
    "consume": consume,
    "plain": plain,
}


if __name__ == "__main__":
    sys.exit(run_command("transactions", "Transactions beside Kafka.", _SUITES, rounds=5, quick_rounds=1))
