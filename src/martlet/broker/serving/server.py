"""Accepts connections on all listeners of a broker and bounds how many there are, in all and per address.

A sweep closes connections that idle, drip bytes or never read. Running out of file descriptors is handled by the
event loop itself: accepting pauses and goes on when there are some again.
"""

import asyncio
import contextlib
import itertools
import socket
import ssl
from collections import Counter
from collections.abc import Callable, Collection, Iterable
from functools import partial
from typing import Final, NamedTuple, cast

from martlet.base.addresses import Address
from martlet.base.clock import Clock
from martlet.base.invariant import invariant
from martlet.broker.ground.listeners import ListenerOptions
from martlet.broker.ground.settings import BrokerSettings
from martlet.broker.serving.connection import KafkaConnection
from martlet.broker.serving.dispatch import Dispatcher
from martlet.broker.serving.memory_budget import MemoryBudget
from martlet.broker.serving.outbox import Outbox
from martlet.broker.serving.tls_acceptor import TlsAcceptor
from martlet.configs.effective import EffectiveConfig
from martlet.observe.metrics import DropReason, RejectReason

_SWEEP_SECONDS: Final = 1.0
_REPORT_TURNS: Final = 10
_BACKLOG: Final = 1024


def bind(address: Address) -> socket.socket:
    """Take the address without serving it yet, so that the port is known before the broker is ready.

    Raises OSError with a sentence when the address cannot be had.
    """
    family = socket.AF_INET6 if ":" in address.host else socket.AF_INET
    listening = socket.socket(family, socket.SOCK_STREAM)
    try:
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listening.bind((address.host, address.port))
        listening.setblocking(False)
    except OSError as error:
        listening.close()
        raise OSError(error.errno, f"cannot listen on {address}: {error.strerror or error}") from error
    return listening


class BoundListener(NamedTuple):
    """A listener with a socket at its address."""

    options: ListenerOptions
    socket: socket.socket


def bind_all(listeners: Iterable[ListenerOptions], bind: Callable[[Address], socket.socket]) -> list[BoundListener]:
    """A socket for each listener, or none at all: raises the OSError of the first address that cannot be had."""
    with contextlib.ExitStack() as undo:
        bound = []
        for options in listeners:
            listening = bind(options.address)
            undo.callback(listening.close)
            bound.append(BoundListener(options, listening))
        undo.pop_all()
        return bound


class KafkaServer:
    """Owner of the connections of one broker; listens between `listen` and `shut`."""

    def __init__(
        self,
        settings: BrokerSettings,
        dispatcher: Dispatcher,
        clock: Clock,
        config: Callable[[], EffectiveConfig],
        connections_possible: int,
        tls: Callable[[], ssl.SSLContext] | None = None,
    ) -> None:
        """`tls` gives the context for the next connection of a listener that needs one."""
        self._settings = settings
        self._config = config
        self._connections_possible = connections_possible
        self._tls = tls
        self._dispatcher = dispatcher
        self._metrics = dispatcher.metrics
        self._clock = clock
        self._budget = MemoryBudget(settings.in_flight_bytes_max)
        self._outbox = Outbox(lambda end_turn: asyncio.get_running_loop().call_soon(end_turn))
        self._connections: dict[KafkaConnection, str] = {}
        self._per_host: Counter[str] = Counter()
        self._servers: list[asyncio.Server | TlsAcceptor] = []
        self._is_shut = True
        self._sweeper: asyncio.Task[None] | None = None
        self._none_left = asyncio.Event()
        self._none_left.set()

    async def listen(self, bound: Iterable[BoundListener]) -> None:
        """Accept connections on sockets from `bind_all`, which are the server's from now on."""
        self._is_shut = False
        sockets = list(bound)
        loop = asyncio.get_running_loop()
        try:
            for options, listening in sockets:
                make = partial(self._make_connection, options)
                if options.protocol.encrypts:
                    self._servers.append(self._accept_tls(listening, make))
                else:
                    self._servers.append(await loop.create_server(make, sock=listening, backlog=_BACKLOG))
        except OSError:
            self._is_shut = True
            self._close_servers()
            for _, listening in sockets:
                listening.close()
            raise
        if self._sweeper is None:
            self._sweeper = asyncio.create_task(self._sweep(), name="martlet-connection-sweep")

    def shut(self) -> int:
        """Stop listening and end all connections; answers that are ready still go out. `listen` may follow."""
        self._is_shut = True
        self._close_servers()
        connections = tuple(self._connections)
        for connection in connections:
            connection.dismiss(DropReason.LOST_CLUSTER)
        return len(connections)

    @property
    def in_flight_bytes(self) -> int:
        """Bytes of half-received large requests."""
        return self._budget.used_bytes

    def end_sessions(self, users: Collection[str]) -> None:
        """End the connections of these users, who are not what they were."""
        for connection in tuple(self._connections):
            connection.end_session_of(users)

    async def aclose(self, timeout_ms: int) -> None:
        """Take no more connections, answer what was asked, close; cut off what is left after the time given."""
        self._close_servers()
        if self._sweeper is not None:
            self._sweeper.cancel()
        for connection in tuple(self._connections):
            connection.drain()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(timeout_ms / 1000):
                await self._none_left.wait()
        for connection in tuple(self._connections):
            connection.abort()

    # --- what connections report

    def opened(self, connection: KafkaConnection, peer: Address) -> str | None:
        """Count a new connection; a sentence when it is one too many."""
        if self._is_shut:
            # It was accepted just before.
            self._metrics.connections_rejected[RejectReason.LOST_CLUSTER] += 1
            return "this broker has lost its cluster"
        config = self._config()
        connections_max = min(config.number("max.connections"), self._connections_possible)
        if len(self._connections) >= connections_max:
            self._metrics.connections_rejected[RejectReason.CONNECTIONS_MAX] += 1
            return f"there are {connections_max} connections already (connections_max)"
        per_address_max = config.number("max.connections.per.ip")
        if self._per_host[peer.host] >= per_address_max:
            self._metrics.connections_rejected[RejectReason.ADDRESS_MAX] += 1
            return f"{peer.host} has {per_address_max} connections already (connections_per_address_max)"
        self._connections[connection] = peer.host
        self._per_host[peer.host] += 1
        self._none_left.clear()
        self._metrics.connections_accepted += 1
        self._metrics.connections_open = len(self._connections)
        return None

    def closed(self, connection: KafkaConnection) -> None:
        """The connection is gone."""
        host = self._connections.pop(connection, None)
        if host is None:
            return
        self._per_host[host] -= 1
        if not self._per_host[host]:
            del self._per_host[host]
        self._metrics.connections_open = len(self._connections)
        if not self._connections:
            self._none_left.set()

    def _accept_tls(self, listening: socket.socket, make: Callable[[], KafkaConnection]) -> TlsAcceptor:
        invariant(self._tls is not None, "a listener with TLS has a context")
        context = cast(Callable[[], ssl.SSLContext], self._tls)
        acceptor = TlsAcceptor(listening, make, context, self._clock, self._came_too_often)
        acceptor.start(_BACKLOG)
        return acceptor

    def _came_too_often(self) -> None:
        self._metrics.connections_rejected[RejectReason.ADDRESS_RATE] += 1

    def _close_servers(self) -> None:
        servers, self._servers = self._servers, []
        for server in servers:
            server.close()

    def _make_connection(self, options: ListenerOptions) -> KafkaConnection:
        return KafkaConnection(self._settings, self._dispatcher, self._budget, self._clock, self, self._outbox, options)

    async def _sweep(self) -> None:
        for turn in itertools.count(1):
            await asyncio.sleep(_SWEEP_SECONDS)
            if turn % _REPORT_TURNS == 0:
                self._dispatcher.flush_reports()
            now_ms = self._clock.monotonic_ms()
            for connection in tuple(self._connections):
                connection.check_deadlines(now_ms)
