"""Both ends of a simulated connection: the kernel's socket and the asyncio transport that a process sees of it.

The two are apart because they do not die together: a killed process leaves a kernel that still says goodbye, a machine
without power says nothing, and a stopped process has a kernel that goes on receiving. The transport behaves as
asyncio's own: writes go straight to the kernel while it takes them, a paused reader learns neither of bytes nor
of an end, `connection_lost` is called once and from the loop.
"""

import asyncio
import errno
from collections import deque
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Final

from sim.link import Pipe, Signal

if TYPE_CHECKING:
    from sim.loop_settings import LoopSettings

SocketName = tuple[str, int]

_RECEIVE_BYTES_MAX: Final = 262_144
_HIGH_WATER_BYTES: Final = 65_536


class SimSocket:
    """The kernel's end of a connection, on one machine."""

    def __init__(self, number: int, local: SocketName, peer: SocketName, outgoing: Pipe, incoming: Pipe) -> None:
        self.number = number
        self.local = local
        self.peer = peer
        self.transport: SimTransport | None = None
        self.is_open = True
        self.is_gone = False
        """The machine lost power with this connection: it knows nothing of it any more."""
        self.machine_is_up = True
        self._owes_answer = False
        self.received: deque[bytes] = deque()
        self.has_ended = False
        self.error: OSError | None = None
        self.outgoing = outgoing
        self._incoming = incoming
        incoming.reader = self
        outgoing.on_room = self._room
        outgoing.on_given_up = self._given_up

    # --- from the wire

    def arrived(self, piece: bytes | Signal) -> None:
        """Bytes or an end have come."""
        if not self.is_open:
            self._arrived_too_late(piece)
            return
        if isinstance(piece, bytes):
            if not self.has_ended:
                self.received.append(piece)
        elif piece is Signal.END:
            self.has_ended = True
        else:
            self.fail(ConnectionResetError(errno.ECONNRESET, "Connection reset by peer"))
        self._tell_reader()

    def _arrived_too_late(self, piece: bytes | Signal) -> None:
        """A kernel that knows no such connection says so, unless no kernel runs there."""
        if piece is Signal.RESET:
            return
        if not self.machine_is_up:
            self._owes_answer = True
        elif self.is_gone or isinstance(piece, bytes):
            self.outgoing.signal(Signal.RESET)

    def _room(self) -> None:
        if self.transport is not None:
            self.transport.kernel_has_room()

    def _given_up(self) -> None:
        if self.is_open:
            self.fail(TimeoutError(errno.ETIMEDOUT, "Connection timed out"))
            self._tell_reader()

    def _tell_reader(self) -> None:
        if self.transport is not None:
            self.transport.kernel_has_news()

    # --- from the process

    def send(self, data: bytearray) -> int:
        """Take as much as fits and return how much that was; raises what the connection died of."""
        if self.error is not None:
            raise self.error
        count = min(len(data), self.outgoing.free_bytes)
        if count:
            self.outgoing.send(bytes(data[:count]))
        if count < len(data):
            self.outgoing.ask_for_room()
        return count

    def receive(self, limit: int) -> bytes:
        """What lies here, up to that much; empty when nothing does."""
        if not self.received:
            return b""
        piece = self.received.popleft()
        if len(piece) > limit:
            self.received.appendleft(piece[limit:])
            piece = piece[:limit]
        self._incoming.taken(len(piece))
        return piece

    def shut_down_writing(self) -> None:
        self.outgoing.signal(Signal.END)

    # --- endings

    def close(self) -> None:
        """As the kernel does it, also for a killed process: a reset when bytes lie unread, else an ordinary end."""
        if self.is_open:
            self.is_open = False
            self.transport = None
            self.outgoing.signal(Signal.RESET if self.received else Signal.END)
            self.received.clear()

    def fail(self, error: OSError) -> None:
        """The connection is dead for this end; the process learns of it at its next call."""
        self.error = self.error or error
        self.outgoing.break_off()

    def vanish(self) -> None:
        """The machine lost power: its peers hear nothing."""
        self.is_open = False
        self.is_gone = True
        self.machine_is_up = False
        self.transport = None
        self.received.clear()
        self.outgoing.lose_tail()

    def machine_is_back(self) -> None:
        """The machine runs again and knows nothing of this connection; a peer that still sends gets a reset."""
        if self.is_gone:
            self.machine_is_up = True
            if self._owes_answer:
                self.outgoing.signal(Signal.RESET)


class SimTransport(asyncio.Transport):
    """A process' view of a connection."""

    def __init__(self, loop: "LoopSettings", socket: SimSocket, protocol: asyncio.BaseProtocol) -> None:
        super().__init__({"peername": socket.peer, "sockname": socket.local})
        self._loop = loop
        self._socket = socket
        self._protocol = protocol
        self._unsent = bytearray()
        self._high = _HIGH_WATER_BYTES
        self._low = _HIGH_WATER_BYTES // 4
        self._is_closing = False
        self._is_lost = False
        self._reading_paused = False
        self._read_scheduled = False
        self._writing_paused = False
        self._write_ended = False
        self._read_ended = False
        socket.transport = self

    def begin(self, connected: asyncio.Future[None] | None = None) -> None:
        """Introduce the transport to its protocol, then read; in turns of the loop, as asyncio does."""
        self._loop.call_soon(self._protocol.connection_made, self)
        self._loop.call_soon(self.kernel_has_news)
        if connected is not None:
            self._loop.call_soon(lambda: None if connected.done() else connected.set_result(None))

    # --- from the kernel

    def kernel_has_news(self) -> None:
        """Something can be read, or the connection has ended."""
        if self._is_readable and not self._read_scheduled:
            self._read_scheduled = True
            self._loop.call_soon(self._read)

    @property
    def _is_readable(self) -> bool:
        socket = self._socket
        something = bool(socket.received) or socket.error is not None or (socket.has_ended and not self._read_ended)
        return something and not self._reading_paused and not self._is_closing and not self._is_lost

    def kernel_has_room(self) -> None:
        """Unsent bytes may go on."""
        if not self._is_lost:
            self._loop.call_soon(self._write_more)

    def _read(self) -> None:
        self._read_scheduled = False
        if not self._is_readable:
            return
        try:
            if self._socket.received:
                self._hand_over()
            elif self._socket.error is not None:
                self._lose(self._socket.error)
            else:
                self._read_ended = True
                self._end_received()
        except BaseException as error:
            # As in asyncio: a connection whose protocol raises is over, and the loop reports it.
            self._lose(error)
            raise
        self.kernel_has_news()

    def _hand_over(self) -> None:
        protocol = self._protocol
        if isinstance(protocol, asyncio.BufferedProtocol):
            buffer = memoryview(protocol.get_buffer(-1))
            if not len(buffer):
                raise RuntimeError("get_buffer() returned an empty buffer")
            data = self._socket.receive(len(buffer))
            buffer[: len(data)] = data
            protocol.buffer_updated(len(data))
        elif isinstance(protocol, asyncio.Protocol):
            protocol.data_received(self._socket.receive(_RECEIVE_BYTES_MAX))

    def _end_received(self) -> None:
        protocol = self._protocol
        stays_open = isinstance(protocol, asyncio.Protocol | asyncio.BufferedProtocol) and protocol.eof_received()
        if not stays_open:
            self.close()

    # --- writing

    def write(self, data: bytes | bytearray | memoryview) -> None:
        if self._write_ended:
            raise RuntimeError("Cannot call write() after write_eof()")
        if self._is_lost or not data:
            return
        self._unsent += data
        if len(self._unsent) == len(data):
            self._write_more()
        self._maybe_pause_protocol()

    def writelines(self, list_of_data: Iterable[bytes | bytearray | memoryview]) -> None:
        self.write(b"".join(list_of_data))

    def _write_more(self) -> None:
        if self._is_lost:
            return
        if self._unsent:
            try:
                count = self._socket.send(self._unsent)
            except OSError as error:
                self._lose(error)
                return
            del self._unsent[:count]
        self._maybe_resume_protocol()
        if not self._unsent and not self._is_lost:
            if self._is_closing:
                self._lose(None)
            elif self._write_ended:
                self._socket.shut_down_writing()

    def write_eof(self) -> None:
        if self._is_closing or self._write_ended:
            return
        self._write_ended = True
        if not self._unsent:
            self._socket.shut_down_writing()

    def can_write_eof(self) -> bool:
        return True

    def _maybe_pause_protocol(self) -> None:
        if len(self._unsent) > self._high and not self._writing_paused:
            self._writing_paused = True
            self._tell(self._protocol.pause_writing)

    def _maybe_resume_protocol(self) -> None:
        if self._writing_paused and len(self._unsent) <= self._low:
            self._writing_paused = False
            self._tell(self._protocol.resume_writing)

    def _tell(self, callback: Callable[[], None]) -> None:
        # A handle reports what the protocol raises and goes on, as asyncio does here.
        asyncio.Handle(callback, (), self._loop)._run()  # noqa: SLF001 - at once, not in the next turn

    # --- endings

    def close(self) -> None:
        if self._is_closing or self._is_lost:
            return
        self._is_closing = True
        if not self._unsent:
            self._lose(None)

    def abort(self) -> None:
        self._lose(None)

    def _lose(self, error: BaseException | None) -> None:
        if self._is_lost:
            return
        self._is_lost = self._is_closing = True
        self._unsent.clear()
        self._loop.call_soon(self._say_lost, error)

    def _say_lost(self, error: BaseException | None) -> None:
        try:
            self._protocol.connection_lost(error if isinstance(error, Exception) else None)
        finally:
            self._socket.close()

    def is_closing(self) -> bool:
        return self._is_closing or self._loop.is_dead

    # --- reading and settings

    def pause_reading(self) -> None:
        self._reading_paused = True

    def resume_reading(self) -> None:
        if self._reading_paused and not self._is_closing:
            self._reading_paused = False
            self.kernel_has_news()

    def is_reading(self) -> bool:
        return not self._is_closing and not self._reading_paused

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        if high is None:
            high = _HIGH_WATER_BYTES if low is None else 4 * low
        self._high = high
        self._low = high // 4 if low is None else low
        self._maybe_pause_protocol()

    def get_write_buffer_limits(self) -> tuple[int, int]:
        return self._low, self._high

    def get_write_buffer_size(self) -> int:
        return len(self._unsent)

    def set_protocol(self, protocol: asyncio.BaseProtocol) -> None:
        self._protocol = protocol

    def get_protocol(self) -> asyncio.BaseProtocol:
        return self._protocol
