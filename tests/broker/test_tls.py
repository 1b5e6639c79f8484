"""Listeners with TLS, from outside: who is let in, by which name, and certificates that are replaced while it runs."""

import asyncio
import socket
import ssl
import time
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import Consumer, KafkaException, NewTopic, Producer

from martlet.client.errors import ClientError
from martlet.client.security import security_from
from martlet.testing.running_broker import RunningBroker
from tests.broker.sasl import PASSWORD, add_user, address_of, connect, wait_for_brokers
from tests.stores.certificates import Authority

MakeBroker = Callable[..., RunningBroker]
LISTENERS = "open=plain://127.0.0.1:0,tls=tls://127.0.0.1:0,clients=sasl_tls://127.0.0.1:0"


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("authority"))


@pytest.fixture(scope="module")
def files(authority: Authority) -> dict[str, str]:
    certificate, key = authority.pair("server")
    return {"tls_cert": certificate, "tls_key": key, "tls_ca": authority.ca_file}


@pytest.fixture(scope="module")
def guarded(files: dict[str, str]) -> Iterator[RunningBroker]:
    settings: dict[str, Any] = {"sasl_mechanisms": "SCRAM-SHA-512,PLAIN", "broker_listener": "open"}
    with RunningBroker(listeners=LISTENERS, **files, **settings) as running:
        add_user(running, "alice")
        yield running


def client_settings(broker: RunningBroker, listener: str, **more: Any) -> dict[str, Any]:
    protocol = "SSL" if listener == "tls" else "SASL_SSL"
    return {"bootstrap.servers": address_of(broker, listener), "security.protocol": protocol, **more}


def with_tls(authority: Authority, **more: str) -> dict[str, str]:
    return {"security.protocol": "SSL", "ssl.ca.location": authority.ca_file, **more}


def login(mechanism: str, password: str = PASSWORD) -> dict[str, str]:
    return {"sasl.mechanism": mechanism, "sasl.username": "alice", "sasl.password": password}


@pytest.mark.parametrize(("listener", "mechanism"), [("tls", ""), ("clients", "SCRAM-SHA-512"), ("clients", "PLAIN")])
def test_messages_of_every_size_go_through_whole(
    guarded: RunningBroker, authority: Authority, listener: str, mechanism: str
) -> None:
    settings = client_settings(guarded, listener, **{"ssl.ca.location": authority.ca_file})
    if mechanism:
        settings |= login(mechanism)
    topic = f"sizes-{listener}-{mechanism or 'none'}"
    admin = AdminClient(settings)
    admin.create_topics([NewTopic(topic, 1, 1)])[topic].result(20)
    sent = [bytes([size % 251]) * size for size in (0, 1, 16_384, 65_536, 65_537, 900_000)]
    producer = Producer({**settings, "linger.ms": 0})
    for value in sent:
        producer.produce(topic, value)
    assert producer.flush(20) == 0
    consumer = Consumer({**settings, "group.id": topic, "auto.offset.reset": "earliest"})
    consumer.subscribe([topic])
    got: list[bytes] = []
    deadline = time.monotonic() + 30
    while len(got) < len(sent) and time.monotonic() < deadline:
        message = consumer.poll(1)
        if message is not None and message.error() is None:
            got.append(message.value() or b"")
    consumer.close()
    assert got == sent


def test_the_client_of_ours_checks_the_certificate_and_the_host(guarded: RunningBroker, authority: Authority) -> None:
    address = address_of(guarded, "tls")
    assert connect(address, security_from(with_tls(authority))) == [address]
    logged_in = {**with_tls(authority), **login("PLAIN"), "security.protocol": "SASL_SSL"}
    assert connect(address_of(guarded, "clients"), security_from(logged_in))
    with pytest.raises(ClientError, match="its certificate is not trusted"):
        connect(address, security_from({"security.protocol": "SSL"}))
    other_host = address.replace("127.0.0.1", "127.0.0.2")
    with pytest.raises(ClientError):
        connect(other_host, security_from(with_tls(authority)))


def test_a_wrong_password_over_tls_is_refused(guarded: RunningBroker, authority: Authority) -> None:
    for mechanism in ("PLAIN", "SCRAM-SHA-512"):
        settings = client_settings(guarded, "clients", **{"ssl.ca.location": authority.ca_file})
        admin = AdminClient(settings | login(mechanism, "wrong"))
        with pytest.raises(KafkaException):
            admin.list_topics(timeout=2)


@pytest.mark.parametrize("opening", [b"GET / HTTP/1.1\r\n\r\n", bytes(100), b"\0\0\0\x12\0\x12\0\0\0\0\0\1"])
def test_what_is_no_handshake_ends_at_once(guarded: RunningBroker, opening: bytes) -> None:
    host, _, port = address_of(guarded, "tls").rpartition(":")
    with socket.create_connection((host, int(port)), timeout=10) as raw:
        raw.sendall(opening)
        begun = time.monotonic()
        while raw.recv(4096):
            pass
        assert time.monotonic() - begun < 3


def test_a_handshake_that_drips_ends_by_its_deadline_and_others_are_served_meanwhile(
    guarded: RunningBroker, authority: Authority
) -> None:
    host, _, port = address_of(guarded, "tls").rpartition(":")
    with socket.create_connection((host, int(port)), timeout=20) as raw:
        raw.sendall(b"\x16\x03\x01\x02\x00")
        begun = time.monotonic()
        assert connect(address_of(guarded, "tls"), security_from(with_tls(authority)))
        assert raw.recv(4096) == b""
        assert 4 < time.monotonic() - begun < 8


def test_old_versions_of_tls_are_refused(guarded: RunningBroker, authority: Authority) -> None:
    host, _, port = address_of(guarded, "tls").rpartition(":")
    context = ssl.create_default_context(cafile=authority.ca_file)
    with warnings.catch_warnings(action="ignore", category=DeprecationWarning):
        context.minimum_version = ssl.TLSVersion.MINIMUM_SUPPORTED
        context.maximum_version = ssl.TLSVersion.TLSv1_1
    context.set_ciphers("ALL:@SECLEVEL=0")
    with socket.create_connection((host, int(port)), timeout=10) as raw, pytest.raises((ssl.SSLError, OSError)):
        context.wrap_socket(raw, server_hostname="127.0.0.1")


def test_a_client_certificate_names_its_principal(
    make_broker: MakeBroker, files: dict[str, str], authority: Authority
) -> None:
    broker = make_broker(
        listeners="tls=tls://127.0.0.1:0",
        **files,
        tls_client_auth="required",
        tls_principal="cn",
        access_rules=True,
        super_users="User:alice",
    )
    for name, may in (("alice", True), ("mallory", False)):
        certificate, key = authority.pair(name)
        shown = {"ssl.certificate.location": certificate, "ssl.key.location": key}
        settings = client_settings(broker, "tls", **{"ssl.ca.location": authority.ca_file}, **shown)
        admin = AdminClient(settings)
        made = admin.create_topics([NewTopic(f"of-{name}", 1, 1)])[f"of-{name}"]
        if may:
            made.result(20)
        else:
            with pytest.raises(KafkaException, match="TOPIC_AUTHORIZATION_FAILED"):
                made.result(20)
    with pytest.raises(ClientError):
        connect(address_of(broker, "tls"), security_from(with_tls(authority)))


def test_a_certificate_of_another_authority_is_refused(
    make_broker: MakeBroker, files: dict[str, str], authority: Authority, tmp_path: Path
) -> None:
    broker = make_broker(listeners="tls=tls://127.0.0.1:0", **files, tls_client_auth="required")
    certificate, key = Authority(tmp_path).pair("alice")
    shown = {"ssl.certificate.location": certificate, "ssl.key.location": key}
    with pytest.raises(ClientError):
        connect(address_of(broker, "tls"), security_from(with_tls(authority, **shown)))


def test_certificates_are_replaced_under_load_without_a_failed_publish(
    make_broker: MakeBroker, authority: Authority, tmp_path: Path
) -> None:
    certificate, key = tmp_path / "tls.pem", tmp_path / "tls.key"

    def put(name: str) -> None:
        made_certificate, made_key = authority.pair(name)
        certificate.write_bytes(Path(made_certificate).read_bytes())
        key.write_bytes(Path(made_key).read_bytes())
        key.chmod(0o600)

    async def renew() -> bool:
        access = broker.app.services.access if broker.app.services is not None else None
        return access is not None and access.tls is not None and access.tls.renew()

    put("first")
    broker = make_broker(listeners="tls=tls://127.0.0.1:0", tls_cert=str(certificate), tls_key=str(key))
    settings = client_settings(broker, "tls", **{"ssl.ca.location": authority.ca_file})
    admin = AdminClient(settings)
    admin.create_topics([NewTopic("load", 1, 1)])["load"].result(20)
    producer = Producer({**settings, "linger.ms": 1})
    errors: list[object] = []
    served: set[int] = set()
    for turn in range(3):
        for number in range(300):
            producer.produce("load", bytes(1_000), on_delivery=lambda error, _: errors.append(error))
            if number % 100 == 50:
                producer.poll(0)
        put(f"turn-{turn}")
        assert broker.run(renew())
        served.add(serial_number(address_of(broker, "tls"), authority))
        assert connect(address_of(broker, "tls"), security_from(with_tls(authority)))
    assert producer.flush(20) == 0
    assert errors == [None] * 900
    assert len(served) == 3


def serial_number(address: str, authority: Authority) -> int:
    """Of the certificate that a new connection is shown."""

    async def ask() -> int:
        host, _, port = address.rpartition(":")
        context = ssl.create_default_context(cafile=authority.ca_file)
        _, writer = await asyncio.open_connection(host, int(port), ssl=context)
        certificate = writer.get_extra_info("peercert")
        writer.transport.abort()
        return int(certificate["serialNumber"], 16)

    return asyncio.run(ask())


@pytest.mark.parametrize("protocol", ["tls", "sasl_tls"])
def test_replicas_follow_over_tls(tmp_path: Path, files: dict[str, str], protocol: str) -> None:
    shared: dict[str, Any] = {
        "listeners": f"open=plain://127.0.0.1:0,brokers={protocol}://127.0.0.1:0",
        "broker_listener": "brokers",
        "data": str(tmp_path),
        **files,
        "tls_client_auth": "required",
    }
    with RunningBroker(**shared, broker_id=1) as one, RunningBroker(**shared, broker_id=2):
        wait_for_brokers(one, 2)
        settings: dict[str, str | int | float | bool] = {"bootstrap.servers": address_of(one, "open")}
        admin = AdminClient(settings)
        admin.create_topics([NewTopic("t", 2, 2, config={"min.insync.replicas": "2"})])["t"].result(20)
        producer = Producer({**settings, "acks": "all", "delivery.timeout.ms": 20_000})
        errors: list[object] = []
        for partition in (0, 1):
            producer.produce("t", b"x", partition=partition, on_delivery=lambda error, _: errors.append(error))
        assert producer.flush(25) == 0
        assert errors == [None, None]
