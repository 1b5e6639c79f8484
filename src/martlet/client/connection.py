"""One TCP connection to one broker: frames out in order, answers back in the same order.

Rules: nothing here knows topics or leaders, and nothing is tried twice; that is `cluster` and its callers.

How it works: `start` connects and asks ApiVersions, falling back to what the broker offers when it refuses our
version (error 35, answered in the layout of version 0). Requests may be pipelined; the broker answers strictly in
order, so the oldest waiting request owns the next frame. A caller that is cancelled leaves its place in the queue
and its answer is dropped. A request without an answer in time ends the connection, because everything behind it
waits for the same answer.

Invariants: (CLT-5) an answer whose correlation id is not the oldest waiting one ends the connection; (CLT-6) after the
connection has ended every waiting caller gets an error, none waits for ever.
"""

import asyncio
import re
from collections import deque
from functools import partial
from typing import Final, NamedTuple, Self, TypeVar, cast

import martlet
from martlet.base.addresses import Address
from martlet.base.errors import ApiError, ErrorCode, ProtocolViolation, error_code
from martlet.base.invariant import invariant
from martlet.client.apis import API_VERSIONS, SASL_AUTHENTICATE, SASL_HANDSHAKE, Api
from martlet.client.errors import ConnectionFailed, ConnectionLost, RequestTimedOut, reason_of
from martlet.client.login import log_in
from martlet.client.options import ClientOptions
from martlet.security.errors import AuthenticationRefused
from martlet.wire import message_codec
from martlet.wire.api_keys import ApiKey
from martlet.wire.frames import FrameReceiver
from martlet.wire.headers import encode_request_frame, read_response_header
from martlet.wire.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse

Request = TypeVar("Request")
Response = TypeVar("Response")

_CORRELATION_LIMIT: Final = 2**31
_ABOUT_US: Final = ApiVersionsRequest(client_software_name="martlet", client_software_version=martlet.__version__)


class VersionRange(NamedTuple):
    """The versions of one API that the broker offers, both ends included."""

    oldest: int
    newest: int


class _Awaited(NamedTuple):
    """A request that has been sent and the future of its answer."""

    correlation_id: int
    api_key: int
    version: int
    answer: asyncio.Future[memoryview]


class _FrameProtocol(asyncio.BufferedProtocol):
    """The asyncio side: moves bytes, matches answers, remembers why it ended."""

    def __init__(self, address: Address, response_bytes_max: int) -> None:
        self._address = address
        self._receiver = FrameReceiver(response_bytes_max)
        self._transport: asyncio.Transport | None = None
        self._awaited: deque[_Awaited] = deque()
        self._writable = asyncio.Event()
        self._writable.set()
        self._ended = asyncio.Event()
        self.failure: Exception | None = None

    @property
    def is_open(self) -> bool:
        return self._transport is not None and self.failure is None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        # Not asked for its class: uvloop's transports have none of asyncio's.
        self._transport = cast(asyncio.Transport, transport)

    def get_buffer(self, sizehint: int) -> memoryview:
        return self._receiver.get_buffer()

    def buffer_updated(self, nbytes: int) -> None:
        try:
            for frame in self._receiver.received(nbytes):
                self._answer(frame)
        except ProtocolViolation as error:
            lost = ConnectionLost(f"{self._address} broke the protocol: {error}")
            lost.__cause__ = error
            self.fail(lost)

    def _answer(self, frame: memoryview) -> None:
        if not self._awaited:
            raise ProtocolViolation(f"{self._address} sent an answer without a request")
        awaited = self._awaited.popleft()
        correlation_id, body_position = read_response_header(frame, awaited.api_key, awaited.version)
        if correlation_id != awaited.correlation_id:
            self._awaited.appendleft(awaited)
            raise ProtocolViolation(
                f"{self._address} answered request {correlation_id} while {awaited.correlation_id} was next"
            )
        if not awaited.answer.done():
            # The frame lies in the receive buffer, which the next read overwrites.
            awaited.answer.set_result(memoryview(bytes(frame[body_position:])))

    def connection_lost(self, exc: Exception | None) -> None:
        self.fail(ConnectionLost(f"{self._address} closed the connection" + (f": {reason_of(exc)}" if exc else "")))
        self._ended.set()

    def pause_writing(self) -> None:
        self._writable.clear()

    def resume_writing(self) -> None:
        self._writable.set()

    def fail(self, error: Exception) -> None:
        """End the connection; the first reason given is the one reported."""
        if self.failure is None:
            self.failure = error
        self._writable.set()
        while self._awaited:
            answer = self._awaited.popleft().answer
            if not answer.done():
                answer.set_exception(self.failure)
        if self._transport is not None:
            self._transport.abort()

    async def wait_writable(self) -> None:
        await self._writable.wait()
        if self.failure is not None:
            raise self.failure

    def write(self, frame: bytes, awaited: _Awaited | None) -> None:
        invariant(self._transport is not None, "write after start only")
        if awaited is not None:
            self._awaited.append(awaited)
        if self._transport is not None:
            self._transport.write(frame)

    async def wait_ended(self) -> None:
        if self._transport is not None:
            await self._ended.wait()


class Connection:
    """A negotiated connection. Owned by one event loop; any number of tasks may have requests under way."""

    def __init__(self, address: Address, options: ClientOptions) -> None:
        self.address = address
        self._options = options
        self._protocol = _FrameProtocol(address, options.response_bytes_max)
        self._next_correlation_id = 0
        self._versions: dict[int, VersionRange] = {}

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(self, *exc_info: object) -> None:
        await self.aclose()

    @property
    def is_open(self) -> bool:
        return self._protocol.is_open

    @property
    def versions(self) -> dict[int, VersionRange]:
        """What the broker offers, by API key."""
        return self._versions

    async def start(self) -> None:
        """Connect and negotiate; raises ConnectionFailed when no broker that speaks the protocol answers."""
        loop = asyncio.get_running_loop()
        # The first message of a process loads the schemas, which takes longer than any of the waiting below.
        message_codec.encode(_ABOUT_US, API_VERSIONS.newest)
        security = self._options.security
        try:
            async with asyncio.timeout(self._options.connect_timeout_ms / 1000):
                await loop.create_connection(
                    lambda: self._protocol, self.address.host, self.address.port, ssl=security.tls_context()
                )
        except (OSError, TimeoutError) as error:
            raise ConnectionFailed(f"{self.address}: {reason_of(error)}") from error
        try:
            async with asyncio.timeout(self._options.connect_timeout_ms / 1000):
                await self._negotiate()
            if security.protocol.authenticates:
                async with asyncio.timeout(self._options.connect_timeout_ms / 1000):
                    await self._log_in()
        except TimeoutError as error:
            await self.aclose()
            raise ConnectionFailed(f"{self.address}: connected, but no answer in time; is it a broker?") from error
        except ConnectionLost as error:
            await self.aclose()
            raise ConnectionFailed(f"{self.address}: {_not_a_broker(error)}") from error
        except BaseException:
            self.close()
            raise

    async def aclose(self) -> None:
        """Close and wait until the socket is gone; waiting callers get ConnectionLost."""
        self.close()
        await self._protocol.wait_ended()

    def close(self) -> None:
        self._protocol.fail(ConnectionLost(f"the connection to {self.address} was closed on our side"))

    async def _negotiate(self) -> None:
        version = API_VERSIONS.newest
        for _ in range(2):
            body = await self.exchange(ApiKey.API_VERSIONS, version, message_codec.encode(_ABOUT_US, version))
            if int.from_bytes(body[:2], "big", signed=True) != ErrorCode.UNSUPPORTED_VERSION:
                break
            offered = _ranges(self._read_versions(body, 0))
            version = min(version - 1, offered.get(ApiKey.API_VERSIONS, VersionRange(0, 0)).newest)
        response = self._read_versions(body, version)
        if response.error_code:
            code = error_code(response.error_code)
            raise ApiError(code, f"{self.address} refused to name its API versions ({code.name})")
        self._versions = _ranges(response)

    async def _log_in(self) -> None:
        try:
            await log_in(
                self._options.security, partial(self.call, SASL_HANDSHAKE), partial(self.call, SASL_AUTHENTICATE)
            )
        except AuthenticationRefused as error:
            raise ConnectionFailed(f"{self.address}: {error}") from error

    def _read_versions(self, body: memoryview, version: int) -> ApiVersionsResponse:
        try:
            return message_codec.decode(ApiVersionsResponse, version, body)
        except ProtocolViolation as error:
            raise self.broken_by(error) from error

    def version_of(self, api: Api[Request, Response], newest: int | None = None) -> int:
        """The newest version both sides speak, not above `newest`; ApiError UNSUPPORTED_VERSION if there is none."""
        ours = api.newest if newest is None else min(api.newest, newest)
        offered = self._versions.get(api.key)
        if offered is None:
            raise ApiError(ErrorCode.UNSUPPORTED_VERSION, f"the broker at {self.address} does not offer {api.name}")
        version = min(ours, offered.newest)
        if version < max(api.oldest, offered.oldest):
            raise ApiError(
                ErrorCode.UNSUPPORTED_VERSION,
                f"the broker at {self.address} speaks {api.name} {offered.oldest} to {offered.newest}, "
                f"this client {api.oldest} to {ours}",
            )
        return version

    async def call(self, api: Api[Request, Response], request: Request, *, timeout_ms: int | None = None) -> Response:
        """Send one request and return its answer; error codes inside the answer are the caller's to read."""
        version = self.version_of(api)
        body = await self.exchange(api.key, version, message_codec.encode(request, version), timeout_ms=timeout_ms)
        try:
            return message_codec.decode(api.response, version, body)
        except ProtocolViolation as error:
            raise self.broken_by(error) from error

    def broken_by(self, error: ProtocolViolation) -> ConnectionLost:
        """End the connection because an answer makes no sense; returns what to raise."""
        failure = ConnectionLost(f"{self.address} broke the protocol: {error}")
        self._protocol.fail(failure)
        return failure

    async def exchange(
        self, api_key: ApiKey, version: int, body: bytes, *, timeout_ms: int | None = None
    ) -> memoryview:
        """Send an encoded body and return the answer's body."""
        limit_ms = self._options.request_timeout_ms if timeout_ms is None else timeout_ms
        try:
            async with asyncio.timeout(limit_ms / 1000):
                return await (await self._send(api_key, version, body, expects_answer=True))
        except TimeoutError as error:
            failure = RequestTimedOut(f"{self.address} did not answer {api_key.name} within {limit_ms} ms")
            self._protocol.fail(failure)
            raise failure from error

    async def send_only(self, api_key: ApiKey, version: int, body: bytes) -> None:
        """Send a request that has no answer (Produce with acks 0); returns once it may be forgotten here."""
        await self._send(api_key, version, body, expects_answer=False)

    async def _send(
        self, api_key: ApiKey, version: int, body: bytes, *, expects_answer: bool
    ) -> asyncio.Future[memoryview]:
        await self._protocol.wait_writable()
        correlation_id = self._next_correlation_id
        self._next_correlation_id = (correlation_id + 1) % _CORRELATION_LIMIT
        frame = encode_request_frame(api_key, version, correlation_id, self._options.client_id, body)
        answer: asyncio.Future[memoryview] = asyncio.get_running_loop().create_future()
        awaited = _Awaited(correlation_id, api_key, version, answer)
        self._protocol.write(frame, awaited if expects_answer else None)
        return answer


def _ranges(response: ApiVersionsResponse) -> dict[int, VersionRange]:
    return {entry.api_key: VersionRange(entry.min_version, entry.max_version) for entry in response.api_keys}


def _not_a_broker(error: ConnectionLost) -> str:
    """In one clause why what listens there is taken for something else than a broker."""
    if not isinstance(error.__cause__, ProtocolViolation):
        return "it closed the connection: not a Kafka listener, or not ready"
    sent = re.search(r"seems to have sent (an? [^;]+)", str(error.__cause__))
    return f"not a Kafka listener: it sent {sent[1]}" if sent else "not a Kafka listener: its answer makes no sense"
