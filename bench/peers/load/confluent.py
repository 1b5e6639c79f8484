"""The load generator for systems that speak Kafka's protocol: librdkafka through confluent-kafka, the same for all."""

import struct
import threading
import time
from typing import Any, Final

from confluent_kafka import Consumer, KafkaError, KafkaException, Message, Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from bench.peers.load.main import SECONDS_MAX, Stopwatch, microseconds_since, serve, stamped, value_of

_STAMP: Final = struct.Struct(">Q")
_QUIET: Final = {"log_level": 0}


def hello(specification: dict[str, Any]) -> dict[str, Any]:
    admin = AdminClient({"bootstrap.servers": specification["servers"], **_QUIET})
    return {"brokers": len(admin.list_topics(timeout=10).brokers)}


def create(specification: dict[str, Any]) -> dict[str, Any]:
    """A topic, and wait until all its partitions have leaders."""
    admin = AdminClient({"bootstrap.servers": specification["servers"], **_QUIET})
    name, partitions = specification["queue"], specification["partitions"]
    topic = NewTopic(name, partitions, specification["replication"], config=specification["config"])
    for future in admin.create_topics([topic], operation_timeout=60).values():
        future.result(60)
    deadline = time.monotonic() + 60
    while True:
        found = admin.list_topics(name, timeout=10).topics[name].partitions
        if len(found) == partitions and all(one.leader >= 0 and one.error is None for one in found.values()):
            return {"partitions": partitions}
        if time.monotonic() > deadline:
            raise TimeoutError(f"{name} has no leaders after 60 s")
        time.sleep(0.05)


def _producer(specification: dict[str, Any], **more: Any) -> Producer:
    return Producer(
        {
            "bootstrap.servers": specification["servers"],
            "acks": specification.get("acks", "all"),
            "linger.ms": 5,
            "compression.type": specification.get("compression", "none"),
            "queue.buffering.max.messages": 500_000,
            "queue.buffering.max.kbytes": 1_000_000,
            **_QUIET,
            **more,
        }
    )


def publish(specification: dict[str, Any]) -> dict[str, Any]:
    """From the first call until the last acknowledgement; partitions are chosen by librdkafka."""
    failures: list[KafkaError] = []

    def delivered(error: KafkaError | None, _message: Message) -> None:
        if error is not None:
            failures.append(error)

    producer = _producer(specification)
    topic, value = specification["queue"], value_of(specification["value_bytes"])
    producer.list_topics(topic, timeout=10)
    watch = Stopwatch()
    sent = 0
    for number in range(specification["count"]):
        if number % 1000 == 0 and watch.seconds > specification.get("seconds_max", SECONDS_MAX):
            break
        sent += 1
        while True:
            try:
                producer.produce(topic, value, on_delivery=delivered if number % 1000 == 0 else None)
                break
            except BufferError:
                producer.poll(0.01)
        if number % 10_000 == 0:
            producer.poll(0)
    left = producer.flush(SECONDS_MAX)
    if left or failures:
        raise RuntimeError(f"{left} messages not acknowledged, failures: {failures[:3]}")
    return watch.result(sent)


def _consumer(specification: dict[str, Any], **more: Any) -> Consumer:
    return Consumer(
        {
            "bootstrap.servers": specification["servers"],
            "group.id": specification.get("group", "bench"),
            "enable.auto.commit": False,
            "queued.max.messages.kbytes": 500_000,
            # By default librdkafka does nothing for a second when it is 100,000 messages ahead of its program, which
            # makes a program on a fast server slower than one on a slow server.
            "fetch.queue.backoff.ms": 10,
            **_QUIET,
            **more,
        }
    )


def consume(specification: dict[str, Any]) -> dict[str, Any]:
    """From the first messages on, which themselves are not counted: they came with connecting."""
    consumer = _consumer(specification)
    topic = specification["queue"]
    consumer.assign([TopicPartition(topic, index, 0) for index in range(specification.get("partitions", 1))])
    wanted, seen = specification["count"], 0
    watch: Stopwatch | None = None
    deadline = time.monotonic() + SECONDS_MAX
    try:
        while seen < wanted:
            messages = consumer.consume(min(10_000, wanted - seen), 1.0)
            if messages and watch is None:
                watch = Stopwatch()
                wanted -= len(messages)
                continue
            for message in messages:
                error = message.error()
                if error is not None:
                    raise KafkaException(error)
            seen += len(messages)
            if time.monotonic() > deadline:
                raise TimeoutError(f"{seen} of {wanted} messages after {SECONDS_MAX:.0f} s")
        return (watch or Stopwatch()).result(seen) | {"messages_in_all": specification["count"]}
    finally:
        consumer.close()


def latency(specification: dict[str, Any]) -> dict[str, Any]:
    """Publishes at a rate, whatever the answers do; times to the acknowledgement and to a waiting consumer."""
    topic, samples, warmup = specification["queue"], specification["samples"], specification["warmup"]
    total = samples + warmup
    acknowledged: list[float] = []
    deliveries: list[float] = []
    consumer = _consumer(specification, **{"fetch.wait.max.ms": 500})
    consumer.assign([TopicPartition(topic, 0, 0)])

    def read() -> None:
        deadline = time.monotonic() + SECONDS_MAX
        while len(deliveries) < total and time.monotonic() < deadline:
            message = consumer.poll(1.0)
            if message is not None and message.error() is None:
                deliveries.append(microseconds_since(message.value() or b""))

    def delivered(error: KafkaError | None, message: Message) -> None:
        if error is not None:
            raise KafkaException(error)
        acknowledged.append(microseconds_since(message.value() or b""))

    producer = _producer(specification, **{"linger.ms": 0})
    producer.list_topics(topic, timeout=10)
    reader = threading.Thread(target=read, daemon=True)
    reader.start()
    time.sleep(0.5)
    due = time.monotonic()
    for _ in range(total):
        due += 1 / specification["rate"]
        while (left := due - time.monotonic()) > 0:
            producer.poll(left)
        producer.produce(topic, stamped(specification["value_bytes"]), on_delivery=delivered)
        producer.poll(0)
    producer.flush(SECONDS_MAX)
    reader.join(SECONDS_MAX)
    consumer.close()
    if len(deliveries) < total or len(acknowledged) < total:
        raise RuntimeError(f"{len(acknowledged)} acknowledged and {len(deliveries)} delivered of {total}")
    return {"publish_us": acknowledged[warmup:], "delivery_us": deliveries[warmup:]}


class _Member(threading.Thread):
    """One member of a group, that only polls."""

    def __init__(self, specification: dict[str, Any]) -> None:
        super().__init__(daemon=True)
        more = {"group.protocol": specification["protocol"]}
        if specification["protocol"] == "classic":
            more["partition.assignment.strategy"] = "cooperative-sticky"
        self.consumer = _consumer(specification, **more)
        self.consumer.subscribe([specification["queue"]])
        self.is_wanted = True
        self.owned: frozenset[int] = frozenset()

    def run(self) -> None:
        while self.is_wanted:
            self.consumer.poll(0.02)
            self.owned = frozenset(one.partition for one in self.consumer.assignment())
        self.consumer.close()


def rebalance(specification: dict[str, Any]) -> dict[str, Any]:
    """Seconds until a group has settled: all its members at once, then one more, then one fewer."""
    members: list[_Member] = []
    partitions = specification["partitions"]
    results = {}

    def settle_seconds() -> float:
        started = time.monotonic()
        while time.monotonic() - started < SECONDS_MAX:
            owned = [one.owned for one in members]
            if sum(map(len, owned)) == partitions == len(frozenset().union(*owned)):
                least, most = min(map(len, owned)), max(map(len, owned))
                if most - least <= 1:
                    return time.monotonic() - started
            time.sleep(0.002)
        raise TimeoutError(f"no settled group: {[sorted(one.owned) for one in members]}")

    def add(count: int) -> None:
        fresh = [_Member(specification) for _ in range(count)]
        members.extend(fresh)
        for one in fresh:
            one.start()

    try:
        add(specification["members"])
        results["start"] = settle_seconds()
        time.sleep(1)
        add(1)
        results["join"] = settle_seconds()
        time.sleep(1)
        gone = members.pop()
        gone.is_wanted = False
        results["leave"] = settle_seconds()
    finally:
        for one in members:
            one.is_wanted = False
        for one in members:
            one.join(30)
    return results


if __name__ == "__main__":
    serve(
        {
            "hello": hello,
            "create": create,
            "publish": publish,
            "consume": consume,
            "latency": latency,
            "rebalance": rebalance,
        }
    )
