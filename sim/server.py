"""A listening port of the simulated network and the asyncio server on it."""

import asyncio
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from sim.transport import SimSocket, SimTransport, SocketName

if TYPE_CHECKING:
    from sim.loop_settings import LoopSettings


class SimServerSocket:
    """A bound port; connections are refused until a server listens on it."""

    def __init__(self, host: str, port: int, release: Callable[[], object]) -> None:
        self._name = (host, port)
        self._release = release
        self._server: SimServer | None = None

    @property
    def accepts(self) -> bool:
        return self._server is not None

    def serve(self, server: "SimServer | None") -> None:
        self._server = server

    def accept(self, end: SimSocket) -> None:
        """A connection has come about; the process learns of it in its next turn."""
        if self._server is not None:
            self._server.accept(end)

    def getsockname(self) -> SocketName:
        return self._name

    def close(self) -> None:
        self._server = None
        self._release()


class SimServer(asyncio.AbstractServer):
    """What `loop.create_server` returns; `wait_closed` waits for the connections too, as Python 3.12 and uvloop do."""

    def __init__(
        self, loop: "LoopSettings", factory: Callable[[], asyncio.BaseProtocol], sockets: Sequence[SimServerSocket]
    ) -> None:
        self._loop = loop
        self._factory = factory
        self._sockets = list(sockets)
        self._open = 0
        self._all_closed = asyncio.Event()
        self._serving = False

    @property
    def sockets(self) -> tuple[SimServerSocket, ...]:
        return tuple(self._sockets)

    def begin(self) -> None:
        self._serving = True
        for bound in self._sockets:
            bound.serve(self)

    def accept(self, end: SimSocket) -> None:
        self._open += 1
        self._loop.call_soon(self._begin_connection, end)

    def _begin_connection(self, end: SimSocket) -> None:
        transport = _ServedTransport(self._loop, end, self._factory(), self._ended)
        transport.begin()

    def _ended(self) -> None:
        self._open -= 1
        self._check_all_closed()

    def _check_all_closed(self) -> None:
        if not self._open and not self._sockets:
            self._all_closed.set()

    def close(self) -> None:
        sockets, self._sockets = self._sockets, []
        for bound in sockets:
            bound.close()
        self._serving = False
        self._check_all_closed()

    async def wait_closed(self) -> None:
        await self._all_closed.wait()

    def is_serving(self) -> bool:
        return self._serving

    async def start_serving(self) -> None:
        self.begin()
        await asyncio.sleep(0)

    async def serve_forever(self) -> None:
        self.begin()
        try:
            await self._loop.create_future()
        finally:
            self.close()

    def get_loop(self) -> asyncio.AbstractEventLoop:
        return self._loop


class _ServedTransport(SimTransport):
    """A transport that tells its server when it is gone."""

    def __init__(
        self, loop: "LoopSettings", socket: SimSocket, protocol: asyncio.BaseProtocol, on_end: Callable[[], None]
    ) -> None:
        super().__init__(loop, socket, protocol)
        self._on_end = on_end

    def _say_lost(self, error: BaseException | None) -> None:
        try:
            super()._say_lost(error)
        finally:
            self._on_end()
