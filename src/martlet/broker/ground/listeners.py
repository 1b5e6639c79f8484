"""The listeners of a broker: named addresses that serve the Kafka protocol, each with a protocol of its own.

Written `NAME=PROTOCOL://HOST:PORT`, several by commas. Without that there is one, called `kafka`, at the address that
the setting `kafka` gives. One of them is for the brokers among themselves: the one that `broker_listener` names, else
the first.

Rules: what cannot be served is refused with a ValueError whose sentence is for the operator.
Proved by: tests/unit/broker/ground/test_listeners.py
"""

import ipaddress
import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from enum import Enum
from typing import Final

from martlet.base.addresses import Address, parse_address
from martlet.broker.ground.settings import BrokerSettings

DEFAULT_LISTENER: Final = "kafka"

_NAME: Final = re.compile(r"[A-Za-z][A-Za-z0-9_-]{0,63}")
_FORM: Final = "NAME=PROTOCOL://HOST:PORT, like clients=plain://0.0.0.0:9092"


class ListenerProtocol(Enum):
    """What protects the connections of a listener; the values are the words of the setting."""

    PLAIN = "plain"
    TLS = "tls"
    SASL_PLAIN = "sasl_plain"
    SASL_TLS = "sasl_tls"

    @property
    def authenticates(self) -> bool:
        """Whether a client must prove who it is before it is served."""
        return self in (ListenerProtocol.SASL_PLAIN, ListenerProtocol.SASL_TLS)

    @property
    def encrypts(self) -> bool:
        """Whether what is sent cannot be read on the way."""
        return self in (ListenerProtocol.TLS, ListenerProtocol.SASL_TLS)

    @property
    def kafka_name(self) -> str:
        """Kafka's name for it."""
        return _KAFKA_NAMES[self]


_KAFKA_NAMES: Final = {
    ListenerProtocol.PLAIN: "PLAINTEXT",
    ListenerProtocol.TLS: "SSL",
    ListenerProtocol.SASL_PLAIN: "SASL_PLAINTEXT",
    ListenerProtocol.SASL_TLS: "SASL_SSL",
}


@dataclass(frozen=True, slots=True)
class ListenerOptions:
    """One listener."""

    name: str
    address: Address
    advertised: Address | None = None
    """The address given to clients and to other brokers; None: the address by which a client came."""
    protocol: ListenerProtocol = ListenerProtocol.PLAIN


@dataclass(frozen=True, slots=True)
class Listeners:
    """All listeners of one broker, in the order of the setting."""

    all: tuple[ListenerOptions, ...]
    for_brokers: str
    """The name of the listener that other brokers connect to."""


def configured_listeners(settings: BrokerSettings) -> Listeners:
    """The listeners that the settings describe; raises ValueError with a sentence that begins with the setting."""
    if settings.listeners:
        found = tuple(_parse_listener(part) for part in _parts(settings.listeners))
        _check_distinct(found)
    else:
        found = (ListenerOptions(DEFAULT_LISTENER, parse_address(settings.kafka)),)
    found = _with_advertised(found, settings.advertised)
    names = [one.name for one in found]
    for_brokers = settings.broker_listener or names[0]
    if for_brokers not in names:
        raise ValueError(f"broker_listener: there is no listener {for_brokers!r}; there is {', '.join(names)}")
    return Listeners(found, for_brokers)


def exposed_listeners(settings: BrokerSettings) -> list[ListenerOptions]:
    """The listeners that would let anybody in from other machines without the operator having said so by name."""
    agreed = set(_parts(settings.insecure_listen))
    found = configured_listeners(settings).all
    unknown = agreed - {one.name for one in found}
    if unknown:
        names = ", ".join(one.name for one in found)
        raise ValueError(f"insecure_listen: there is no listener {min(unknown)!r}; there is {names}")
    asks_certificates = settings.tls_client_auth == "required"
    return [
        one
        for one in found
        if not one.protocol.authenticates
        and not (one.protocol is ListenerProtocol.TLS and asks_certificates)
        and not is_loopback(one.address.host)
        and one.name not in agreed
    ]


def is_loopback(host: str) -> bool:
    """Whether an address can be reached from this machine only."""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def _parts(text: str) -> list[str]:
    return [part.strip() for part in text.split(",") if part.strip()]


def _parse_listener(text: str) -> ListenerOptions:
    name, equals, rest = text.partition("=")
    word, separator, address = rest.partition("://")
    if not equals or not separator:
        raise ValueError(f"listeners: {text!r} is not {_FORM}")
    if not _NAME.fullmatch(name):
        raise ValueError(
            f"listeners: {name!r} cannot be a listener's name; allowed are letters, digits, '_' and '-' after a letter"
        )
    try:
        protocol = ListenerProtocol(word)
    except ValueError:
        allowed = ", ".join(one.value for one in ListenerProtocol)
        raise ValueError(f"listeners: there is no protocol {word!r}; allowed are {allowed}") from None
    try:
        return ListenerOptions(name, parse_address(address), protocol=protocol)
    except ValueError as error:
        raise ValueError(f"listeners: {error}") from None


def _check_distinct(listeners: tuple[ListenerOptions, ...]) -> None:
    names: set[str] = set()
    addresses: set[Address] = set()
    for one in listeners:
        if one.name.lower() in names:
            raise ValueError(f"listeners: {one.name!r} is there twice")
        if one.address.port and one.address in addresses:
            raise ValueError(f"listeners: {one.address} is there twice")
        names.add(one.name.lower())
        addresses.add(one.address)
    if not listeners:
        raise ValueError(f"listeners: there is none; write {_FORM}")


def _with_advertised(listeners: tuple[ListenerOptions, ...], text: str) -> tuple[ListenerOptions, ...]:
    advertised = _parse_advertised(text, listeners)
    return tuple(replace(one, advertised=advertised.get(one.name)) for one in listeners)


def _parse_advertised(text: str, listeners: tuple[ListenerOptions, ...]) -> Mapping[str, Address]:
    """Addresses by the listener's name; a lone HOST:PORT is that of a lone listener."""
    names = [one.name for one in listeners]
    found: dict[str, Address] = {}
    for part in _parts(text):
        name, equals, address = part.partition("=")
        if not equals:
            if len(names) > 1:
                raise ValueError(f"advertised: {part!r} does not say of which listener; write NAME={part}")
            name, address = names[0], part
        if name not in names:
            raise ValueError(f"advertised: there is no listener {name!r}; there is {', '.join(names)}")
        if name in found:
            raise ValueError(f"advertised: the listener {name!r} is there twice")
        try:
            found[name] = parse_address(address)
        except ValueError as error:
            raise ValueError(f"advertised: {error}") from None
    return found
