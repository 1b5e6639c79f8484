"""HTTP/1.1 to one etcd member: a connection that carries one exchange at a time, h11 doing all the parsing.

Rules: knows neither etcd's paths nor its JSON. Who opens a connection closes it. A connection whose exchange
failed or was left half-way is dead and says so by `is_usable`.

The errors separate what a caller must separate: `CannotConnect` was raised before anything was sent,
`AnswerLost` after something may have been.

Proved by: tests/unit/stores/test_etcd_http.py
"""

import asyncio
import ssl
from collections.abc import AsyncGenerator
from typing import Final, NamedTuple

import h11

from martlet.base.errors import MartletError
from martlet.stores.etcd_options import EtcdEndpoint

ANSWER_BYTES_MAX: Final = 128 * 1024 * 1024
"""No answer of an etcd comes near this; what does is not one."""

_READ_BYTES: Final = 256 * 1024
_HEAD_BYTES_MAX: Final = 64 * 1024


class CannotConnect(MartletError):
    """There is no connection, so nothing was sent."""


class WrongPeer(CannotConnect):
    """The peer answered, but trying again will not make a connection of it."""


class AnswerLost(MartletError):
    """The exchange broke after it had begun; whether it had an effect is unknown."""


class AnswerLate(AnswerLost):
    """There was no answer in time."""


class AnswerCut(AnswerLost):
    """The peer hung up."""


class CertificateRefused(AnswerLost):
    """The peer hung up because of our certificate, or for want of one."""


class NotHttp(AnswerLost):
    """What came back is no HTTP."""


class HttpAnswer(NamedTuple):
    """A whole answer."""

    status: int
    body: bytes


class HttpConnection:
    """One connection; made by `open`."""

    def __init__(self, endpoint: EtcdEndpoint, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.endpoint = endpoint
        self._reader = reader
        self._writer = writer
        self._http = h11.Connection(h11.CLIENT, max_incomplete_event_size=_HEAD_BYTES_MAX)
        self._is_busy = False

    @classmethod
    async def open(cls, endpoint: EtcdEndpoint, tls: ssl.SSLContext | None, seconds: float) -> "HttpConnection":
        try:
            async with asyncio.timeout(seconds):
                reader, writer = await asyncio.open_connection(endpoint.host, endpoint.port, ssl=tls, limit=_READ_BYTES)
        except ssl.SSLCertVerificationError as error:
            raise WrongPeer(f"its certificate is not to be trusted: {error.verify_message}") from error
        except ssl.SSLError as error:
            raise WrongPeer(f"TLS failed ({error.reason or error}): does this address speak TLS?") from error
        except TimeoutError as error:
            raise CannotConnect(f"no connection within {seconds:g} s") from error
        except ConnectionError as error:
            hint = "" if tls is None or isinstance(error, ConnectionRefusedError) else "; does this address speak TLS?"
            raise CannotConnect(_text(error) + hint) from error
        except OSError as error:
            raise CannotConnect(_text(error)) from error
        return cls(endpoint, reader, writer)

    @property
    def is_usable(self) -> bool:
        """Whether another exchange may begin; a peer that has hung up meanwhile makes it False."""
        return not (self._is_busy or self._reader.at_eof() or self._writer.is_closing())

    async def exchange(
        self, method: str, path: str, body: bytes, headers: list[tuple[str, str]], seconds: float
    ) -> HttpAnswer:
        """Send a request and take the whole answer; on an error or a cancellation the connection is dead."""
        self._is_busy = True
        try:
            async with asyncio.timeout(seconds):
                await self._send(method, path, body, headers)
                status = await self._status()
                answer = HttpAnswer(status, await self._whole_body())
        except TimeoutError as error:
            raise AnswerLate(f"no answer within {seconds:g} s") from error
        if self._http.our_state is h11.DONE and self._http.their_state is h11.DONE:
            self._http.start_next_cycle()
            self._is_busy = False
        return answer

    async def begin(self, method: str, path: str, body: bytes, headers: list[tuple[str, str]], seconds: float) -> int:
        """Send a request whose answer has no end, and return its status; `lines` reads on."""
        self._is_busy = True
        try:
            async with asyncio.timeout(seconds):
                await self._send(method, path, body, headers)
                return await self._status()
        except TimeoutError as error:
            raise AnswerLate(f"no answer within {seconds:g} s") from error

    async def lines(self) -> AsyncGenerator[bytes, None]:
        """The lines of the answer as they come; ends when the peer ends it."""
        held = bytearray()
        while (data := await self._data()) is not None:
            searched = len(held)
            held += data
            if len(held) > ANSWER_BYTES_MAX:
                raise AnswerLost("the answer is longer than any etcd's")
            start = 0
            while (end := held.find(b"\n", max(start, searched))) >= 0:
                yield bytes(held[start:end])
                start = end + 1
            del held[:start]

    async def rest(self, seconds: float) -> bytes:
        """The rest of an answer that does end after all, an error's text for example."""
        try:
            async with asyncio.timeout(seconds):
                return await self._whole_body()
        except TimeoutError as error:
            raise AnswerLate(f"no answer within {seconds:g} s") from error

    def abort(self) -> None:
        """Close at once; a reader that waits gets `AnswerLost`."""
        self._writer.transport.abort()

    async def close(self) -> None:
        """Close and wait until the socket is gone."""
        self._writer.transport.abort()
        try:
            await self._writer.wait_closed()
        except OSError:
            return  # closed is what was wanted

    async def _send(self, method: str, path: str, body: bytes, headers: list[tuple[str, str]]) -> None:
        head = [("Host", str(self.endpoint)), ("Content-Length", str(len(body))), *headers]
        pieces = (
            self._http.send(h11.Request(method=method, target=path, headers=head)),
            self._http.send(h11.Data(data=body)) if body else b"",
            self._http.send(h11.EndOfMessage()),
        )
        try:
            self._writer.write(b"".join(piece for piece in pieces if piece))
            await self._writer.drain()
        except OSError as error:
            raise _lost(error) from error

    async def _status(self) -> int:
        while True:
            event = await self._event()
            if isinstance(event, h11.Response):
                return event.status_code
            if isinstance(event, h11.ConnectionClosed):
                raise AnswerCut("the connection was closed instead of an answer")

    async def _whole_body(self) -> bytes:
        pieces: list[bytes] = []
        size = 0
        while (data := await self._data()) is not None:
            pieces.append(data)
            size += len(data)
            if size > ANSWER_BYTES_MAX:
                raise AnswerLost("the answer is longer than any etcd's")
        return b"".join(pieces)

    async def _data(self) -> bytes | None:
        while True:
            event = await self._event()
            if isinstance(event, h11.Data):
                return bytes(event.data)
            if isinstance(event, h11.EndOfMessage):
                return None

    async def _event(self) -> h11.Event:
        try:
            while True:
                event = self._http.next_event()
                if event is h11.PAUSED:
                    raise AnswerLost("more came than was asked for")
                if isinstance(event, h11.Event):
                    return event
                self._http.receive_data(await self._reader.read(_READ_BYTES))
        except h11.RemoteProtocolError as error:
            if self._http.their_state is h11.ERROR and self._reader.at_eof():
                raise AnswerCut("the connection was closed before the answer's end") from error
            raise NotHttp(f"no HTTP came back ({error})") from error
        except OSError as error:
            raise _lost(error) from error


def _lost(error: OSError) -> AnswerLost:
    if isinstance(error, ssl.SSLError) and "CERTIFICATE" in (error.reason or "").upper():
        return CertificateRefused(f"it refuses our certificate, or wants one ({error.reason})")
    return AnswerCut(f"the connection broke: {_text(error)}")


def _text(error: OSError) -> str:
    return error.strerror or str(error) or type(error).__name__
