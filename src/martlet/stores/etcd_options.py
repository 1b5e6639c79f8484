"""Where an etcd cluster is and how to speak to it: the address, the time limits, TLS, user and password.

Nothing here opens a connection. A mistake in the settings is a `StoreRefused` that says what to write instead, raised
before anything is tried.

    etcd://host:port[,host:port…][/prefix]

Proved by: tests/unit/stores/test_etcd_options.py
"""

import ssl
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from martlet.cluster.store import StoreRefused

SCHEME: Final = "etcd://"
DEFAULT_PORT: Final = 2379
DEFAULT_PREFIX: Final = "/martlet"

_FORM: Final = "an etcd address looks like etcd://host:2379,host:2379/prefix"
_PORT_MAX: Final = 65_535


class EtcdEndpoint(NamedTuple):
    """The client address of one member."""

    host: str
    port: int

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


class EtcdAddress(NamedTuple):
    """Members of one cluster, and what all of our keys begin with: `/martlet/`, for example."""

    endpoints: tuple[EtcdEndpoint, ...]
    root: str


@dataclass(frozen=True, slots=True)
class EtcdTls:
    """TLS with the server's certificate checked; the client's own is shown if it is given."""

    ca_file: str | None = None
    """Authorities to trust instead of the system's."""
    certificate_file: str | None = None
    key_file: str | None = None


@dataclass(frozen=True, slots=True)
class EtcdLimits:
    """How long to wait for what, in seconds."""

    connect_seconds: float = 2.0
    """For a connection with its handshake, and for the first check of a member."""
    request_seconds: float = 5.0
    """For an answer; a commit that has none by then has an unknown outcome."""
    lease_seconds: float = 1.5
    """For an answer about a lease; short, so that the next member can still be asked before the lease runs out."""
    progress_seconds: float = 0.05
    """A watch that has not reached a revision that a caller knows is helped along after this time."""
    probe_seconds: float = 3.0
    """How often a silent watch is checked, and how long it may take to prove that it lives."""


@dataclass(frozen=True, slots=True)
class EtcdOptions:
    """All there is to know to open an `EtcdStore`."""

    address: EtcdAddress
    tls: EtcdTls | None = None
    user: str | None = None
    password: str = field(default="", repr=False)
    limits: EtcdLimits = EtcdLimits()

    def __post_init__(self) -> None:
        if self.user is None and self.password:
            raise StoreRefused("a password for etcd was given without a user")


def parse_etcd_address(text: str) -> EtcdAddress:
    """Read an `etcd://` address."""
    if not text.startswith(SCHEME):
        raise StoreRefused(f"{text!r} is no etcd address; {_FORM}")
    hosts, slash, path = text.removeprefix(SCHEME).partition("/")
    if "@" in hosts:
        raise StoreRefused("user and password do not belong in the etcd address, where others can see them")
    endpoints = tuple(_parse_endpoint(part, text) for part in hosts.split(","))
    if len(set(endpoints)) < len(endpoints):
        raise StoreRefused(f"{text!r} names an endpoint twice")
    prefix = (slash + path).rstrip("/") or DEFAULT_PREFIX
    if not (prefix.isascii() and prefix.isprintable()) or any(sign in prefix for sign in " ?#%"):
        raise StoreRefused(f"{text!r}: the prefix may hold visible ASCII characters, but none of ?, # and %")
    return EtcdAddress(endpoints, prefix + "/")


def _parse_endpoint(part: str, text: str) -> EtcdEndpoint:
    host, port = part, str(DEFAULT_PORT)
    if part.startswith("["):  # an IPv6 address
        host, bracket, rest = part[1:].partition("]")
        if not bracket or (rest and not rest.startswith(":")):
            raise StoreRefused(f"{text!r}: {part!r} lacks its bracket; {_FORM}")
        port = rest[1:] or port
    elif ":" in part:
        host, _, port = part.rpartition(":")
    if not host or (":" in host and not part.startswith("[")) or not host.isascii() or not host.isprintable():
        raise StoreRefused(f"{text!r}: {part!r} names no host; {_FORM}")
    if not (port.isascii() and port.isdigit()) or not 0 < int(port) <= _PORT_MAX:
        raise StoreRefused(f"{text!r}: {port!r} is no port; {_FORM}")
    return EtcdEndpoint(host, int(port))


def tls_context(tls: EtcdTls | None) -> ssl.SSLContext | None:
    """The context for all connections; files that cannot be used are named."""
    if tls is None:
        return None
    if tls.key_file is not None and tls.certificate_file is None:
        raise StoreRefused("a private key for etcd was given without its certificate")
    try:
        context = ssl.create_default_context(cafile=tls.ca_file)
    except OSError as error:
        raise StoreRefused(f"the authorities in {tls.ca_file} cannot be read: {error}") from error
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    if tls.certificate_file is not None:
        try:
            context.load_cert_chain(tls.certificate_file, tls.key_file)
        except OSError as error:
            named = tls.certificate_file if tls.key_file is None else f"{tls.certificate_file} with {tls.key_file}"
            raise StoreRefused(f"the client certificate {named} cannot be used: {error}") from error
    return context
