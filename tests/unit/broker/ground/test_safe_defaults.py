"""Without configuration a broker serves this machine only."""

import dataclasses
import ipaddress

from martlet.base.addresses import parse_address
from martlet.broker.ground.listeners import configured_listeners
from martlet.broker.ground.settings import BrokerSettings


def test_every_address_that_is_served_by_default_is_of_the_loopback_interface() -> None:
    addresses = [field for field in dataclasses.fields(BrokerSettings) if field.metadata["bounds"].is_address]
    assert {field.name for field in addresses} >= {"kafka", "operations"}
    for field in addresses:
        assert not field.default or ipaddress.ip_address(parse_address(str(field.default)).host).is_loopback, field.name


def test_the_listeners_of_a_broker_without_settings_are_of_the_loopback_interface() -> None:
    listeners = configured_listeners(BrokerSettings()).all
    assert [ipaddress.ip_address(one.address.host).is_loopback for one in listeners] == [True] * len(listeners)
    assert listeners
