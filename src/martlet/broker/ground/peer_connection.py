"""How a broker reaches another one: the same connection that clients use, with a broker's name and patience.

Everything below it goes through the running event loop, so that it works over a simulated network as it is. The
caller decides about trying again; nothing here does.
"""

from collections.abc import Awaitable, Callable
from dataclasses import replace
from typing import Final, TypeAlias

from martlet.client.connection import Connection
from martlet.client.options import ClientOptions
from martlet.client.security import ClientSecurity
from martlet.cluster.records import Endpoint

Connect: TypeAlias = Callable[[Endpoint], Awaitable[Connection]]
"""Gives a connection that is ready for requests, or raises ConnectionFailed or ApiError."""

_OPTIONS: Final = ClientOptions(client_id="martlet-replica", connect_timeout_ms=3_000, request_timeout_ms=10_000)


async def connect_to_broker(endpoint: Endpoint) -> Connection:
    """A connection to the broker that listens there, without protection."""
    return await _connect(endpoint, _OPTIONS)


def connect_with(security: Callable[[str], ClientSecurity]) -> Connect:
    """The same, protected as `security` says for the protocol that the broker's listener has."""
    return lambda endpoint: _connect(endpoint, replace(_OPTIONS, security=security(endpoint.protocol)))


async def _connect(endpoint: Endpoint, options: ClientOptions) -> Connection:
    connection = Connection(endpoint.address, options)
    await connection.start()
    return connection
