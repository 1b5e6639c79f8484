"""The limit each figure stands beside: a server that moves the same bytes as the broker and does nothing else.

    python -m bench.bare_loop --port N --data DIR [--sync] [--answer-bytes N] [--delivery-bytes N] [--plan FILE]

Rules: nothing of Martlet is imported and nothing of a request is understood but its length and its API key. It is as
fast as one event loop in Python can be made for the task, because a slow limit would flatter the broker.

How it works, by the API key of a frame:
- Produce: the frame is written to a file as it lies in the receive buffer, and answered with a fixed number of bytes.
  With `--sync` the answer waits for an `fdatasync` in a thread; frames that arrive meanwhile share the next one.
- Fetch with `--plan`: the k-th such frame of a connection is answered with the k-th piece of the plan's file,
  `[position, size]`, behind a header of the size that makes the answer as long as the broker's.
- Fetch without: the frame waits, and the next publish on any connection that is written (and synced) answers it too. A
  publish that overtook the fetch answers it at once: both may lie ready when the loop turns.

Proved by: tests/unit/bench/test_bare_loop.py
"""

import argparse
import asyncio
import contextlib
import ctypes
import json
import os
import signal
import struct
from concurrent.futures import ThreadPoolExecutor
from typing import Final, NamedTuple, cast

import uvloop

_PREFIX: Final = struct.Struct(">i")
_PRODUCE: Final = 0
_FETCH: Final = 1
# Of several sizes tried, the fastest: it stays in the processor's cache and seldom cuts a frame of 1 MB in two.
_BUFFER_BYTES: Final = 2 << 20
_M_TRIM_THRESHOLD: Final = -1
_M_MMAP_THRESHOLD: Final = -3


class Piece(NamedTuple):
    """One answer to a fetch: how many bytes stand before the records, and where in the file those lie."""

    header_bytes: int
    position: int
    size: int


class BareServer:
    """What all connections share: the file, the flushes, the waiting fetches."""

    def __init__(self, data: str, answer_bytes: int, delivery_bytes: int, sync: bool) -> None:
        self.answer = _frame_of(answer_bytes)
        self.delivery = _frame_of(delivery_bytes)
        self.sync = sync
        self.pieces: list[Piece] = []
        self.pieces_fd = -1
        self.waiting: list[asyncio.Transport] = []
        self.readers: set[asyncio.Transport] = set()
        self._has_overtaken = False
        self._fd = os.open(os.path.join(data, "bare.log"), os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
        self._unsynced: list[asyncio.Transport] = []
        self._syncing = False
        self._pool = ThreadPoolExecutor(1)

    def close(self) -> None:
        os.close(self._fd)
        self._pool.shutdown()

    def load_plan(self, path: str) -> None:
        with open(path, encoding="utf-8") as file:
            plan = json.load(file)
        self.pieces = [Piece(*piece) for piece in plan["pieces"]]
        self.pieces_fd = os.open(plan["file"], os.O_RDONLY | os.O_CLOEXEC)

    def publish(self, transport: asyncio.Transport, frame: memoryview) -> None:
        written = os.write(self._fd, frame)
        while written < len(frame):
            written += os.write(self._fd, frame[written:])
        if not self.sync:
            self._acknowledge([transport])
            return
        self._unsynced.append(transport)
        if not self._syncing:
            self._start_sync()

    def _start_sync(self) -> None:
        self._syncing = True
        group, self._unsynced = self._unsynced, []
        self._pool.submit(self._sync, asyncio.get_running_loop(), group)

    def _sync(self, loop: asyncio.AbstractEventLoop, group: list[asyncio.Transport]) -> None:
        os.fdatasync(self._fd)
        loop.call_soon_threadsafe(self._synced, group)

    def _synced(self, group: list[asyncio.Transport]) -> None:
        self._syncing = False
        self._acknowledge(group)
        if self._unsynced:
            self._start_sync()

    def _acknowledge(self, group: list[asyncio.Transport]) -> None:
        for transport in group:
            transport.write(self.answer)
        if self.waiting:
            for transport in self.waiting:
                transport.write(self.delivery)
            self.waiting.clear()
        elif self.readers:
            self._has_overtaken = True

    def fetch(self, transport: asyncio.Transport) -> None:
        self.readers.add(transport)
        if self._has_overtaken:
            self._has_overtaken = False
            transport.write(self.delivery)
        else:
            self.waiting.append(transport)

    def forget(self, transport: asyncio.Transport | None) -> None:
        """The connection is gone."""
        if transport in self.waiting:
            self.waiting.remove(transport)
        if transport in self.readers:
            self.readers.remove(transport)
            self._has_overtaken = False


class BareConnection(asyncio.BufferedProtocol):
    """One client: a receive buffer that is cut into frames, each served at once."""

    def __init__(self, server: BareServer) -> None:
        self._server = server
        self._buffer = memoryview(bytearray(_BUFFER_BYTES))
        self._start = 0
        self._end = 0
        self._fetches = 0
        self._transport: asyncio.Transport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        self._transport.set_write_buffer_limits(high=16 << 20)

    def connection_lost(self, exc: Exception | None) -> None:
        self._server.forget(self._transport)

    def get_buffer(self, sizehint: int) -> memoryview:
        return self._buffer[self._end :]

    def buffer_updated(self, nbytes: int) -> None:
        self._end += nbytes
        buffer = self._buffer
        start, end = self._start, self._end
        length = 0
        while end - start >= 4:
            (length,) = _PREFIX.unpack_from(buffer, start)
            if end - start < 4 + length:
                break
            self._serve(buffer[start : start + 4 + length])
            start += 4 + length
            length = 0
        if start == end:
            start = end = 0
        elif start + 4 + length > len(buffer) or end == len(buffer):
            rest = buffer[start:end]
            if 4 + length > len(buffer):
                self._buffer = memoryview(bytearray(4 + length))
            self._buffer[: len(rest)] = rest
            start, end = 0, len(rest)
        self._start, self._end = start, end

    def _serve(self, frame: memoryview) -> None:
        transport = self._transport
        if transport is None:
            return
        server = self._server
        if frame[5] == _PRODUCE:
            server.publish(transport, frame)
        elif frame[5] == _FETCH and not server.pieces:
            server.fetch(transport)
        elif frame[5] == _FETCH:
            piece = server.pieces[self._fetches % len(server.pieces)]
            self._fetches += 1
            records = os.pread(server.pieces_fd, piece.size, piece.position)
            header = _PREFIX.pack(piece.header_bytes - 4 + piece.size) + bytes(piece.header_bytes - 4)
            transport.writelines((header, records))


def keep_memory() -> None:
    """Have the C library keep freed memory: answers of 8 MB then do not cost the kernel 2,000 fresh pages each."""
    with contextlib.suppress(AttributeError, OSError):
        library = ctypes.CDLL(None)
        for parameter in (_M_MMAP_THRESHOLD, _M_TRIM_THRESHOLD):
            library.mallopt(parameter, 1 << 30)


def _frame_of(size: int) -> bytes:
    """A frame that takes `size` bytes in all and says nothing."""
    return _PREFIX.pack(size - 4) + bytes(size - 4)


async def serve(arguments: argparse.Namespace) -> None:
    """Serve until SIGTERM."""
    server = BareServer(arguments.data, arguments.answer_bytes, arguments.delivery_bytes, arguments.sync)
    if arguments.plan:
        server.load_plan(arguments.plan)
    loop = asyncio.get_running_loop()
    listener = await loop.create_server(lambda: BareConnection(server), "127.0.0.1", arguments.port)
    stopped = asyncio.Event()
    loop.add_signal_handler(signal.SIGTERM, stopped.set)
    await stopped.wait()
    listener.close()
    server.close()


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.bare_loop", description="The bare loop of the benchmarks.")
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--data", required=True, help="directory for the file it writes")
    parser.add_argument("--sync", action="store_true", help="answer publishes only after a grouped fdatasync")
    parser.add_argument("--answer-bytes", type=int, default=64, help="size of the answer to a publish")
    parser.add_argument("--delivery-bytes", type=int, default=256, help="size of the answer to a waiting fetch")
    parser.add_argument("--plan", default="", help="file that says how to answer fetches")
    keep_memory()
    uvloop.run(serve(parser.parse_args()))


if __name__ == "__main__":
    main()
