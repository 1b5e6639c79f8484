"""Who uses the broker while it is being killed: an idempotent producer, a single-shot publisher, a reader.

Each is a thread that reports to the `History` and keeps going through every crash until it is asked to stop.
"""

import logging
import random
import threading
import time
from collections.abc import Callable, Iterator
from typing import Final

from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaError, KafkaException, Message, Producer, TopicPartition

from bench.batches import build_values_batch
from bench.crash.history import History, Kind, Name, ReadMessage, name_of, value_of
from bench.wire_client import RequestRefused, TopicInfo, WireClient
from martlet.base.errors import ErrorCode
from martlet.wire.batch import crc_matches, iterate_batches
from martlet.wire.records.record import read_records

ANSWER_SECONDS_MAX: Final = 15.0
"""A killed broker's connections end at once; a client that waits as long as this waits for a broker that hangs."""
_PACE_SECONDS: Final = 0.01
_MESSAGES_PER_STEP: Final = 20
_FETCH_BYTES: Final = 4 << 20
_BATCH_BYTES_MAX: Final = 64 << 20
# After these the message may have been written all the same.
_OPEN_OUTCOMES: Final = frozenset(
    {
        ErrorCode.UNKNOWN_SERVER_ERROR,
        ErrorCode.REQUEST_TIMED_OUT,
        ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND,
        ErrorCode.KAFKA_STORAGE_ERROR,
    }
)
_silent = logging.getLogger("bench.crash.librdkafka")
_silent.addHandler(logging.NullHandler())
_silent.propagate = False


class Worker:
    """A thread that repeats `step` until stopped; a failure of its own ends it and is a complaint."""

    def __init__(self, name: str, history: History, step: Callable[[], None]) -> None:
        self._history = history
        self._step = step
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)

    @property
    def is_stopping(self) -> bool:
        return self._stopping.is_set()

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        self._stopping.set()
        self._thread.join(60)
        if self._thread.is_alive():
            self._history.complaints.append(f"{self._thread.name} did not stop")

    def _run(self) -> None:
        while not self._stopping.is_set():
            try:
                self._step()
            except Exception as error:  # noqa: BLE001 - a thread that dies in silence would make the test blind
                self._history.complaints.append(f"{self._thread.name} failed: {type(error).__name__}: {error}")
                return


class IdempotentPublisher:
    """confluent-kafka with idempotence: it retries through every crash, and nothing may be there twice."""

    def __init__(self, port: int, topic: TopicInfo, history: History, seed: int) -> None:
        self._topic = topic
        self._history = history
        self._random = random.Random(f"idempotent {seed}")
        self._producer = Producer(
            {
                "bootstrap.servers": f"127.0.0.1:{port}",
                "enable.idempotence": True,
                "linger.ms": 2,
                "batch.num.messages": 50,
                "message.timeout.ms": 300_000,
                "queue.buffering.max.messages": 20_000,
                "reconnect.backoff.ms": 5,
                "reconnect.backoff.max.ms": 50,
                "retry.backoff.ms": 10,
                "retry.backoff.max.ms": 50,
                # Otherwise it forgets its only broker whenever that is away, and spends its time finding it again.
                "metadata.recovery.strategy": "none",
                "error_cb": self._on_error,
                "log_level": 0,
            },
            logger=_silent,
        )
        self.worker = Worker("the idempotent publisher", history, self._step)

    def _step(self) -> None:
        for _ in range(_MESSAGES_PER_STEP):
            partition = self._random.randrange(self._topic.partitions)
            name = self._history.next_name(Kind.IDEMPOTENT, partition)
            while not self._try_to_send(name):
                if self.worker.is_stopping:
                    return
                self._producer.poll(0.05)
        self._producer.poll(0)
        time.sleep(_PACE_SECONDS)

    def _try_to_send(self, name: Name) -> bool:
        """False when the producer's queue is full, as it is while the broker is away."""
        try:
            self._producer.produce(
                self._topic.name, value_of(name), partition=name.partition, on_delivery=self._on_delivery
            )
        except BufferError:
            return False
        return True

    def _on_delivery(self, error: KafkaError | None, message: Message) -> None:
        name = name_of(message.value() or b"")
        if name is None:
            self._history.complaints.append("the producer reports a message that was not sent")
        elif error is not None:
            self._history.unknown.add(name)
        else:
            offset = message.offset()
            self._history.acknowledged[name] = -1 if offset is None else offset

    def _on_error(self, error: KafkaError) -> None:
        if error.fatal():
            self._history.complaints.append(f"the idempotent producer failed for good: {error}")

    def wait_working(self) -> None:
        """Return once a message has been acknowledged: finding the broker and getting a producer id takes a second."""
        deadline = time.monotonic() + ANSWER_SECONDS_MAX
        while not any(name.kind is Kind.IDEMPOTENT for name in tuple(self._history.acknowledged)):
            if time.monotonic() > deadline:
                self._history.complaints.append("the idempotent producer had nothing acknowledged at the start")
                return
            time.sleep(0.02)

    def finish(self) -> None:
        """Stop sending and have everything acknowledged; the broker must be up."""
        self.worker.stop()
        left = self._producer.flush(60)
        if left:
            self._history.complaints.append(f"{left} messages of the idempotent producer stayed unacknowledged")


class SinglePublisher:
    """Sends each batch once; when its answer does not come, its fate is unknown and stays so."""

    def __init__(self, port: int, topic: TopicInfo, history: History, seed: int) -> None:
        self._port = port
        self._topic = topic
        self._history = history
        self._random = random.Random(f"single {seed}")
        self._client: WireClient | None = None
        self.worker = Worker("the single publisher", history, self._step)

    def _step(self) -> None:
        try:
            if self._client is None:
                self._client = WireClient(self._port, timeout_seconds=ANSWER_SECONDS_MAX)
            partition = self._random.randrange(self._topic.partitions)
            publish_once(self._client, self._topic, self._history, Kind.SINGLE, partition, self._random.randrange(1, 6))
            time.sleep(0.001)
        except OSError:
            if self._client is not None:
                self._client.close()
                self._client = None
            time.sleep(0.005)

    def finish(self) -> None:
        self.worker.stop()
        if self._client is not None:
            self._client.close()


def publish_once(
    client: WireClient, topic: TopicInfo, history: History, kind: Kind, partition: int, count: int
) -> bool:
    """Send one batch of `count` messages; whether it was acknowledged. Raises OSError when the broker is gone."""
    names = [history.next_name(kind, partition) for _ in range(count)]
    try:
        result = client.publish(topic.name, partition, build_values_batch([value_of(name) for name in names]))
    except OSError as error:
        history.unknown.update(names)
        if isinstance(error, TimeoutError):
            history.complaints.append(f"a publish to partition {partition} was not answered: the broker hangs")
        raise
    if not result.error_code:
        history.acknowledged.update((name, result.base_offset + number) for number, name in enumerate(names))
        return True
    (history.unknown if result.error_code in _OPEN_OUTCOMES else history.refused).update(names)
    return False


class TailReader:
    """Follows all partitions; what it was given must never change."""

    def __init__(self, port: int, topic: TopicInfo, history: History) -> None:
        self._port = port
        self._topic = topic
        self._history = history
        self._offsets = [0] * topic.partitions
        self._client: WireClient | None = None
        self.worker = Worker("the reader", history, self._step)

    def _step(self) -> None:
        try:
            if self._client is None:
                self._client = WireClient(self._port, timeout_seconds=ANSWER_SECONDS_MAX)
            for partition, offset in enumerate(self._offsets):
                messages, self._offsets[partition] = read_once(self._client, self._topic, partition, offset)
                self._history.saw(partition, messages)
        except RequestRefused as refused:
            # A reader's offset above the end would mean that something it has read was lost.
            if refused.code == ErrorCode.OFFSET_OUT_OF_RANGE:
                self._history.complaints.append(f"the reader is past the end: {refused}")
        except OSError:
            if self._client is not None:
                self._client.close()
                self._client = None
        time.sleep(0.02)

    def finish(self) -> None:
        self.worker.stop()
        if self._client is not None:
            self._client.close()


def read_once(client: WireClient, topic: TopicInfo, partition: int, offset: int) -> tuple[list[ReadMessage], int]:
    """The messages of one fetch and the offset behind them; checks every checksum."""
    result = client.fetch(topic, partition, offset, max_bytes=_FETCH_BYTES)
    records = memoryview(result.records)
    messages: list[ReadMessage] = []
    next_offset = offset
    for position, header in iterate_batches(records):
        if not crc_matches(records, position, header):
            raise ValueError(f"{topic.name}-{partition}: a batch with a wrong checksum at {header.base_offset}")
        batch = bytes(records[position : position + header.size])
        read = read_records(batch, _BATCH_BYTES_MAX)
        messages += [ReadMessage(record.offset, record.value or b"") for record in read if record.offset >= offset]
        next_offset = header.next_offset
    return messages, next_offset


def read_everything(port: int, topic: TopicInfo) -> dict[int, list[ReadMessage]]:
    """All partitions from their beginnings to their ends, over a connection of its own."""
    with WireClient(port) as client:
        return {partition: list(_read_partition(client, topic, partition)) for partition in range(topic.partitions)}


def _read_partition(client: WireClient, topic: TopicInfo, partition: int) -> Iterator[ReadMessage]:
    offset = 0
    while True:
        messages, next_offset = read_once(client, topic, partition, offset)
        if next_offset == offset:
            return
        yield from messages
        offset = next_offset


def read_with_librdkafka(port: int, topic: TopicInfo, seconds_max: float = 120.0) -> dict[int, list[ReadMessage]]:
    """The same by a client that is not ours, with its own check of every checksum."""
    content: dict[int, list[ReadMessage]] = {partition: [] for partition in range(topic.partitions)}
    consumer = Consumer(
        {
            "bootstrap.servers": f"127.0.0.1:{port}",
            "group.id": "crash",
            "enable.auto.commit": False,
            "check.crcs": True,
            "enable.partition.eof": True,
            "log_level": 0,
        },
        logger=_silent,
    )
    try:
        consumer.assign([TopicPartition(topic.name, partition, OFFSET_BEGINNING) for partition in content])
        ended: set[int] = set()
        deadline = time.monotonic() + seconds_max
        while len(ended) < topic.partitions:
            if time.monotonic() > deadline:
                raise TimeoutError(f"librdkafka has not reached the end after {seconds_max:.0f} s")
            for message in consumer.consume(5_000, 1.0):
                partition, offset, error = message.partition(), message.offset(), message.error()
                if partition is None or offset is None:
                    continue
                if error is not None and error.code() != KafkaError._PARTITION_EOF:  # noqa: SLF001 - librdkafka's name
                    raise KafkaException(error)
                if error is not None:
                    ended.add(partition)
                else:
                    content[partition].append(ReadMessage(offset, message.value() or b""))
    finally:
        consumer.close()
    return content
