"""The fixtures that come with Martlet, used as another project would use them: by name, with no import."""

import socket

from confluent_kafka import Consumer, Producer

from martlet.testing.running_broker import RunningBroker


def test_a_test_gets_a_real_broker_of_its_own_by_the_name_of_a_fixture(martlet_broker: RunningBroker) -> None:
    servers = {"bootstrap.servers": martlet_broker.bootstrap_servers}
    producer = Producer(servers)
    producer.produce("orders", b"first")
    assert producer.flush(10) == 0
    consumer = Consumer({**servers, "group.id": "g", "auto.offset.reset": "earliest"})
    try:
        consumer.subscribe(["orders"])
        message = consumer.poll(10)
    finally:
        consumer.close()
    assert message is not None
    assert (message.value(), message.offset()) == (b"first", 0)


def test_the_broker_of_a_session_is_another_one_than_that_of_a_test(
    martlet_broker: RunningBroker, martlet_broker_session: RunningBroker
) -> None:
    assert martlet_broker.bootstrap_servers != martlet_broker_session.bootstrap_servers
    for broker in (martlet_broker, martlet_broker_session):
        host, _, port = broker.bootstrap_servers.rpartition(":")
        socket.create_connection((host, int(port)), timeout=5).close()
