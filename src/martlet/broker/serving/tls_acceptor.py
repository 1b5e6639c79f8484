"""Accepts connections that TLS protects, each with the context that is in use when it comes.

A handshake costs as much processor time as a hundred small requests, so two things happen before it: an address that
comes too often is turned away, and when too many handshakes are under way the others wait in the backlog.

Invariant: SRV-8 nothing of a client is read as a request before its handshake is over, which has five seconds.

Proved by: tests/broker/test_tls.py, tests/unit/broker/serving/test_tls_acceptor.py
"""

import asyncio
import contextlib
import ipaddress
import logging
import socket
import ssl
from collections import OrderedDict
from collections.abc import Callable
from typing import Final

from martlet.base.clock import Clock
from martlet.observe.logs import LogThrottle
from martlet.security.rate import Rate

logger = logging.getLogger(__name__)

HANDSHAKE_SECONDS: Final = 5.0
_SHUTDOWN_SECONDS: Final = 2.0
_UNDER_WAY_MAX: Final = 256
_ACCEPTS_PER_TURN: Final = 32
_PAUSE_SECONDS: Final = 0.5
_PER_SECOND: Final = 20
_BURST: Final = 100
_ADDRESSES_MAX: Final = 10_000


class ConnectionRates:
    """How often addresses come; IPv6 by network, and this machine's own as often as it likes."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._rates: OrderedDict[str, Rate] = OrderedDict()

    def takes(self, host: str) -> bool:
        """Whether one more connection from there is taken."""
        key = _network(host)
        if key is None:
            return True
        rate = self._rates.pop(key, None) or Rate(_PER_SECOND, burst_ms=1_000 * _BURST / _PER_SECOND)
        self._rates[key] = rate
        if len(self._rates) > _ADDRESSES_MAX:
            self._rates.popitem(last=False)
        return rate.try_take(1, self._clock.monotonic_ms())


def _network(host: str) -> str | None:
    try:
        address = ipaddress.ip_address(host.partition("%")[0])
    except ValueError:
        return host
    mapped = getattr(address, "ipv4_mapped", None)
    address = mapped or address
    if address.is_loopback:
        return None
    return str(address) if address.version == 4 else str(ipaddress.ip_network((address, 64), strict=False))


class TlsAcceptor:
    """Of one listener, between `start` and `close`; lives on the event loop."""

    def __init__(
        self,
        listening: socket.socket,
        make_connection: Callable[[], asyncio.BufferedProtocol],
        context: Callable[[], ssl.SSLContext],
        clock: Clock,
        on_refused: Callable[[], None],
    ) -> None:
        """`on_refused` counts a connection that was turned away before its handshake."""
        self._listening = listening
        self._make_connection = make_connection
        self._context = context
        self._rates = ConnectionRates(clock)
        self._on_refused = on_refused
        self._failures = LogThrottle(logger, clock)
        self._handshakes: set[asyncio.Task[None]] = set()
        self._is_reading = False
        self._is_closed = False

    def start(self, backlog: int) -> None:
        """Listen."""
        self._listening.listen(backlog)
        self._read()

    def close(self) -> None:
        """Take no more connections; handshakes that are under way end."""
        self._is_closed = True
        self._pause()
        self._listening.close()
        for handshake in self._handshakes:
            handshake.cancel()

    def _read(self) -> None:
        if not self._is_reading and not self._is_closed:
            self._is_reading = True
            asyncio.get_running_loop().add_reader(self._listening.fileno(), self._accept)

    def _pause(self) -> None:
        if self._is_reading:
            self._is_reading = False
            asyncio.get_running_loop().remove_reader(self._listening.fileno())

    def _accept(self) -> None:
        for _ in range(_ACCEPTS_PER_TURN):
            if len(self._handshakes) >= _UNDER_WAY_MAX:
                self._pause()
                return
            try:
                accepted, address = self._listening.accept()
            except (BlockingIOError, InterruptedError, ConnectionAbortedError):
                return
            except OSError as error:
                # No file descriptors are left: others must end before more can come.
                logger.error("cannot accept connections just now: %s", error.strerror)
                self._pause()
                asyncio.get_running_loop().call_later(_PAUSE_SECONDS, self._read)
                return
            host = str(address[0])
            if not self._rates.takes(host):
                accepted.close()
                self._on_refused()
                self._failures.warning(host, f"turned away connections from {host}: they come too often")
                continue
            accepted.setblocking(False)
            handshake = asyncio.get_running_loop().create_task(self._shake_hands(accepted, host))
            self._handshakes.add(handshake)
            handshake.add_done_callback(self._ended)

    async def _shake_hands(self, accepted: socket.socket, host: str) -> None:
        loop = asyncio.get_running_loop()
        try:
            await loop.connect_accepted_socket(
                self._make_connection,
                accepted,
                ssl=self._context(),
                ssl_handshake_timeout=HANDSHAKE_SECONDS,
                ssl_shutdown_timeout=_SHUTDOWN_SECONDS,
            )
        except (OSError, ssl.SSLError, TimeoutError) as error:
            reason = getattr(error, "reason", None) or type(error).__name__
            self._failures.warning(host, f"no TLS with {host}: {reason}")
            with contextlib.suppress(OSError):
                accepted.close()

    def _ended(self, handshake: asyncio.Task[None]) -> None:
        self._handshakes.discard(handshake)
        self._read()
        if not handshake.cancelled():
            handshake.result()
