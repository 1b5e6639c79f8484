"""Addresses as people write them: `HOST:PORT`, `[IPv6]:PORT`, `HOST` for port 9092, several by commas."""

from typing import Final, NamedTuple

DEFAULT_PORT: Final = 9092


class Address(NamedTuple):
    """Where something listens or connects from."""

    host: str
    port: int

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


def parse_address(text: str, *, default_port: int = DEFAULT_PORT) -> Address:
    """One address; raises ValueError with a sentence for the user."""
    text = text.strip()
    if text.startswith("["):
        host, bracket, rest = text[1:].partition("]")
        if not bracket or (rest and not rest.startswith(":")):
            raise ValueError(f"{text!r} is not HOST:PORT")
        port_text = rest[1:]
    elif text.count(":") > 1:
        raise ValueError(f"{text!r} is not HOST:PORT; write an IPv6 address in brackets, like [::1]:{default_port}")
    else:
        host, _, port_text = text.partition(":")
    if not host:
        raise ValueError(f"{text!r} has no host; write HOST:PORT, like 127.0.0.1:{default_port}")
    if not port_text:
        return Address(host, default_port)
    if not port_text.isascii() or not port_text.isdigit() or int(port_text) > 65535:
        raise ValueError(f"{text!r} has no valid port; a port is a number from 0 to 65535")
    return Address(host, int(port_text))


def parse_bootstrap(text: str) -> tuple[Address, ...]:
    """One or more addresses separated by commas, without repeats, in the order given."""
    addresses = [parse_address(part) for part in text.split(",") if part.strip()]
    if not addresses:
        raise ValueError("no broker address given; write HOST:PORT, like 127.0.0.1:9092")
    return tuple(dict.fromkeys(addresses))
