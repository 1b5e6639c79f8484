"""The simulated network: machines by name, listening ports, connections, and every way in which they fail.

How it works: a machine's name is its address. Each pair of machines has two links, one per direction, with a delay
drawn per packet from a stream of their own. Connecting takes a round trip and needs both directions; without
one of them, or without power at the other side, it hangs until the caller's patience or the kernel's ends.

Faults: `cut` and `cut_one_way` (and `heal`, `heal_all`), `isolate`, `reset` (every connection between two machines
breaks), `refuse` (a port answers as if nothing listened), `slow_drip`, `link(...).quality` for anything else. What
happens to connections when a process or a machine dies is `process_died` and `power_lost`; a connection whose other
side lost power is half-open until one side sends.
"""

import asyncio
import errno
import socket
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from sim.link import GIVE_UP_NS, LOOPBACK, Link, LinkQuality, Pipe
from sim.randomness import SimRandomness
from sim.scheduler import NS_PER_MS, SimScheduler
from sim.server import SimServer, SimServerSocket
from sim.transport import SimSocket, SimTransport, SocketName

if TYPE_CHECKING:
    from sim.loop_settings import LoopSettings

_Factory = Callable[[], asyncio.BaseProtocol]

_LOCAL: Final = ("127.0.0.1", "localhost", "::1", "")
_ANY: Final = ("0.0.0.0", "::", "", None)  # noqa: S104 - compared, not bound
_FIRST_EPHEMERAL_PORT: Final = 40_000
_FIRST_FREE_PORT: Final = 20_000
_SYN_RETRY_NS: Final = 1_000 * NS_PER_MS


@dataclass(slots=True)
class _Machine:
    """A machine as the network knows it."""

    name: str
    is_up: bool = True
    listening: dict[int, SimServerSocket] = field(default_factory=dict)
    sockets: list[SimSocket] = field(default_factory=list)
    next_port: int = _FIRST_EPHEMERAL_PORT
    next_free_port: int = _FIRST_FREE_PORT


class SimNetwork:
    """All machines and what connects them."""

    def __init__(
        self,
        scheduler: SimScheduler,
        randomness: SimRandomness,
        *,
        quality: LinkQuality | None = None,
        window_bytes: int = 262_144,
    ) -> None:
        self._scheduler = scheduler
        self._randomness = randomness
        self._quality = quality if quality is not None else LinkQuality()
        self._window_bytes = window_bytes
        self._machines: dict[str, _Machine] = {}
        self._links: dict[tuple[str, str], Link] = {}
        self._refused: set[SocketName] = set()
        self._connection_count = 0

    def add_machine(self, name: str) -> "MachineNetwork":
        """A machine that others reach by this name."""
        self._machines.setdefault(name, _Machine(name))
        return MachineNetwork(self, name)

    def link(self, source: str, target: str) -> Link:
        """The one direction from source to target."""
        link = self._links.get((source, target))
        if link is None:
            quality = LOOPBACK if source == target else self._quality
            copy = LinkQuality(**{name: getattr(quality, name) for name in LinkQuality.__slots__})
            stream = self._randomness.stream(f"{source}>{target}")
            link = self._links[source, target] = Link(self._scheduler, stream, copy)
        return link

    # --- faults

    def cut_one_way(self, source: str, target: str) -> None:
        """Nothing sent by source reaches target any more."""
        self._scheduler.note("network", f"cut {source}>{target}")
        self.link(source, target).cut()

    def cut(self, one: str, other: str) -> None:
        """Neither reaches the other."""
        self.cut_one_way(one, other)
        self.cut_one_way(other, one)

    def isolate(self, name: str) -> None:
        """No other machine reaches this one, nor it any other."""
        for other in self._machines:
            if other != name:
                self.cut(name, other)

    def heal(self, one: str, other: str) -> None:
        for source, target in ((one, other), (other, one)):
            self._scheduler.note("network", f"heal {source}>{target}")
            self.link(source, target).heal()

    def heal_all(self) -> None:
        self._scheduler.note("network", "heal all")
        for link in self._links.values():
            link.heal()

    def reset(self, one: str, other: str) -> None:
        """Every connection between the two breaks, at both ends, with what was on its way."""
        self._scheduler.note("network", f"reset {one} {other}")
        for name, peer in ((one, other), (other, one)):
            for end in self._machines[name].sockets:
                if end.peer[0] == peer and end.is_open:
                    end.fail(ConnectionResetError(errno.ECONNRESET, "Connection reset by peer"))
                    if end.transport is not None:
                        end.transport.kernel_has_news()

    def refuse(self, name: str, port: int, *, refused: bool = True) -> None:
        """New connections to the port are refused, as if nothing listened there; `refused=False` ends that."""
        (self._refused.add if refused else self._refused.discard)((name, port))

    def slow_drip(self, source: str, target: str, drip_bytes: int | None, interval_ms: int = 1) -> None:
        """Bytes from source to target come a few at a time; None ends that for what is sent from now on."""
        quality = self.link(source, target).quality
        quality.drip_bytes = drip_bytes
        quality.drip_interval_ns = interval_ms * NS_PER_MS

    def open_connections(self, name: str) -> int:
        """How many connections the machine's kernel holds open, for judges."""
        return sum(end.is_open for end in self._machines[name].sockets)

    # --- machines and processes that die

    def process_died(self, name: str) -> None:
        """The kernel closes what its process had open, and says so."""
        machine = self._machines[name]
        machine.listening.clear()
        for end in machine.sockets:
            end.close()
        machine.sockets.clear()

    def power_lost(self, name: str) -> None:
        """The machine is gone without a word; connections to it hang."""
        machine = self._machines[name]
        machine.is_up = False
        machine.listening.clear()
        for end in machine.sockets:
            end.vanish()

    def power_back(self, name: str) -> None:
        """The machine runs again; it knows nothing of the connections it had."""
        machine = self._machines[name]
        machine.is_up = True
        for end in machine.sockets:
            end.machine_is_back()
        machine.sockets.clear()

    # --- listening and connecting, for MachineNetwork

    def bind(self, name: str, host: object, port: int) -> "SimServerSocket":
        machine = self._machines[name]
        if host not in _ANY and host not in _LOCAL and host != name:
            raise OSError(errno.EADDRNOTAVAIL, f"cannot assign requested address {host!r} on {name}")
        if port == 0:
            while machine.next_free_port in machine.listening:
                machine.next_free_port += 1
            port = machine.next_free_port
            machine.next_free_port += 1
        # As with SO_REUSEADDR on Linux: several may hold a port while nothing listens on it.
        if port in machine.listening and machine.listening[port].accepts:
            raise OSError(errno.EADDRINUSE, f"address already in use: {name}:{port}")

        def release() -> None:
            if machine.listening.get(port) is bound:
                del machine.listening[port]

        bound = SimServerSocket(str(host or name), port, release)
        machine.listening[port] = bound
        return bound

    async def connect(self, loop: "LoopSettings", name: str, factory: _Factory, host: str, port: int) -> Any:
        target = name if host in _LOCAL else host
        if target not in self._machines:
            raise socket.gaierror(socket.EAI_NONAME, f"no simulated machine is called {host!r}")
        reached: asyncio.Future[SimSocket] = loop.create_future()
        dial = _Dial(self, loop, self._machines[name], self._machines[target], port, reached)
        dial.send_syn()
        try:
            end = await reached
        except asyncio.CancelledError:
            dial.give_up()
            raise
        protocol = factory()
        transport = SimTransport(loop, end, protocol)
        connected: asyncio.Future[None] = loop.create_future()
        transport.begin(connected)
        try:
            await connected
        except BaseException:
            transport.close()
            raise
        return transport, protocol

    def is_refused(self, name: str, port: int) -> bool:
        return (name, port) in self._refused

    def join(self, client: _Machine, server: _Machine, port: int) -> tuple[SimSocket, SimSocket]:
        """Make both ends of a connection."""
        self._connection_count += 1
        number = self._connection_count
        client.next_port += 1
        there, back = self.link(client.name, server.name), self.link(server.name, client.name)
        outgoing = Pipe(self._scheduler, f"{number}>", there, back, self._window_bytes)
        incoming = Pipe(self._scheduler, f"{number}<", back, there, self._window_bytes)
        here, far = (client.name, client.next_port), (server.name, port)
        ends = SimSocket(number, here, far, outgoing, incoming), SimSocket(number, far, here, incoming, outgoing)
        for machine, end in ((client, ends[0]), (server, ends[1])):
            machine.sockets = [kept for kept in machine.sockets if kept.is_open or kept.is_gone]
            machine.sockets.append(end)
        self._scheduler.note("network", f"connection {number} {here[0]}:{here[1]} {far[0]}:{far[1]}")
        return ends

    @property
    def scheduler(self) -> SimScheduler:
        return self._scheduler


class _Dial:
    """One attempt to connect, from the first packet to the last."""

    def __init__(
        self,
        network: SimNetwork,
        loop: "LoopSettings",
        client: _Machine,
        server: _Machine,
        port: int,
        reached: "asyncio.Future[SimSocket]",
    ) -> None:
        self._network = network
        self._loop = loop
        self._client = client
        self._server = server
        self._port = port
        self._reached = reached
        self._there = network.link(client.name, server.name)
        self._back = network.link(server.name, client.name)
        too_late = TimeoutError(errno.ETIMEDOUT, "Connection timed out")
        patience = network.scheduler.alarm_in(GIVE_UP_NS, lambda: self._fail(too_late))
        reached.add_done_callback(lambda _: patience.cancel())

    def send_syn(self) -> None:
        """The first packet, again and again until something answers."""
        if not self._reached.done() and not self._loop.is_dead:
            self._there.carry(self._syn_arrives)

    def _syn_arrives(self) -> None:
        if not self._server.is_up:
            self._network.scheduler.alarm_in(_SYN_RETRY_NS, self.send_syn)
            return
        listening = self._server.listening.get(self._port)
        if listening is None or not listening.accepts or self._network.is_refused(self._server.name, self._port):
            refusal = ConnectionRefusedError(errno.ECONNREFUSED, f"connect to {self._server.name}:{self._port} refused")
            self._back.carry(lambda: self._fail(refusal))
            return
        # The server's side exists once the client has answered, which takes both directions.
        self._back.carry(lambda: self._syn_answered(listening))

    def _syn_answered(self, listening: "SimServerSocket") -> None:
        if self._reached.done() or self._loop.is_dead:
            return
        if not self._server.is_up or not listening.accepts:
            self._there.carry(self._syn_arrives)
            return
        ours, theirs = self._network.join(self._client, self._server, self._port)
        listening.accept(theirs)
        self._loop.call_soon(self._arrive, ours)

    def _arrive(self, end: SimSocket) -> None:
        if self._reached.done():
            end.close()
        else:
            self._reached.set_result(end)

    def _fail(self, error: OSError) -> None:
        def settle() -> None:
            if not self._reached.done():
                self._reached.set_exception(error)

        self._loop.call_soon(settle)

    def give_up(self) -> None:
        """No caller waits for the connection any more: should it come about, it ends at once."""
        if self._reached.done() and not self._reached.cancelled() and self._reached.exception() is None:
            self._reached.result().close()


class MachineNetwork:
    """The network as the processes of one machine see it (the loop's `LoopNetwork`)."""

    def __init__(self, network: SimNetwork, name: str) -> None:
        self._network = network
        self.name = name

    def bind(self, host: object, port: int) -> "SimServerSocket":
        """Take a port without serving it yet, as a bound socket does; for `create_server(sock=…)`."""
        return self._network.bind(self.name, host, port)

    async def connect(self, loop: "LoopSettings", factory: _Factory, host: str, port: int) -> Any:
        return await self._network.connect(loop, self.name, factory, host, port)

    def listen(self, loop: "LoopSettings", factory: _Factory, where: object, *, start: bool) -> SimServer:
        if isinstance(where, SimServerSocket):
            bound = [where]
        elif isinstance(where, tuple):
            hosts = where[0] if isinstance(where[0], list | tuple) else [where[0]]
            bound = [self.bind(host, where[1]) for host in hosts]
        else:
            raise TypeError(f"a simulated server listens on a simulated socket, not on {where!r}")
        server = SimServer(loop, factory, bound)
        if start:
            server.begin()
        return server
