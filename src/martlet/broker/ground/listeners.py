"""A listener of this broker: an address that serves the Kafka protocol, with a name and rules of its own."""

from dataclasses import dataclass
from typing import Final

from martlet.base.addresses import Address

DEFAULT_LISTENER: Final = "kafka"


@dataclass(frozen=True, slots=True)
class ListenerOptions:
    """One listener."""

    name: str
    address: Address
    advertised: Address | None = None
    """What clients and brokers are given; None: the address by which a client came."""
    authenticates: bool = False
    """Whether a client must prove who it is before it is served."""
