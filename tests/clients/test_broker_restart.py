"""Clients that stay while the broker is stopped or killed and started again: they go on and miss and double nothing."""

import asyncio
import gc
import logging
import threading
import time
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from aiokafka import AIOKafkaProducer, TopicPartition  # type: ignore[import-untyped]
from confluent_kafka import Producer
from confluent_kafka import TopicPartition as ConfluentPartition
from kafka import KafkaProducer  # type: ignore[import-untyped]
from kafka import TopicPartition as KafkaPythonPartition

from tests.broker.broker_process import BrokerProcess
from tests.broker.requests import unique_topic
from tests.clients import with_aiokafka, with_confluent, with_kafka_python

COUNT = 3000
VALUES = [b"%d" % number for number in range(COUNT)]
RESTART_AT = 1000
DEADLINE_SECONDS = 60.0

ENDINGS = pytest.mark.parametrize("ending", ["stop", "kill"])


@pytest.fixture
def process(tmp_path: Path) -> Iterator[BrokerProcess]:
    with BrokerProcess(tmp_path / "data") as running:
        yield running


def restart_soon(process: BrokerProcess, ending: str) -> threading.Thread:
    """Begin to end the broker and start it again, while the caller goes on publishing."""

    def restart() -> None:
        getattr(process, ending)()
        time.sleep(0.2)
        process.start()

    thread = threading.Thread(target=restart)
    thread.start()
    return thread


@ENDINGS
def test_a_confluent_producer_and_consumer_go_on(process: BrokerProcess, ending: str) -> None:
    topic = unique_topic("restart-confluent")
    with_confluent.ConfluentAdapter().create_topic(process.address, topic, 1)
    consumer = with_confluent.new_consumer(process.address)
    consumer.assign([ConfluentPartition(topic, 0, 0)])
    producer = Producer({"bootstrap.servers": process.address, "enable.idempotence": True, "linger.ms": 2})
    restarting: threading.Thread | None = None
    for number, value in enumerate(VALUES):
        if number == RESTART_AT:
            restarting = restart_soon(process, ending)
        producer.produce(topic, value)
        producer.poll(0.001 if number % 10 == 0 else 0)
    assert producer.flush(DEADLINE_SECONDS) == 0
    assert restarting is not None
    restarting.join()
    try:
        read = with_confluent.consume(consumer, {0: 0}, {0: COUNT})
        assert [message.value for message in read.values()] == VALUES
    finally:
        consumer.close()


@pytest.fixture
def collects_leaked_sockets() -> Iterator[None]:
    """kafka-python leaves the sockets of failed connections to the garbage collector, which warns about each.

    It also logs the failures, and a log entry that is kept keeps the socket.
    """
    logger = logging.getLogger("kafka")
    logger.setLevel(logging.CRITICAL + 1)
    yield
    logger.setLevel(logging.NOTSET)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ResourceWarning)
        gc.collect()


@ENDINGS
@pytest.mark.usefixtures("collects_leaked_sockets")
@pytest.mark.filterwarnings("ignore::ResourceWarning")
def test_a_kafka_python_producer_and_consumer_go_on(process: BrokerProcess, ending: str) -> None:
    topic = unique_topic("restart-kafka-python")
    with_kafka_python.KafkaPythonAdapter().create_topic(process.address, topic, 1)
    consumer = with_kafka_python.new_consumer(process.address)
    consumer.assign([KafkaPythonPartition(topic, 0)])
    consumer.seek(KafkaPythonPartition(topic, 0), 0)
    producer = KafkaProducer(bootstrap_servers=process.address, enable_idempotence=True, linger_ms=2)
    sent: list[Any] = []
    restarting: threading.Thread | None = None
    try:
        for number, value in enumerate(VALUES):
            if number == RESTART_AT:
                with_kafka_python.consume(consumer, {0: 0}, {0: 1})
                restarting = restart_soon(process, ending)
            sent.append(producer.send(topic, value))
            if number % 10 == 0:
                time.sleep(0.001)
        assert [future.get(timeout=DEADLINE_SECONDS).offset for future in sent] == list(range(COUNT))
        assert restarting is not None
        restarting.join()
        consumer.seek(KafkaPythonPartition(topic, 0), 0)
        read = with_kafka_python.consume(consumer, {0: 0}, {0: COUNT})
        assert [message.value for message in read.values()] == VALUES
    finally:
        producer.close()
        consumer.close()


@ENDINGS
def test_an_aiokafka_producer_and_consumer_go_on(process: BrokerProcess, ending: str) -> None:
    topic = unique_topic("restart-aiokafka")
    with_aiokafka.AiokafkaAdapter().create_topic(process.address, topic, 1)

    async def go_on() -> list[bytes | None]:
        producer = AIOKafkaProducer(bootstrap_servers=process.address, enable_idempotence=True)
        async with with_aiokafka.running(with_aiokafka.new_consumer(process.address)) as consumer:
            consumer.assign([TopicPartition(topic, 0)])
            consumer.seek(TopicPartition(topic, 0), 0)
            sent = []
            restarting: threading.Thread | None = None
            async with with_aiokafka.running(producer):
                for number, value in enumerate(VALUES):
                    if number == RESTART_AT:
                        restarting = restart_soon(process, ending)
                    sent.append(await producer.send(topic, value))
                    if number % 10 == 0:
                        await asyncio.sleep(0.001)
                done = await asyncio.wait_for(asyncio.gather(*sent), DEADLINE_SECONDS)
                assert [one.offset for one in done] == list(range(COUNT))
            assert restarting is not None
            await asyncio.to_thread(restarting.join)
            read = await with_aiokafka.consume(consumer, {0: 0}, {0: COUNT})
            return [message.value for message in read.values()]

    assert asyncio.run(go_on()) == VALUES
