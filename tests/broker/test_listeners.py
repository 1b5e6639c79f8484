"""A broker with several named listeners: every client gets the addresses of the listener that it came through."""

from collections.abc import Callable

import pytest

from martlet.testing.running_broker import RunningBroker
from martlet.wire.messages.describe_cluster import DescribeClusterRequest
from martlet.wire.messages.describe_configs import DescribeConfigsRequest, DescribeConfigsResource
from martlet.wire.messages.find_coordinator import FindCoordinatorRequest
from martlet.wire.messages.metadata import MetadataRequest
from tests.broker.raw_client import RawClient

MakeBroker = Callable[..., RunningBroker]

_BROKER = 4


@pytest.fixture
def two(make_broker: MakeBroker) -> RunningBroker:
    return make_broker(
        listeners="clients=plain://127.0.0.1:0,brokers=plain://127.0.0.1:0",
        broker_listener="brokers",
        advertised="brokers=127.0.0.1:1999",
    )


def test_each_listener_answers_with_its_own_addresses(two: RunningBroker) -> None:
    clients, brokers = two.app.listeners.all
    assert str(clients.address) == two.bootstrap_servers
    assert clients.address.port != brokers.address.port
    for listener, expected in ((clients, clients.address.port), (brokers, 1999)):
        with RawClient(str(listener.address)) as client:
            assert [one.port for one in client.call(MetadataRequest(topics=[]), 9).brokers] == [expected]
            assert [one.port for one in client.call(DescribeClusterRequest(), 0).brokers] == [expected]
            (found,) = client.call(FindCoordinatorRequest(coordinator_keys=["g"]), 4).coordinators
            assert found.port == expected


def test_the_listeners_are_among_the_settings_that_kafkas_tools_show(two: RunningBroker) -> None:
    clients, brokers = two.app.listeners.all
    with RawClient(two.bootstrap_servers) as client:
        asked = DescribeConfigsResource(resource_type=_BROKER, resource_name="1")
        (result,) = client.call(DescribeConfigsRequest(resources=[asked]), 4).results
    configs = {one.name: one.value for one in result.configs}
    assert configs["listeners"] == f"clients://{clients.address},brokers://{brokers.address}"
    assert configs["advertised.listeners"] == f"clients://{clients.address},brokers://127.0.0.1:1999"
    assert configs["listener.security.protocol.map"] == "clients:PLAINTEXT,brokers:PLAINTEXT"


def test_a_restarted_broker_has_its_listeners_again(two: RunningBroker) -> None:
    before = [one.address for one in two.app.listeners.all]
    two.restart()
    assert [one.address for one in two.app.listeners.all] == before
