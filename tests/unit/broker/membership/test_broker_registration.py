"""Under which addresses a broker registers, and what follows from its listeners in a cluster."""

import pytest
from sim.world import SimWorld

from martlet.broker.ground.listeners import Listeners, configured_listeners
from martlet.broker.ground.settings import BrokerSettings
from martlet.broker.membership.broker_registration import registered_endpoints
from martlet.cluster.records import Endpoint
from tests.unit.broker.simulated_members import SimMember, in_sync_of

LISTENERS = "clients=plain://0.0.0.0:9092,brokers=plain://0.0.0.0:9094"


def listeners(**settings: str) -> Listeners:
    return configured_listeners(BrokerSettings(**settings))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("host", "embedded", "expected"),
    [("0.0.0.0", True, "127.0.0.1"), ("[::]", False, "machine"), ("broker.example", False, "broker.example")],
)
def test_a_wildcard_is_no_address_to_find_a_broker_at(host: str, embedded: bool, expected: str) -> None:
    (endpoint,) = registered_endpoints(
        listeners(kafka=f"{host}:9092"), is_embedded=embedded, host_name=lambda: "machine"
    )
    assert endpoint == Endpoint("kafka", expected, 9092, "plain")


def test_every_listener_is_registered_with_its_advertised_address() -> None:
    several = listeners(listeners=LISTENERS, advertised="clients=one.example:19092")
    assert registered_endpoints(several, is_embedded=False, host_name=lambda: "machine") == (
        Endpoint("clients", "one.example", 19092, "plain"),
        Endpoint("brokers", "machine", 9094, "plain"),
    )


def test_brokers_copy_from_each_other_through_the_listener_that_is_for_brokers() -> None:
    with SimWorld(3) as world:
        one, two = (
            SimMember(
                world,
                number,
                listeners=f"clients=plain://broker{number}:9092,brokers=plain://broker{number}:9094",
                broker_listener="brokers",
                advertised="clients=unreachable:9092",
            )
            for number in (1, 2)
        )
        one.start()
        two.start()
        assert one.record.broker_endpoint == Endpoint("brokers", "broker1", 9094, "plain")
        one.create_topic("t", 1, 2)
        one.append("t")
        world.run_until(lambda: in_sync_of(two, "t") == {1, 2}, 20_000)
        world.run_until(lambda: one.services.partitions.get("t", 0).high_watermark == 1, 10_000)
