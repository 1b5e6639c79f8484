"""The operations port: `/healthz`, `/readyz` and `/metrics` over HTTP/1.1, for probes and Prometheus.

The only importer of h11, which does all the parsing; this module moves bytes and keeps limits. One request per
connection, then it is closed: probes and scrapers come seconds apart, and a connection without a next
request has no state to guard.

Rules: reads nothing but GET and HEAD, changes nothing, and never makes the broker wait. A head may have
`HEAD_BYTES_MAX` bytes and must arrive whole within `READ_SECONDS_MAX`; an answer must be taken within
`WRITE_SECONDS_MAX`; past `CONNECTIONS_MAX` connections a newcomer is closed at once.

- `/healthz` answers 200 as long as the event loop turns.
- `/readyz` answers 200 when the broker serves clients, else 503 with the reason.
- `/metrics` answers with the Prometheus text.

Proved by: tests/unit/broker/test_operations.py.
"""

import asyncio
import logging
from collections.abc import Callable
from http import HTTPStatus
from typing import Final, NamedTuple

import h11

from martlet.base.invariant import invariant
from martlet.observe.exposition import MetricsRegistry

HEAD_BYTES_MAX: Final = 8_192
READ_SECONDS_MAX: Final = 5.0
WRITE_SECONDS_MAX: Final = 5.0
CONNECTIONS_MAX: Final = 64

_TEXT: Final = "text/plain; charset=utf-8"

logger = logging.getLogger(__name__)


class _Answer(NamedTuple):
    status: HTTPStatus
    body: bytes
    content_type: str = _TEXT
    allow: str = ""


class OperationsServer:
    """Started and closed by the broker's wiring; lives on the loop that called `start`.

    `readiness` tells whether the broker serves clients, and if not, why; it is asked at each `/readyz`.
    """

    def __init__(
        self, host: str, port: int, registry: MetricsRegistry, readiness: Callable[[], tuple[bool, str]]
    ) -> None:
        self._host = host
        self._port = port
        self._registry = registry
        self._readiness = readiness
        self._server: asyncio.Server | None = None
        self._connections: set[asyncio.Task[None]] = set()

    async def start(self) -> None:
        """Listen; raises OSError when the address is taken or not ours."""
        invariant(self._server is None, "an operations server is started once")
        self._server = await asyncio.start_server(self._accept, self._host, self._port, limit=HEAD_BYTES_MAX)
        self._port = self._server.sockets[0].getsockname()[1]

    @property
    def port(self) -> int:
        """The port listened on: the one that was free when 0 was asked for."""
        return self._port

    async def aclose(self) -> None:
        """Stop listening and cut what is open. May be called twice, or without `start`."""
        if self._server is None:
            return
        self._server.close()
        for task in self._connections:
            task.cancel()
        await asyncio.gather(*self._connections, return_exceptions=True)
        await self._server.wait_closed()

    def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if len(self._connections) >= CONNECTIONS_MAX:
            writer.transport.abort()
            return
        task = asyncio.get_running_loop().create_task(self._serve(reader, writer), name="operations connection")
        self._connections.add(task)
        task.add_done_callback(self._ended)

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._connections.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            logger.error("an operations request failed", exc_info=error)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            await self._exchange(reader, writer)
        except (OSError, TimeoutError):
            logger.debug("an operations connection ended early")
        finally:
            writer.transport.abort()

    async def _exchange(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        connection = h11.Connection(h11.SERVER, max_incomplete_event_size=HEAD_BYTES_MAX)
        try:
            async with asyncio.timeout(READ_SECONDS_MAX):
                request = await _read_head(reader, connection)
        except h11.RemoteProtocolError as error:
            response = _response_bytes(connection, _Answer(HTTPStatus(error.error_status_hint), f"{error}\n".encode()))
        else:
            if request is None:
                return
            response = _response_bytes(connection, self._answer(request), with_body=request.method != b"HEAD")
        writer.write(response)
        async with asyncio.timeout(WRITE_SECONDS_MAX):
            await writer.drain()
            await _close_politely(reader, writer)

    def _answer(self, request: h11.Request) -> _Answer:
        path = request.target.partition(b"?")[0]
        if path not in (b"/healthz", b"/readyz", b"/metrics"):
            return _Answer(HTTPStatus.NOT_FOUND, b"not found: this port serves /healthz, /readyz and /metrics\n")
        if request.method not in (b"GET", b"HEAD"):
            return _Answer(HTTPStatus.METHOD_NOT_ALLOWED, b"only GET and HEAD are served here\n", allow="GET, HEAD")
        if path == b"/metrics":
            return _Answer(HTTPStatus.OK, self._registry.render(), self._registry.content_type)
        if path == b"/healthz":
            return _Answer(HTTPStatus.OK, b"ok\n")
        ready, reason = self._readiness()
        if ready:
            return _Answer(HTTPStatus.OK, b"ready\n")
        return _Answer(HTTPStatus.SERVICE_UNAVAILABLE, f"not ready: {reason}\n".encode())


async def _read_head(reader: asyncio.StreamReader, connection: h11.Connection) -> h11.Request | None:
    """The request's head, or None when the peer left before it was whole."""
    while True:
        event = connection.next_event()
        if isinstance(event, h11.Request):
            return event
        if event is not h11.NEED_DATA:
            return None
        data = await reader.read(HEAD_BYTES_MAX)
        if not data:
            return None
        connection.receive_data(data)


def _response_bytes(connection: h11.Connection, answer: _Answer, *, with_body: bool = True) -> bytes:
    headers = [
        ("content-type", answer.content_type),
        ("content-length", str(len(answer.body))),
        ("cache-control", "no-store"),
        ("connection", "close"),
    ]
    if answer.allow:
        headers.append(("allow", answer.allow))
    events: list[h11.Event] = [
        h11.Response(status_code=answer.status, headers=headers, reason=answer.status.phrase.encode()),
        h11.EndOfMessage(),
    ]
    if with_body:
        events.insert(1, h11.Data(data=answer.body))
    return b"".join(connection.send(event) or b"" for event in events)


async def _close_politely(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Say that no more comes and wait for the peer to leave.

    Closing while bytes of the peer lie unread makes the kernel send a reset, which can overtake the answer.
    """
    if writer.can_write_eof():
        writer.write_eof()
    while await reader.read(HEAD_BYTES_MAX):
        pass
