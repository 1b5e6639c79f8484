"""One client of one library in a process of its own, for `bench.lost`: it does one thing all the time and says when.

    python -m bench.lost_client    with one JSON object on the standard input

The object names `library`, `work`, `servers`, `topic` and `group`. `publish` sends a small message every few
milliseconds, `commit` stores a position of its group again and again, as a member of it. The process prints
`{"ready": true}`, begins when it is given another line, and prints `{"done_at": SECONDS}` on the monotonic clock for
each success. Settings are the library's own: what users get who never heard of a lost broker. Errors are tried again.

Any other `library` is a command line that does the same: it is given work, servers, topic and group as arguments. So a
client in another language can be measured without being part of this.
"""

import asyncio
import contextlib
import json
import logging
import os
import shlex
import sys
import threading
import time
from collections.abc import Callable, Coroutine, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, Final

EVERY_SECONDS: Final = 0.05
_MESSAGE: Final = b"x" * 100


@dataclass(frozen=True)
class Job:
    """What one client does."""

    servers: str
    topic: str
    group: str

    def done(self, *_: object) -> None:
        """One success."""
        say(done_at=time.monotonic())


def say(**answer: object) -> None:
    print(json.dumps(answer), flush=True)


def publish_with_confluent(job: Job) -> None:
    from confluent_kafka import Producer

    producer = Producer({"bootstrap.servers": job.servers, "enable.idempotence": True, "log_level": 0})
    while True:
        producer.produce(job.topic, _MESSAGE, on_delivery=lambda error, _: None if error else job.done())
        producer.poll(EVERY_SECONDS)


def commit_with_confluent(job: Job) -> None:
    from confluent_kafka import Consumer, KafkaException, TopicPartition

    consumer = Consumer(
        {"bootstrap.servers": job.servers, "group.id": job.group, "enable.auto.commit": False, "log_level": 0}
    )
    consumer.subscribe([job.topic])
    while True:
        consumer.poll(EVERY_SECONDS)
        if consumer.assignment():
            with contextlib.suppress(KafkaException):
                consumer.commit(offsets=[TopicPartition(job.topic, 0, 0)], asynchronous=False)
                job.done()


def publish_with_kafka_python(job: Job) -> None:
    from kafka import KafkaProducer  # type: ignore[import-untyped]
    from kafka.errors import KafkaError  # type: ignore[import-untyped]

    producer = KafkaProducer(bootstrap_servers=job.servers, enable_idempotence=True)
    while True:
        with contextlib.suppress(KafkaError):
            producer.send(job.topic, _MESSAGE).add_callback(job.done)
        time.sleep(EVERY_SECONDS)


def commit_with_kafka_python(job: Job) -> None:
    from kafka import KafkaConsumer, TopicPartition
    from kafka.errors import KafkaError
    from kafka.structs import OffsetAndMetadata  # type: ignore[import-untyped]

    options = {"bootstrap_servers": job.servers, "group_id": job.group, "enable_auto_commit": False}
    consumer = KafkaConsumer(job.topic, auto_offset_reset="earliest", **options)
    position = {TopicPartition(job.topic, 0): OffsetAndMetadata(0, "", -1)}
    while not consumer.assignment():
        # It ends with the first messages. One that ends between the parts of a rebalance loses the assignment for good.
        consumer.poll(5_000)
    while True:
        consumer.poll(round(EVERY_SECONDS * 1000))
        with contextlib.suppress(KafkaError):
            consumer.commit(position)
            job.done()


async def publish_with_aiokafka(job: Job) -> None:
    from aiokafka import AIOKafkaProducer  # type: ignore[import-untyped]
    from aiokafka.errors import KafkaError  # type: ignore[import-untyped]

    producer = AIOKafkaProducer(bootstrap_servers=job.servers, enable_idempotence=True)
    await producer.start()
    while True:
        with contextlib.suppress(KafkaError):
            sent = await producer.send(job.topic, _MESSAGE)
            sent.add_done_callback(lambda sent: None if sent.exception() else job.done())
        await asyncio.sleep(EVERY_SECONDS)


async def commit_with_aiokafka(job: Job) -> None:
    from aiokafka import AIOKafkaConsumer, TopicPartition
    from aiokafka.errors import KafkaError

    consumer = AIOKafkaConsumer(job.topic, bootstrap_servers=job.servers, group_id=job.group, enable_auto_commit=False)
    await consumer.start()
    while True:
        await consumer.getmany(timeout_ms=round(EVERY_SECONDS * 1000))
        if consumer.assignment():
            with contextlib.suppress(KafkaError):
                await consumer.commit({TopicPartition(job.topic, 0): 0})
                job.done()


def _on_a_loop(work: Callable[[Job], Coroutine[Any, Any, None]], job: Job) -> None:
    asyncio.run(work(job))


WORKS: Final[Mapping[str, Mapping[str, Callable[[Job], None]]]] = {
    "confluent-kafka": {"publish": publish_with_confluent, "commit": commit_with_confluent},
    "kafka-python": {"publish": publish_with_kafka_python, "commit": commit_with_kafka_python},
    "aiokafka": {
        "publish": partial(_on_a_loop, publish_with_aiokafka),
        "commit": partial(_on_a_loop, commit_with_aiokafka),
    },
}
"""By library and kind of work."""


def _end_with_input() -> None:
    sys.stdin.read()
    os._exit(0)


def main() -> None:
    specification = json.loads(sys.stdin.readline())
    library, work = specification["library"], specification["work"]
    job = Job(specification["servers"], specification["topic"], specification["group"])
    if library not in WORKS:
        command = shlex.split(library)
        os.execvp(command[0], [*command, work, job.servers, job.topic, job.group])
    logging.disable(logging.CRITICAL)  # the libraries say a lot about lost connections
    __import__({"confluent-kafka": "confluent_kafka", "kafka-python": "kafka"}.get(library, library))
    say(ready=True)
    sys.stdin.readline()
    threading.Thread(target=_end_with_input, daemon=True).start()
    WORKS[library][work](job)


if __name__ == "__main__":
    main()
