"""Connections and servers of a simulated event loop: asyncio's calls, carried out by the simulated network.

Proved by: tests/unit/sim/test_network.py, tests/unit/sim/test_streams.py
"""

import asyncio
from collections.abc import Callable
from typing import Any, cast

from sim.guard import SimEscape
from sim.loop_settings import LoopSettings
from sim.ports import LoopNetwork
from sim.scheduler import SimScheduler


class NetworkedLoop(LoopSettings):
    """Base of the simulated loop, above its settings."""

    def __init__(self, scheduler: SimScheduler, name: str, network: LoopNetwork | None) -> None:
        super().__init__(scheduler, name)
        self._network = network

    async def create_connection(  # type: ignore[override]
        self,
        protocol_factory: Callable[[], asyncio.BaseProtocol],
        host: str | None = None,
        port: int | None = None,
        *,
        ssl: object = None,
        sock: object = None,
        **options: object,
    ) -> tuple[asyncio.Transport, asyncio.BaseProtocol]:
        if ssl or sock is not None or host is None or port is None:
            raise SimEscape("the simulated network connects by host and port, without TLS")
        pair = await self._have_network().connect(self, protocol_factory, host, port)
        return cast(tuple[asyncio.Transport, asyncio.BaseProtocol], pair)

    async def create_server(  # type: ignore[override]
        self,
        protocol_factory: Callable[[], asyncio.BaseProtocol],
        host: object = None,
        port: int | None = None,
        *,
        ssl: object = None,
        sock: object = None,
        start_serving: bool = True,
        **options: object,
    ) -> asyncio.AbstractServer:
        if ssl:
            raise SimEscape("the simulated network has no TLS")
        where = sock if sock is not None else (host, port or 0)
        return self._have_network().listen(self, protocol_factory, where, start=start_serving)

    async def getaddrinfo(self, host: Any, port: Any, **options: Any) -> Any:
        """Names of simulated hosts are their addresses."""
        return [(2, 1, 6, "", (host, int(port or 0)))]

    def _have_network(self) -> LoopNetwork:
        if self._network is None:
            raise SimEscape(f"{self.name} has no simulated network")
        return self._network
