"""The network between the processes of a cluster, made of loopback relays: every link can be cut, delayed or made deaf.

How it works: each broker advertises the port of a relay that stands before its own port. Who connects is found out by
the process that owns the socket (`socket_owner`), so every pair (source, target) is a link with rules of its own, and
links of one target are independent. What is not one of the brokers is `CLIENTS`. The way to the metadata store is a
relay per broker, since each broker can be given an address of its own. No rights are needed for any of this.

What a link can do to the bytes of a connection, each direction for itself: let them pass, let them pass late, or hold
them. Held bytes, and the news that a connection was closed, arrive when the link is healed: that is what TCP makes of
packets that were lost for a while, and it is the nastiest case, a request or an answer that comes long after its time.
Healing with `deliver=False` resets the connections instead.

A relay of a broker that is down does not listen, so that connections are refused as by the broker's own machine.

Proved by: tests/cluster/test_links.py
"""

import asyncio
import socket
import struct
import threading
from collections import defaultdict
from collections.abc import Callable, Coroutine, Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import Any, Final, NamedTuple, Self, TypeVar

from tests.cluster.socket_owner import owner_of

T = TypeVar("T")

CLIENTS: Final = 0
"""The source that stands for everybody who is no broker of the cluster."""
STORE: Final = -1
"""The target that stands for the metadata store."""

_CHUNK_BYTES: Final = 65_536
_CALL_SECONDS_MAX: Final = 10.0
_TURNS_TO_SETTLE: Final = 10


class Cut(Enum):
    """What is wrong with a link, seen from the side that opens connections."""

    CLOSED = "closed"
    """Connections are reset and new ones refused."""
    SILENT = "silent"
    """Nothing passes either way, and neither side notices."""
    REQUESTS = "requests lost"
    """Nothing passes from source to target; answers to earlier requests still come."""
    ANSWERS = "answers lost"
    """The target hears everything; its answers do not arrive."""


class Link(NamedTuple):
    """Connections opened by `source` to `target`."""

    source: int
    target: int


@dataclass
class _Rules:
    """How the bytes of a link fare now."""

    requests_pass: asyncio.Event = field(default_factory=asyncio.Event)
    answers_pass: asyncio.Event = field(default_factory=asyncio.Event)
    is_closed: bool = False
    delay_seconds: float = 0.0

    def __post_init__(self) -> None:
        self.open()

    def open(self) -> None:
        self.is_closed = False
        self.delay_seconds = 0.0
        self.requests_pass.set()
        self.answers_pass.set()

    def cut(self, how: Cut) -> None:
        self.is_closed = how is Cut.CLOSED
        for event, kinds in (
            (self.requests_pass, (Cut.SILENT, Cut.REQUESTS)),
            (self.answers_pass, (Cut.SILENT, Cut.ANSWERS)),
        ):
            if how in kinds:
                event.clear()
            else:
                event.set()


@dataclass
class _Relay:
    """Stands before one port; `source_of` tells whose connection it is from the two ends of its near side."""

    target: int
    port: int
    far_port: int
    source_of: Callable[[tuple[str, int], tuple[str, int]], int]
    listening: socket.socket | None = None
    accepting: asyncio.Task[None] | None = None


class Links:
    """All relays of a cluster, in a thread with an event loop of its own; its methods are for every other thread."""

    def __init__(self, processes: Callable[[], Mapping[int, int]]) -> None:
        """`processes` gives the brokers that run now: their numbers by process id."""
        self._processes = processes
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="links", daemon=True)
        self._rules: dict[Link, _Rules] = defaultdict(_Rules)
        self._relays: dict[int, _Relay] = {}
        self._writers: dict[Link, set[asyncio.StreamWriter]] = defaultdict(set)
        self._tasks: set[asyncio.Task[None]] = set()

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._run(self._close())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(_CALL_SECONDS_MAX)
        self._loop.close()

    def add_broker(self, broker: int, *, port: int, far_port: int) -> None:
        """A relay for connections to this broker; it listens from `listen` on."""
        self._relays[port] = _Relay(broker, port, far_port, self._broker_or_client)

    def add_way_to_store(self, broker: int, *, port: int, far_port: int) -> None:
        """A relay that only this broker uses."""
        self._relays[port] = _Relay(STORE, port, far_port, lambda _end, _other: broker)
        self.listen(port)

    def listen(self, port: int) -> None:
        """Take connections at this relay."""
        self._run(self._listen(self._relays[port]))

    def refuse(self, port: int) -> None:
        """Take none any more; those there are stay."""
        self._run(self._refuse(self._relays[port]))

    def cut(self, source: int, target: int, how: Cut) -> None:
        link = Link(source, target)
        self._run(self._change(link, lambda rules: rules.cut(how), reset=how is Cut.CLOSED))

    def delay(self, source: int, target: int, seconds: float) -> None:
        """Every piece takes so much longer, in both directions."""

        def slow(rules: _Rules) -> None:
            rules.delay_seconds = seconds

        self._run(self._change(Link(source, target), slow, reset=False))

    def heal(self, source: int, target: int, *, deliver: bool = True) -> None:
        """As if nothing had been; without `deliver`, what was held is lost with its connection."""
        self._run(self._change(Link(source, target), _Rules.open, reset=not deliver))

    def heal_all(self, *, deliver: bool = True) -> None:
        for source, target in tuple(self._rules):
            self.heal(source, target, deliver=deliver)

    def _run(self, work: Coroutine[Any, Any, T]) -> T:
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(_CALL_SECONDS_MAX)

    async def _listen(self, relay: _Relay) -> None:
        if relay.listening is None:
            relay.listening = socket.create_server(("127.0.0.1", relay.port), backlog=128)
            relay.listening.setblocking(False)
            relay.accepting = self._loop.create_task(self._accept(relay, relay.listening))

    async def _refuse(self, relay: _Relay) -> None:
        if relay.listening is not None and relay.accepting is not None:
            # Ended from below: cancelling it, or an asyncio server's close, can lose a connection it has just taken.
            relay.listening.shutdown(socket.SHUT_RDWR)
            await relay.accepting
            relay.listening.close()
            relay.listening = relay.accepting = None

    async def _accept(self, relay: _Relay, listening: socket.socket) -> None:
        while True:
            try:
                connection, _ = await self._loop.sock_accept(listening)
            except OSError:
                return
            self._keep(self._loop.create_task(self._serve(relay, connection)))

    def _keep(self, task: asyncio.Task[None]) -> None:
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _change(self, link: Link, change: Callable[[_Rules], None], *, reset: bool) -> None:
        # Connections go first, so that what was held does not slip through.
        if reset:
            for writer in tuple(self._writers[link]):
                _reset(writer)
            await asyncio.sleep(0)
        change(self._rules[link])

    async def _close(self) -> None:
        for relay in self._relays.values():
            await self._refuse(relay)
        # Every task must have begun before it is cancelled, and leaves one behind that waits for a connection's end.
        for _ in range(_TURNS_TO_SETTLE):
            await asyncio.sleep(0)
            for task in tuple(self._tasks):
                task.cancel()
            await asyncio.gather(*self._tasks, return_exceptions=True)

    def _broker_or_client(self, end: tuple[str, int], other_end: tuple[str, int]) -> int:
        owner = owner_of(end, other_end, self._processes())
        return CLIENTS if owner is None else owner

    async def _serve(self, relay: _Relay, connection: socket.socket) -> None:
        try:
            reader, writer = await asyncio.open_connection(sock=connection)
        except (OSError, asyncio.CancelledError):
            connection.close()
            return
        try:
            ends = writer.get_extra_info("peername"), writer.get_extra_info("sockname")
            source = await asyncio.to_thread(relay.source_of, *ends)
            await self._relay(Link(source, relay.target), relay.far_port, reader, writer)
        except (OSError, asyncio.CancelledError):
            pass
        finally:
            self._close_after_sending(writer)

    async def _relay(
        self, link: Link, far_port: int, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        rules, writers = self._rules[link], self._writers[link]
        writers.add(writer)
        try:
            if rules.is_closed:
                return
            await rules.requests_pass.wait()
            far_reader, far_writer = await asyncio.open_connection("127.0.0.1", far_port)
            writers.add(far_writer)
            try:
                await _either(
                    _pump(reader, far_writer, rules, rules.requests_pass),
                    _pump(far_reader, writer, rules, rules.answers_pass),
                )
            finally:
                writers.discard(far_writer)
                self._close_after_sending(far_writer)
        finally:
            writers.discard(writer)

    def _close_after_sending(self, writer: asyncio.StreamWriter) -> None:
        """Its end follows what it still has to send; without a taker it is cut off when all is over."""
        writer.close()

        async def wait() -> None:
            try:
                await writer.wait_closed()
            except OSError:
                pass
            except asyncio.CancelledError:
                writer.transport.abort()

        self._keep(self._loop.create_task(wait()))


async def _either(*works: Coroutine[Any, Any, None]) -> None:
    """Until one of them is done; the others are cancelled and have ended then."""
    tasks = [asyncio.ensure_future(work) for work in works]
    try:
        await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


def _reset(writer: asyncio.StreamWriter) -> None:
    """Close it as a broken connection, and forget what it had to send."""
    one = writer.get_extra_info("socket")
    if not writer.transport.is_closing():
        one.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    writer.transport.abort()


async def _pump(source: asyncio.StreamReader, sink: asyncio.StreamWriter, rules: _Rules, passes: asyncio.Event) -> None:
    """Move bytes one way until the source's end, or its breaking, has come through as well."""
    while True:
        try:
            data = await source.read(_CHUNK_BYTES)
        except OSError:
            data = b""
        await passes.wait()
        if rules.delay_seconds:
            await asyncio.sleep(rules.delay_seconds)
        if not data:
            return
        try:
            sink.write(data)
            await sink.drain()
        except OSError:
            # That the sink is gone is news that has to come the other way: the other pump brings it.
            await asyncio.Event().wait()
