"""Cutting a byte stream into frames: the receive buffer of one connection, without the socket.

    get_buffer() → the loop receives into it → received(n) → for each complete frame: a view into the same buffer

How it works: one `bytearray` per connection. `_start` is the first byte not yet handed out, `_end` the first byte not
yet received. Frames are handed out where they lie, so a frame that fits the buffer is never copied. A partial frame at
the end stays where it is as long as the rest of it fits behind it; only when it does not is it moved to the front.

Invariants:

FRAME-1 0 ≤ _start ≤ _end ≤ capacity, and `get_buffer()` is never empty.
FRAME-2 The buffer grows only when it is full, and then at most doubles: a length a peer merely declares allocates
   nothing.
FRAME-3 The buffer is replaced, never resized, so a view handed out earlier cannot make growing fail.
FRAME-4 A frame is valid until its iterator advances or `get_buffer`, `release` or `feed` is called. A caller that needs
   it longer copies it.

A new connection holds nothing, the first bytes cost FIRST_BYTES, a connection that fills its buffer works its way up to
WORKING_BYTES and further only for larger frames; capacity beyond RETAINED_BYTES goes as soon as the buffer is empty.

Proved by: tests/unit/wire/test_frames_buffer.py, tests/properties/test_frames.py
"""

from collections.abc import Iterator
from struct import Struct
from typing import Final, NoReturn

from martlet.base.errors import ProtocolViolation

FIRST_BYTES: Final = 16 * 1024
WORKING_BYTES: Final = 256 * 1024
RETAINED_BYTES: Final = 1280 * 1024
"""A little more than a produce request of the usual largest size (1 MiB), so that such a producer keeps its buffer."""

_STEP_BYTES: Final = 64 * 1024
# Capacity for a large frame is rounded up to this, so that slightly larger ones do not each need a new buffer.

PREFIX_BYTES: Final = 4
_PREFIX: Final = Struct(">i")

_NO_BUFFER: Final = memoryview(bytearray())

# What the first four bytes of a connection usually are when a peer speaks another protocol to this port.
_STRANGERS: Final = (
    (b"\x16\x03", "a TLS handshake; this listener speaks plain text"),
    (b"\x15\x03", "a TLS alert; this listener speaks plain text"),
    (b"GET ", "an HTTP request; this listener speaks the Kafka protocol"),
    (b"HEAD", "an HTTP request; this listener speaks the Kafka protocol"),
    (b"POST", "an HTTP request; this listener speaks the Kafka protocol"),
    (b"PUT ", "an HTTP request; this listener speaks the Kafka protocol"),
    (b"OPTI", "an HTTP request; this listener speaks the Kafka protocol"),
    (b"CONN", "an HTTP request; this listener speaks the Kafka protocol"),
    (b"PRI ", "an HTTP/2 or gRPC connection; this listener speaks the Kafka protocol"),
    (b"HTTP", "an HTTP response; this listener speaks the Kafka protocol"),
    (b"SSH-", "an SSH connection; this listener speaks the Kafka protocol"),
)


class FrameReceiver:
    """The receive buffer of one connection; owned by that connection, used from one thread.

    `max_frame_bytes` may be changed between calls, for a peer that has authenticated.
    """

    __slots__ = ("_buffer", "_end", "_first_bytes", "_start", "max_frame_bytes")

    def __init__(self, max_frame_bytes: int, initial_bytes: int = FIRST_BYTES) -> None:
        self.max_frame_bytes = max_frame_bytes
        self._first_bytes = max(initial_bytes, PREFIX_BYTES)
        self._buffer = _NO_BUFFER
        self._start = 0
        self._end = 0

    @property
    def pending_bytes(self) -> int:
        """Bytes received that belong to frames not handed out yet."""
        return self._end - self._start

    @property
    def capacity_bytes(self) -> int:
        """What the buffer occupies."""
        return len(self._buffer)

    def get_buffer(self) -> memoryview:
        """Where the next bytes go; call `received` with how many there were."""
        start, end = self._start, self._end
        if start == end:
            self._start = self._end = end = 0
            if not self._buffer:
                self._buffer = memoryview(bytearray(self._first_bytes))
            elif len(self._buffer) > RETAINED_BYTES:
                self._buffer = memoryview(bytearray(WORKING_BYTES))
        elif end == len(self._buffer) or (start and start + self._frame_bytes() > len(self._buffer)):
            end = self._make_room()
        return self._buffer[end:]

    def received(self, count: int) -> Iterator[memoryview]:
        """Take in `count` bytes now and iterate over the frames complete by them; the views are writable.

        Frames not consumed stay: a later `received(0)` goes on with them. Raises ProtocolViolation, while iterating,
        for a length that cannot be.
        """
        self._end += count
        return self._frames()

    def feed(self, data: bytes | bytearray | memoryview) -> list[bytes]:
        """The frames complete after `data`, copied; for tests and for peers that bring their own bytes."""
        frames: list[bytes] = []
        position = 0
        while position < len(data):
            space = self.get_buffer()
            count = min(len(space), len(data) - position)
            space[:count] = data[position : position + count]
            position += count
            frames.extend(bytes(frame) for frame in self.received(count))
        return frames

    def release(self) -> None:
        """Give the buffer back when nothing is pending; for connections that have gone quiet."""
        if self._start == self._end:
            self._start = self._end = 0
            self._buffer = _NO_BUFFER

    def _frames(self) -> Iterator[memoryview]:
        while (pending := self._end - self._start) >= PREFIX_BYTES:
            start = self._start
            (length,) = _PREFIX.unpack_from(self._buffer, start)
            if not 0 <= length <= self.max_frame_bytes:
                self._refuse(length)
            if pending < PREFIX_BYTES + length:
                return
            # Before the yield: a caller that stops iterating has had this frame.
            self._start = start + PREFIX_BYTES + length
            yield self._buffer[start + PREFIX_BYTES : self._start]

    def _frame_bytes(self) -> int:
        """What the first pending frame takes in all, as far as its length is known."""
        if self._end - self._start < PREFIX_BYTES:
            return PREFIX_BYTES
        length: int = _PREFIX.unpack_from(self._buffer, self._start)[0]
        return PREFIX_BYTES + length

    def _make_room(self) -> int:
        """Move what is pending to the front, of a larger buffer if this one is full; returns where it ends."""
        pending = self._buffer[self._start : self._end]
        count = len(pending)
        capacity = len(self._buffer)
        if count == capacity or (self._end == capacity and capacity < WORKING_BYTES):
            wanted = max(-self._frame_bytes() // _STEP_BYTES * -_STEP_BYTES, WORKING_BYTES)
            # With more pending than wanted, whole frames wait for a reader that has paused.
            capacity = 2 * capacity if count >= wanted else min(2 * capacity, wanted)
            self._buffer = memoryview(bytearray(capacity))
        self._buffer[:count] = pending
        self._start, self._end = 0, count
        return count

    def _refuse(self, length: int) -> NoReturn:
        first = bytes(self._buffer[self._start : self._start + PREFIX_BYTES])
        for opening, guess in _STRANGERS:
            if first.startswith(opening):
                raise ProtocolViolation(f"a frame of {length} bytes: the peer seems to have sent {guess}")
        raise ProtocolViolation(f"a frame of {length} bytes, where 0 to {self.max_frame_bytes} are allowed")
