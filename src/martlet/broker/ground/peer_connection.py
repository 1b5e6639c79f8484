"""How a broker reaches another one: the same connection that clients use, with a broker's name and patience.

Everything below it goes through the running event loop, so that it works over a simulated network as it is. The
caller decides about trying again; nothing here does.
"""

from collections.abc import Awaitable, Callable
from dataclasses import replace
from typing import Final, TypeAlias

from martlet.base.addresses import Address
from martlet.client.connection import Connection
from martlet.client.options import ClientOptions
from martlet.client.security import ClientSecurity

Connect: TypeAlias = Callable[[Address], Awaitable[Connection]]
"""Gives a connection that is ready for requests, or raises ConnectionFailed or ApiError."""

_OPTIONS: Final = ClientOptions(client_id="martlet-replica", connect_timeout_ms=3_000, request_timeout_ms=10_000)


async def connect_to_broker(address: Address) -> Connection:
    """A connection to the broker that listens there, without protection."""
    return await _connect(address, _OPTIONS)


def connect_with(security: Callable[[], ClientSecurity]) -> Connect:
    """The same for brokers that prove to each other who they are; `security` is asked for each connection."""
    return lambda address: _connect(address, replace(_OPTIONS, security=security()))


async def _connect(address: Address, options: ClientOptions) -> Connection:
    connection = Connection(address, options)
    await connection.start()
    return connection
