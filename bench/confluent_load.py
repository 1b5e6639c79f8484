"""Publishes or consumes with confluent-kafka in a process of its own.

python -m bench.confluent_load < SPECIFICATION > RESULT        (both one JSON object)
"""

import json
import sys
import time
from typing import Any

from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaError, KafkaException, Message, Producer, TopicPartition

_SECONDS_MAX = 120.0


def publish(specification: dict[str, Any]) -> float:
    """Messages a second from the first call until all are acknowledged."""
    failures: list[KafkaError] = []

    def delivered(error: KafkaError | None, _message: Message) -> None:
        if error is not None:
            failures.append(error)

    producer = Producer(
        {
            "bootstrap.servers": f"127.0.0.1:{specification['port']}",
            "acks": "all",
            "linger.ms": 5,
            "queue.buffering.max.messages": 500_000,
            "queue.buffering.max.kbytes": 1_000_000,
        }
    )
    topic, count = specification["topic"], specification["count"]
    value = bytes(range(256)) * (specification["value_bytes"] // 256 + 1)
    value = value[: specification["value_bytes"]]
    producer.list_topics(topic, timeout=10)
    started = time.perf_counter()
    for number in range(count):
        while True:
            try:
                producer.produce(topic, value, on_delivery=delivered if number % 1000 == 0 else None)
                break
            except BufferError:
                producer.poll(0.01)
        if number % 10_000 == 0:
            producer.poll(0)
    left = producer.flush(_SECONDS_MAX)
    elapsed = time.perf_counter() - started
    if left or failures:
        raise RuntimeError(f"{left} messages not acknowledged, failures: {failures[:3]}")
    return float(count / elapsed)


def consume(specification: dict[str, Any]) -> float:
    """Messages a second from the first message to the last."""
    consumer = Consumer(
        {
            "bootstrap.servers": f"127.0.0.1:{specification['port']}",
            "group.id": "bench",
            "enable.auto.commit": False,
            "queued.max.messages.kbytes": 500_000,
        }
    )
    consumer.assign([TopicPartition(specification["topic"], 0, OFFSET_BEGINNING)])
    count, seen = specification["count"], 0
    started = 0.0
    deadline = time.perf_counter() + _SECONDS_MAX
    try:
        while seen < count:
            messages = consumer.consume(10_000, 1.0)
            if messages and not started:
                # The first ones came with connecting; they are not counted either.
                started = time.perf_counter()
                count -= len(messages)
                continue
            for message in messages:
                error = message.error()
                if error is not None:
                    raise KafkaException(error)
            seen += len(messages)
            if time.perf_counter() > deadline:
                raise TimeoutError(f"{seen} of {count} messages after {_SECONDS_MAX:.0f} s")
        return float(seen / (time.perf_counter() - started)) if seen else 0.0
    finally:
        consumer.close()


def main() -> None:
    specification = json.loads(sys.stdin.readline())
    work = publish if specification["role"] == "publish" else consume
    try:
        result: dict[str, object] = {"rate": work(specification)}
    except (KafkaException, RuntimeError, TimeoutError) as error:
        result = {"failed": f"{type(error).__name__}: {error}"}
    print(json.dumps(result), flush=True)


if __name__ == "__main__":
    main()
