"""What a simulated event loop is given by the machine it runs on: its network and its idea of time."""

import asyncio
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from sim.loop_settings import LoopSettings


class LoopNetwork(Protocol):
    """The network as one process sees it."""

    async def connect(
        self, loop: "LoopSettings", factory: Callable[[], asyncio.BaseProtocol], host: str, port: int
    ) -> Any:
        """Return (transport, protocol) once connected, or raise what a socket would."""
        ...

    def listen(
        self, loop: "LoopSettings", factory: Callable[[], asyncio.BaseProtocol], where: object, *, start: bool
    ) -> asyncio.AbstractServer:
        """Listen at (host, port) or on something bound before."""
        ...


class LocalTime(Protocol):
    """How a machine's own clock runs against the world's."""

    def local_ns(self, world_ns: int) -> int: ...

    def world_ns(self, local_ns: int) -> int:
        """The first moment of the world at which the local clock shows at least that much."""
        ...


class TrueTime:
    """A clock without drift."""

    def local_ns(self, world_ns: int) -> int:
        return world_ns

    def world_ns(self, local_ns: int) -> int:
        return local_ns
