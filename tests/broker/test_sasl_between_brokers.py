"""Brokers that reach each other through a listener that authenticates: they are let in, and no client in their name."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic, Producer

from martlet.base.errors import ErrorCode
from martlet.testing.running_broker import RunningBroker
from tests.broker.raw_client import RawClient
from tests.broker.sasl import LISTENERS, PASSWORD, add_user, address_of, log_in, wait_for_brokers


@pytest.fixture
def pair(tmp_path: Path) -> Iterator[tuple[RunningBroker, RunningBroker]]:
    shared = {**LISTENERS, "broker_listener": "clients", "data": str(tmp_path)}
    with RunningBroker(**shared, broker_id=1) as one, RunningBroker(**shared, broker_id=2) as two:
        yield one, two


def test_replicas_follow_through_the_listener_that_authenticates(pair: tuple[RunningBroker, RunningBroker]) -> None:
    add_user(pair[0], "alice")
    wait_for_brokers(pair[0], 2)
    settings: dict[str, str | int | float | bool] = {
        "bootstrap.servers": address_of(pair[0], "clients"),
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": "SCRAM-SHA-512",
        "sasl.username": "alice",
        "sasl.password": PASSWORD,
    }
    topic = NewTopic("payments", 2, 2, config={"min.insync.replicas": "2"})
    admin = AdminClient(settings)
    admin.create_topics([topic])["payments"].result(20)
    errors: list[object] = []
    producer = Producer({**settings, "acks": "all", "delivery.timeout.ms": 20_000})
    for partition in (0, 1):
        producer.produce("payments", b"hello", partition=partition, on_delivery=lambda error, _: errors.append(error))
    assert producer.flush(25) == 0
    assert errors == [None, None]


def test_brokers_may_differ_in_the_listener_that_is_for_them(tmp_path: Path) -> None:
    shared = {**LISTENERS, "data": str(tmp_path)}
    with (
        RunningBroker(**shared, broker_listener="open", broker_id=1) as one,
        RunningBroker(**shared, broker_listener="clients", broker_id=2),
    ):
        wait_for_brokers(one, 2)
        settings: dict[str, str | int | float | bool] = {"bootstrap.servers": address_of(one, "open"), "acks": "all"}
        admin = AdminClient(settings)
        topic = NewTopic("payments", 2, 2, config={"min.insync.replicas": "2"})
        admin.create_topics([topic])["payments"].result(20)
        errors: list[object] = []
        producer = Producer({**settings, "delivery.timeout.ms": 20_000})
        for partition in (0, 1):
            producer.produce("payments", b"x", partition=partition, on_delivery=lambda error, _: errors.append(error))
        assert producer.flush(25) == 0
        assert errors == [None, None]


def test_no_client_comes_in_the_name_of_the_brokers(pair: tuple[RunningBroker, RunningBroker]) -> None:
    async def secret() -> str:
        services = pair[0].app.services
        assert services is not None
        return services.image.replica_secret

    with RawClient(address_of(pair[0], "clients")) as client:
        guess = log_in(client, "__martlet_broker", "not the secret")
        assert guess.error_code == ErrorCode.SASL_AUTHENTICATION_FAILED
    with RawClient(address_of(pair[0], "clients")) as client:
        assert log_in(client, "__martlet_broker", pair[0].run(secret())).error_code == 0


def test_the_brokers_user_may_come_only_through_the_listener_for_brokers(tmp_path: Path) -> None:
    async def secret() -> str:
        services = broker.app.services
        assert services is not None
        return services.image.replica_secret

    with RunningBroker(**LISTENERS, broker_listener="open", data=str(tmp_path)) as broker:
        with RawClient(address_of(broker, "clients")) as client:
            answer = log_in(client, "__martlet_broker", broker.run(secret()))
        assert answer.error_code == ErrorCode.SASL_AUTHENTICATION_FAILED
