"""Who uses the cluster while it is being broken: idempotent producers, a publisher that never repeats itself, readers.

Each is a thread that reports to the `History` and goes on through every fault until it is asked to stop.

- `IdempotentPublisher`: confluent-kafka with acks=all and idempotence. It ends itself now and then without waiting for
  its answers and begins again under another name, as a crashed program would.
- `SinglePublisher`: a bare connection, acks=all, one batch at a time, never sent twice. It sees the broker's own error
  codes, so it alone can say that something was refused for certain. After an open outcome it goes on under another
  name: what it sent may still be on its way and may arrive behind what it sends next.
- `Reader`: confluent-kafka by assignment, from the beginning, with a rack so that followers serve it too. It must be
  given everything in order; it begins again at an earlier place now and then.
"""

import contextlib
import itertools
import logging
import random
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final

from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaError, KafkaException, Message, Producer, TopicPartition
from sim.history_checker import History, Name, ReadMessage, name_of, value_of

from bench.batches import build_values_batch
from bench.wire_client import WireClient
from martlet.base.errors import ErrorCode

_LIVES_SECONDS: Final = (8.0, 40.0)
"""How long a client lives until it begins again."""
_QUEUED_MAX: Final = 500
_FLUSH_SECONDS_MAX: Final = 90.0
_ANSWER_SECONDS_MAX: Final = 8.0
_CLOSE_SECONDS_MAX: Final = 30.0
# Said before anything is written; after every other error the message may be there.
_REFUSALS: Final = frozenset(
    {
        ErrorCode.NOT_ENOUGH_REPLICAS,
        ErrorCode.LEADER_NOT_AVAILABLE,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    }
)
_silent = logging.getLogger("bench.chaos.librdkafka")
_silent.addHandler(logging.NullHandler())
_silent.propagate = False
_NEW_EPOCH: Final = "epoch bump"
"""In what librdkafka says when it begins to number again all that it has not seen acknowledged."""

QUICK_TO_RETURN: Final[dict[str, Any]] = {
    "reconnect.backoff.ms": 20,
    "reconnect.backoff.max.ms": 300,
    "topic.metadata.refresh.interval.ms": 5_000,
    "socket.timeout.ms": 10_000,
    "log_level": 0,
}
"""For librdkafka: faults last seconds here, so it should not sleep for longer than they do."""


@dataclass
class Target:
    """What is used, and where its outcome is reported. A client that begins again asks the `servers` of that time."""

    servers: str
    topic: str
    partitions: int
    history: History

    def partition_name(self, index: int) -> str:
        return f"{self.topic}-{index}"


class Worker:
    """A thread that runs `life` again and again until stopped; a failure of its own is a complaint."""

    def __init__(self, name: str, history: History, life: Callable[[], None]) -> None:
        self.name = name
        self._history = history
        self._life = life
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)

    @property
    def is_stopping(self) -> bool:
        return self._stopping.is_set()

    def start(self) -> None:
        self._thread.start()

    def ask_to_stop(self) -> None:
        self._stopping.set()

    def join(self) -> None:
        self._thread.join(2 * _FLUSH_SECONDS_MAX)
        if self._thread.is_alive():
            self._history.complain(f"{self.name} did not stop")

    def _run(self) -> None:
        while not self._stopping.is_set():
            try:
                self._life()
            except Exception as error:  # noqa: BLE001 - a thread that dies in silence would make the test blind
                self._history.complain(f"{self.name} failed: {type(error).__name__}: {error}")
                return


class EpochWatch(logging.Handler):
    """Tells when librdkafka begins a new epoch: what is in the log already is then published a second time.

    Which of the messages that happens to is chance, so the cause is looked for and not only the duplicate. Give the
    `logger` and the `SETTINGS` to the producer.
    """

    SETTINGS: Final[dict[str, Any]] = {"debug": "eos", "log_level": 7}

    def __init__(self, tell: Callable[[str], None]) -> None:
        super().__init__(logging.DEBUG)
        self._tell = tell
        self.logger = logging.Logger("librdkafka", logging.DEBUG)
        self.logger.addHandler(self)

    def emit(self, record: logging.LogRecord) -> None:
        text = record.getMessage()
        if _NEW_EPOCH in text:
            self._tell(text)


class IdempotentPublisher:
    """`per_second` messages while nothing is wrong, over all partitions."""

    def __init__(self, name: str, target: Target, chance: random.Random, *, per_second: float) -> None:
        self._target = target
        self._random = chance
        self._per_second = per_second
        self._numbers = itertools.count()
        self._has_failed = False
        self.worker = Worker(name, target.history, self._live)
        self.acknowledged_in: dict[int, int] = defaultdict(int)
        """Acknowledgements by partition."""

    def _live(self) -> None:
        name = f"{self.worker.name}.{next(self._numbers)}"
        self._has_failed = False
        producer = Producer(
            {
                **QUICK_TO_RETURN,
                "bootstrap.servers": self._target.servers,
                "enable.idempotence": True,
                "acks": "all",
                "linger.ms": self._random.choice((0, 5, 50)),
                "batch.num.messages": self._random.choice((1, 10, 200)),
                "compression.type": self._random.choice(("none", "lz4", "zstd", "gzip")),
                # Longer than any fault, so that it is the cluster that decides, not the client's patience.
                "message.timeout.ms": 300_000,
                "queue.buffering.max.messages": _QUEUED_MAX,
                "retry.backoff.ms": 20,
                "retry.backoff.max.ms": 300,
                "error_cb": self._on_error,
                **EpochWatch.SETTINGS,
            },
            logger=EpochWatch(lambda text: self._target.history.complain(f"{name} begins again: {text}")).logger,
        )
        ends_at = time.monotonic() + self._random.uniform(*_LIVES_SECONDS)
        for _ in self._paced():
            partition = self._random.randrange(self._target.partitions)
            message = self._target.history.sending(name, self._target.partition_name(partition))
            self._send(producer, message, partition)
            producer.poll(0)
            if time.monotonic() > ends_at or self._has_failed:
                break
        if self.worker.is_stopping:
            left = producer.flush(_FLUSH_SECONDS_MAX)
            if left:
                self._target.history.complain(f"{left} messages of {name} stayed without an outcome after healing")
        # Else it is simply dropped. To purge it would not do: librdkafka then raises its epoch at once and may send
        # what it was about to repeat a second time under that one, which no broker can tell from news.

    def _paced(self) -> Iterator[None]:
        due = time.monotonic()
        while not self.worker.is_stopping:
            yield
            due = max(due + 1 / self._per_second, time.monotonic() - 0.1)
            time.sleep(max(0.0, due - time.monotonic()))

    def _send(self, producer: Producer, name: Name, partition: int) -> None:
        while True:
            try:
                producer.produce(self._target.topic, value_of(name), partition=partition, on_delivery=self._on_delivery)
            except BufferError:
                if self.worker.is_stopping:
                    return  # never sent; its outcome is unknown like any other's that was not reported
                producer.poll(0.05)
            except KafkaException:
                self._has_failed = True  # for good; the error went to `_on_error`
                return
            else:
                return

    def _on_delivery(self, error: KafkaError | None, message: Message) -> None:
        name = name_of(message.value() or b"")
        if name is None:
            self._target.history.complain("a producer reports a message that was not sent")
        elif error is None:
            offset = message.offset()
            self._target.history.acknowledged(name, offset if offset is not None and offset >= 0 else None)
            self.acknowledged_in[message.partition() or 0] += 1
        else:
            # No fault lasts as long as its patience, so the answer was one that it takes for final.
            self._target.history.complain(f"{name} was given up by librdkafka: {error}")

    def _on_error(self, error: KafkaError) -> None:
        if error.fatal():
            self._has_failed = True
            self._target.history.complain(f"{self.worker.name} failed for good: {error}")


class SinglePublisher:
    """Tries the brokers in turn until one leads the partition."""

    def __init__(self, target: Target, ports: Sequence[int], chance: random.Random, *, per_second: float) -> None:
        self._target = target
        self._ports = ports
        self._random = chance
        self._pause_seconds = 1 / per_second
        self._numbers = itertools.count()
        self._name = f"single.{next(self._numbers)}"
        self._leaders: dict[int, int] = {}
        self._clients: dict[int, WireClient] = {}
        self.worker = Worker("the single publisher", target.history, self._live)
        self.refused = 0

    def _live(self) -> None:
        partition = self._random.randrange(self._target.partitions)
        port = self._leaders.get(partition) or self._random.choice(self._ports)
        try:
            if not self._publish(port, partition):
                self._leaders.pop(partition, None)
            else:
                self._leaders[partition] = port
        except OSError:
            self._leaders.pop(partition, None)
            with contextlib.suppress(KeyError):
                self._clients.pop(port).close()
        time.sleep(self._pause_seconds)

    def _publish(self, port: int, partition: int) -> bool:
        """Send one batch; whether it was acknowledged."""
        client = self._clients.get(port)
        if client is None:
            client = self._clients[port] = WireClient(port, timeout_seconds=_ANSWER_SECONDS_MAX)
        history, place = self._target.history, self._target.partition_name(partition)
        names = [history.sending(self._name, place) for _ in range(self._random.randrange(1, 4))]
        before, self._name = self._name, f"single.{next(self._numbers)}"
        batch = build_values_batch([value_of(name) for name in names])
        result = client.publish(self._target.topic, partition, batch, timeout_ms=5_000)
        if result.error_code in _REFUSALS:
            self.refused += len(names)
            for name in names:
                history.refused(name)
        elif not result.error_code:
            for number, name in enumerate(names):
                history.acknowledged(name, result.base_offset + number)
            self._name = before
        return not result.error_code

    def close(self) -> None:
        for client in self._clients.values():
            client.close()


class Reader:
    """Reads all partitions for ever."""

    def __init__(self, name: str, target: Target, chance: random.Random, *, rack: str) -> None:
        self._target = target
        self._random = chance
        self._rack = rack
        self.left_open = 0
        """Consumers of librdkafka that did not close."""
        self._positions: dict[int, int] = dict.fromkeys(range(target.partitions), OFFSET_BEGINNING)
        self.worker = Worker(name, target.history, self._live)

    def _live(self) -> None:
        ends_at = time.monotonic() + self._random.uniform(*_LIVES_SECONDS)
        with self._consumer() as consumer:
            while not self.worker.is_stopping and time.monotonic() < ends_at:
                self._take(consumer.consume(500, 0.2))
        for partition, position in self._positions.items():
            self._target.history.sought(self.worker.name, self._target.partition_name(partition))
            if position > 0:
                self._positions[partition] = self._random.choice((position, max(0, position - 500)))

    @contextlib.contextmanager
    def _consumer(self) -> Iterator[Consumer]:
        settings = {
            **QUICK_TO_RETURN,
            "bootstrap.servers": self._target.servers,
            "group.id": "chaos",
            "client.rack": self._rack,
            "enable.auto.commit": False,
            # A reader's place above the end would mean that something it was given is gone.
            "auto.offset.reset": "error",
            "check.crcs": True,
            "fetch.wait.max.ms": 200,
            "fetch.error.backoff.ms": 50,
        }
        consumer = Consumer(settings, logger=_silent)
        try:
            consumer.assign(
                [TopicPartition(self._target.topic, index, offset) for index, offset in self._positions.items()]
            )
            yield consumer
        finally:
            # Seen once: librdkafka waits for ever for itself, with all brokers connected and nothing under way.
            closing = threading.Thread(target=consumer.close, name=f"{self.worker.name} closes", daemon=True)
            closing.start()
            closing.join(_CLOSE_SECONDS_MAX)
            self.left_open += closing.is_alive()

    def _take(self, messages: Sequence[Message]) -> None:
        for message in messages:
            partition, offset, error = message.partition(), message.offset(), message.error()
            if error is not None:
                if _is_loss(error):
                    self._target.history.complain(f"{self.worker.name}, partition {partition} at {offset}: {error}")
                continue
            if partition is not None and offset is not None:
                place = self._target.partition_name(partition)
                self._target.history.saw(self.worker.name, place, [ReadMessage(offset, message.value() or b"")])
                self._positions[partition] = offset + 1


def _is_loss(error: KafkaError) -> bool:
    codes = (KafkaError.OFFSET_OUT_OF_RANGE, KafkaError._AUTO_OFFSET_RESET, KafkaError._LOG_TRUNCATION)  # noqa: SLF001
    return error.code() in codes


def read_back(target: Target, seconds_max: float = 180.0) -> None:
    """Read all partitions from their beginnings to their ends and tell the history."""
    content: dict[int, list[ReadMessage]] = {partition: [] for partition in range(target.partitions)}
    settings = {
        **QUICK_TO_RETURN,
        "bootstrap.servers": target.servers,
        "group.id": "read-back",
        "enable.auto.commit": False,
        "check.crcs": True,
        "enable.partition.eof": True,
    }
    consumer = Consumer(settings, logger=_silent)
    try:
        consumer.assign([TopicPartition(target.topic, partition, OFFSET_BEGINNING) for partition in content])
        ended: set[int] = set()
        deadline = time.monotonic() + seconds_max
        while len(ended) < target.partitions:
            if time.monotonic() > deadline:
                raise TimeoutError(f"{target.topic} was not read to its end within {seconds_max:.0f} s")
            for message in consumer.consume(5_000, 0.5):
                partition, offset, error = message.partition(), message.offset(), message.error()
                if partition is None or offset is None:
                    continue
                if error is None:
                    content[partition].append(ReadMessage(offset, message.value() or b""))
                elif error.code() == KafkaError._PARTITION_EOF:  # noqa: SLF001 - librdkafka's name
                    ended.add(partition)
                elif not error.retriable():
                    raise KafkaException(error)
    finally:
        consumer.close()
    for partition, messages in content.items():
        target.history.final(target.partition_name(partition), messages)
