"""Addresses as people write them."""

import pytest

from martlet.base.addresses import Address, parse_address, parse_bootstrap


def test_host_and_port_are_read() -> None:
    assert parse_address("kafka.example:9093") == Address("kafka.example", 9093)


def test_a_missing_port_is_kafkas() -> None:
    assert parse_address("kafka.example") == Address("kafka.example", 9092)


def test_ipv6_stands_in_brackets_both_ways() -> None:
    assert parse_address("[::1]:0") == Address("::1", 0)
    assert str(Address("::1", 9092)) == "[::1]:9092"
    assert parse_address("[::1]") == Address("::1", 9092)


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("::1", "'::1' is not HOST:PORT; write an IPv6 address in brackets, like [::1]:9092"),
        (":9092", "':9092' has no host; write HOST:PORT, like 127.0.0.1:9092"),
        ("host:http", "'host:http' has no valid port; a port is a number from 0 to 65535"),
        ("host:70000", "'host:70000' has no valid port; a port is a number from 0 to 65535"),
        ("[::1", "'[::1' is not HOST:PORT"),
        ("host:²", "'host:²' has no valid port; a port is a number from 0 to 65535"),
    ],
)
def test_what_is_no_address_is_refused_with_a_sentence(text: str, sentence: str) -> None:
    with pytest.raises(ValueError, match=r"HOST:PORT|port") as caught:
        parse_address(text)
    assert str(caught.value) == sentence


def test_a_bootstrap_list_keeps_order_and_drops_repeats() -> None:
    assert parse_bootstrap("b:1, a:2,b:1,") == (Address("b", 1), Address("a", 2))


def test_an_empty_bootstrap_list_is_refused() -> None:
    with pytest.raises(ValueError, match="no broker address given"):
        parse_bootstrap(" , ")
