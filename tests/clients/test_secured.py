"""Every client against listeners with TLS and with users: the right credentials serve, wrong ones are refused."""

import ssl
import subprocess
from collections.abc import Iterator
from typing import Any

import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer  # type: ignore[import-untyped]
from aiokafka.errors import KafkaError as AioKafkaError  # type: ignore[import-untyped]
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import KafkaException, Producer
from kafka import KafkaConsumer, KafkaProducer  # type: ignore[import-untyped]
from kafka.errors import KafkaError as KafkaPythonError  # type: ignore[import-untyped]
from kafka.net.compat import KafkaNetClient  # type: ignore[import-untyped]

from martlet.testing.running_broker import RunningBroker
from tests.broker.requests import unique_topic
from tests.broker.sasl import PASSWORD, add_user, address_of
from tests.stores.certificates import Authority

LISTENERS = "open=plain://127.0.0.1:0,plain=sasl_plain://127.0.0.1:0,tls=sasl_tls://127.0.0.1:0"
MECHANISMS = [
    *(("plain", "SCRAM-SHA-256"), ("plain", "SCRAM-SHA-512")),
    *(("tls", "SCRAM-SHA-256"), ("tls", "SCRAM-SHA-512"), ("tls", "PLAIN")),
]
EVERY_MECHANISM = pytest.mark.parametrize(("listener", "mechanism"), MECHANISMS)


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("authority"))


@pytest.fixture(scope="module")
def secured(authority: Authority) -> Iterator[RunningBroker]:
    certificate, key = authority.pair("server")
    settings: dict[str, Any] = {"tls_cert": certificate, "tls_key": key, "tls_ca": authority.ca_file}
    mechanisms = "SCRAM-SHA-256,SCRAM-SHA-512,PLAIN"
    with RunningBroker(listeners=LISTENERS, sasl_mechanisms=mechanisms, **settings) as running:
        add_user(running, "alice")
        yield running


def librdkafka(
    broker: RunningBroker, authority: Authority, listener: str, mechanism: str, password: str = PASSWORD
) -> dict[str, Any]:
    """Settings of confluent-kafka and kcat."""
    return {
        "bootstrap.servers": address_of(broker, listener),
        "security.protocol": "SASL_SSL" if listener == "tls" else "SASL_PLAINTEXT",
        "ssl.ca.location": authority.ca_file,
        "sasl.mechanism": mechanism,
        "sasl.username": "alice",
        "sasl.password": password,
    }


def python_client(
    broker: RunningBroker, authority: Authority, listener: str, mechanism: str, password: str = PASSWORD
) -> dict[str, Any]:
    """What kafka-python and aiokafka are given alike."""
    return {
        "bootstrap_servers": address_of(broker, listener),
        "security_protocol": "SASL_SSL" if listener == "tls" else "SASL_PLAINTEXT",
        "ssl_context": ssl.create_default_context(cafile=authority.ca_file) if listener == "tls" else None,
        "sasl_mechanism": mechanism,
        "sasl_plain_username": "alice",
        "sasl_plain_password": password,
    }


def connects_with_kafka_python(settings: dict[str, Any]) -> bool:
    made: list[Any] = []

    def make_client(**options: Any) -> Any:
        made.append(KafkaNetClient(**options))
        return made[-1]

    try:
        KafkaProducer(**settings, bootstrap_timeout_ms=3_000, kafka_client=make_client).close()
    except KafkaPythonError:
        made[0].close()  # a producer that could not be made leaves its client, with sockets and a thread
        return False
    return True


@EVERY_MECHANISM
def test_confluent_publishes_with_each_mechanism(
    secured: RunningBroker, authority: Authority, listener: str, mechanism: str
) -> None:
    errors: list[object] = []
    producer = Producer(librdkafka(secured, authority, listener, mechanism))
    producer.produce(unique_topic("secured"), b"hello", on_delivery=lambda error, _: errors.append(error))
    assert producer.flush(20) == 0
    assert errors == [None]


@EVERY_MECHANISM
def test_kafka_python_publishes_and_reads_with_each_mechanism(
    secured: RunningBroker, authority: Authority, listener: str, mechanism: str
) -> None:
    settings, topic = python_client(secured, authority, listener, mechanism), unique_topic("secured")
    producer = KafkaProducer(**settings)
    producer.send(topic, b"hello").get(timeout=20)
    producer.close()
    consumer = KafkaConsumer(topic, **settings, auto_offset_reset="earliest", consumer_timeout_ms=15_000)
    assert next(iter(consumer)).value == b"hello"
    consumer.close()


@EVERY_MECHANISM
async def test_aiokafka_publishes_and_reads_with_each_mechanism(
    secured: RunningBroker, authority: Authority, listener: str, mechanism: str
) -> None:
    settings, topic = python_client(secured, authority, listener, mechanism), unique_topic("secured")
    async with AIOKafkaProducer(**settings) as producer:
        await producer.send_and_wait(topic, b"hello")
    async with AIOKafkaConsumer(topic, **settings, auto_offset_reset="earliest") as consumer:
        assert (await consumer.getone()).value == b"hello"


@EVERY_MECHANISM
def test_kcat_lists_with_each_mechanism(
    secured: RunningBroker, authority: Authority, listener: str, mechanism: str
) -> None:
    settings = librdkafka(secured, authority, listener, mechanism)
    options = [text for name, value in settings.items() for text in ("-X", f"{name}={value}")]
    done = subprocess.run(["kcat", *options, "-L"], capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr
    assert address_of(secured, listener) in done.stdout


@pytest.mark.parametrize(("listener", "mechanism"), [("plain", "SCRAM-SHA-512"), ("tls", "PLAIN")])
def test_every_client_hears_that_a_wrong_password_is_refused(
    secured: RunningBroker, authority: Authority, listener: str, mechanism: str
) -> None:
    said: list[str] = []
    settings = librdkafka(secured, authority, listener, mechanism, "wrong")
    settings["error_cb"] = lambda error: said.append(str(error))
    admin = AdminClient(settings)
    with pytest.raises(KafkaException):
        admin.list_topics(timeout=3)
    admin.poll(0)
    assert any("Authentication failed" in text for text in said), said
    settings = python_client(secured, authority, listener, mechanism, "wrong")
    assert not connects_with_kafka_python(settings)


async def test_aiokafka_hears_that_a_wrong_password_is_refused(secured: RunningBroker, authority: Authority) -> None:
    producer = AIOKafkaProducer(**python_client(secured, authority, "tls", "SCRAM-SHA-256", "wrong"))
    with pytest.raises(AioKafkaError):
        await producer.start()
    await producer.stop()


def test_plain_is_not_offered_where_the_password_could_be_read(secured: RunningBroker, authority: Authority) -> None:
    said: list[str] = []
    settings = librdkafka(secured, authority, "plain", "PLAIN")
    settings["error_cb"] = lambda error: said.append(str(error))
    admin = AdminClient(settings)
    with pytest.raises(KafkaException):
        admin.list_topics(timeout=3)
    admin.poll(0)
    assert any("Unsupported SASL mechanism" in text or "not supported" in text.lower() for text in said), said
