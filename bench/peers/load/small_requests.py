"""Many producers with small batches: N connections, each with one request under way, in one process.

    python -m bench.peers.load.small_requests < SPECIFICATION > RESULT        (both one JSON object)

Requests are ready-made and the same for every server; only the error code of an answer is looked at.
"""

import asyncio
import struct
from typing import Any, Final, cast

import uvloop

from bench.peers.load.main import Stopwatch, serve

_PREFIX: Final = struct.Struct(">i")
_ERROR: Final = struct.Struct(">h")


class _Producer(asyncio.Protocol):
    """Sends its request again as soon as the last one was answered."""

    def __init__(self, load: "_Load", frame: bytes) -> None:
        self._load = load
        self._frame = frame
        self._received = bytearray()
        self._transport: asyncio.Transport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)

    def send(self) -> None:
        assert self._transport is not None
        self._transport.write(self._frame)

    def data_received(self, data: bytes) -> None:
        received = self._received
        received += data
        if len(received) < 4 or len(received) < 4 + _PREFIX.unpack_from(received)[0]:
            return
        code = _ERROR.unpack_from(received, 4 + self._load.error_at)[0]
        received.clear()
        if self._load.answered(code):
            self.send()

    def connection_lost(self, exc: Exception | None) -> None:
        self._load.lost()


class _Load:
    def __init__(self, specification: dict[str, Any]) -> None:
        self.error_at: int = specification["error_at"]
        self._producers: int = specification["producers"]
        self._requests = 0
        self._is_over = False
        self._failure = ""
        self._ended = asyncio.Event()

    def answered(self, code: int) -> bool:
        """Count it; whether to go on."""
        if code and not self._failure:
            self._failure = f"a publish was refused with error {code}"
            self._ended.set()
        self._requests += 1
        return not self._is_over

    def lost(self) -> None:
        if not self._is_over:
            self._failure = "the server closed a connection"
            self._ended.set()

    async def run(self, specification: dict[str, Any]) -> dict[str, Any]:
        frames = [bytes.fromhex(text) for text in specification["frames"]]
        loop = asyncio.get_running_loop()
        producers = []
        for number in range(self._producers):
            frame = frames[number % len(frames)]
            producer = _Producer(self, frame)
            await loop.create_connection(lambda one=producer: one, "127.0.0.1", specification["port"])  # type: ignore[misc]
            producers.append(producer)
        for producer in producers:
            producer.send()
        await self._sleep(specification["warmup_seconds"])
        before, watch = self._requests, Stopwatch()
        await self._sleep(specification["seconds"])
        result = watch.result((self._requests - before) * specification["batch_messages"])
        self._is_over = True
        if self._failure:
            raise RuntimeError(self._failure)
        return result | {"messages_in_all": self._requests * specification["batch_messages"]}

    async def _sleep(self, seconds: float) -> None:
        try:
            await asyncio.wait_for(self._ended.wait(), seconds)
        except TimeoutError:
            return


async def _run(specification: dict[str, Any]) -> dict[str, Any]:
    return await _Load(specification).run(specification)


if __name__ == "__main__":
    serve({"producers": lambda specification: uvloop.run(_run(specification))})
