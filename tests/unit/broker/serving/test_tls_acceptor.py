"""How often an address may come before its TLS handshake."""

import pytest
from sim.clock import SimClock

from martlet.broker.serving.tls_acceptor import ConnectionRates


def taken(rates: ConnectionRates, host: str, times: int) -> int:
    return sum(rates.takes(host) for _ in range(times))


def test_an_address_that_comes_too_often_is_turned_away_and_others_are_not() -> None:
    rates = ConnectionRates(SimClock())
    assert taken(rates, "10.0.0.9", 500) == 100
    assert taken(rates, "10.0.0.8", 50) == 50


@pytest.mark.parametrize("host", ["127.0.0.1", "::1", "::ffff:127.0.0.1"])
def test_this_machine_comes_as_often_as_it_likes(host: str) -> None:
    assert taken(ConnectionRates(SimClock()), host, 500) == 500


def test_addresses_of_one_ipv6_network_count_together() -> None:
    rates = ConnectionRates(SimClock())
    assert taken(rates, "2001:db8::1", 80) == 80
    assert taken(rates, "2001:db8::2", 80) == 20
    assert taken(rates, "2001:db8:0:1::2", 80) == 80


def test_a_later_second_takes_twenty_more() -> None:
    clock = SimClock()
    rates = ConnectionRates(clock)
    taken(rates, "10.0.0.9", 500)
    clock.advance(1_000)
    assert taken(rates, "10.0.0.9", 500) == 20
