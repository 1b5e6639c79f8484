"""A client of a few lines on a plain socket: sends any bytes, well-formed or not, and reads what comes back.

Everything blocks and nothing is retried or hidden, so a test sees exactly what the broker did. Requests and answers go
through `martlet.wire`; `send_bytes` goes around it.
"""

import socket
import sys
from collections.abc import Iterator, Sequence
from types import TracebackType
from typing import Any, Self

from martlet.wire.api_keys import ApiKey
from martlet.wire.fetch import FetchRequest, FetchResponse, encode_fetch_request, parse_fetch_response
from martlet.wire.headers import encode_request_frame, read_response_header
from martlet.wire.message_codec import decode, encode
from martlet.wire.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from martlet.wire.primitives import Buffer
from martlet.wire.produce import ProduceResponse, encode_produce_request, parse_produce_response

ProduceTopics = Sequence[tuple[str | None, bytes | None, Sequence[tuple[int, Buffer | None]]]]


class ConnectionClosed(Exception):
    """The broker closed the connection while an answer was awaited."""


def api_of(request_class: type[Any]) -> tuple[ApiKey, type[Any]]:
    """The API of a message class from `wire.messages` and the class of its response."""
    module = sys.modules[request_class.__module__]
    key = ApiKey[module.__name__.rpartition(".")[2].upper()]
    response: type[Any] = getattr(module, request_class.__name__.removesuffix("Request") + "Response")
    return key, response


class RawClient:
    """One connection to a broker; a context manager."""

    def __init__(self, address: str, *, timeout_seconds: float = 20.0, receive_buffer_bytes: int | None = None) -> None:
        host, _, port = address.rpartition(":")
        self.socket = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
        if receive_buffer_bytes is not None:
            self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_buffer_bytes)
        self.socket.settimeout(timeout_seconds)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.socket.connect((host, int(port)))
        self._correlation_id = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        self.socket.close()

    # --- bytes and frames

    def send_bytes(self, data: Buffer) -> None:
        self.socket.sendall(data)

    def send_frame(self, content: bytes) -> None:
        """Any bytes under a length prefix that fits them."""
        self.send_bytes(len(content).to_bytes(4, "big") + content)

    def frame(self, key: int, version: int, body: Buffer) -> tuple[int, bytes]:
        """A request frame with a correlation id of its own, and that id."""
        self._correlation_id += 1
        return self._correlation_id, encode_request_frame(key, version, self._correlation_id, "raw", body)

    def send(self, key: int, version: int, body: Buffer) -> int:
        """Send one request; returns its correlation id."""
        correlation_id, frame = self.frame(key, version, body)
        self.send_bytes(frame)
        return correlation_id

    def receive_frame(self) -> bytes:
        """The next frame without its length; raises ConnectionClosed when there will be none."""
        size = int.from_bytes(self._receive_exactly(4), "big")
        return self._receive_exactly(size)

    def receive(self, key: int, version: int) -> tuple[int, bytes]:
        """Correlation id and body of the next response."""
        frame = self.receive_frame()
        correlation_id, position = read_response_header(frame, key, version)
        return correlation_id, frame[position:]

    def wait_closed(self, within_seconds: float = 10.0) -> bytes:
        """Read until the broker closes the connection and return what it sent before; fails when it stays open."""
        self.socket.settimeout(within_seconds)
        return b"".join(self._chunks_until_closed())

    def _chunks_until_closed(self) -> Iterator[bytes]:
        while True:
            try:
                chunk = self.socket.recv(65536)
            except ConnectionError:
                return
            if not chunk:
                return
            yield chunk

    def _receive_exactly(self, size: int) -> bytes:
        data = bytearray()
        while len(data) < size:
            try:
                chunk = self.socket.recv(min(size - len(data), 1 << 20))
            except ConnectionError as error:
                raise ConnectionClosed from error
            if not chunk:
                raise ConnectionClosed
            data += chunk
        return bytes(data)

    # --- requests

    def call(self, request: Any, version: int) -> Any:
        """Send a message of `wire.messages` and return the response as one."""
        key, response_class = api_of(type(request))
        sent = self.send(key, version, encode(request, version))
        received, body = self.receive(key, version)
        assert received == sent
        return decode(response_class, version, body)

    def api_versions(self, version: int = 0) -> ApiVersionsResponse:
        """The cheapest proof that the broker serves this connection."""
        request = ApiVersionsRequest(client_software_name="raw", client_software_version="1")
        response: ApiVersionsResponse = self.call(request, version)
        return response

    def send_produce(self, topics: ProduceTopics, version: int, *, acks: int = -1, timeout_ms: int = 10_000) -> int:
        body = encode_produce_request(version, topics=topics, acks=acks, timeout_ms=timeout_ms)
        return self.send(ApiKey.PRODUCE, version, b"".join(body))

    def receive_produce(self, version: int) -> tuple[int, ProduceResponse]:
        received, body = self.receive(ApiKey.PRODUCE, version)
        return received, parse_produce_response(body, version)

    def produce(
        self, topics: ProduceTopics, version: int = 9, *, acks: int = -1, timeout_ms: int = 10_000
    ) -> ProduceResponse:
        sent = self.send_produce(topics, version, acks=acks, timeout_ms=timeout_ms)
        received, response = self.receive_produce(version)
        assert received == sent
        return response

    def send_fetch(self, request: FetchRequest, version: int) -> int:
        return self.send(ApiKey.FETCH, version, encode_fetch_request(version, request))

    def receive_fetch(self, version: int) -> tuple[int, FetchResponse]:
        received, body = self.receive(ApiKey.FETCH, version)
        return received, parse_fetch_response(body, version)

    def fetch(self, request: FetchRequest, version: int = 12) -> FetchResponse:
        sent = self.send_fetch(request, version)
        received, response = self.receive_fetch(version)
        assert received == sent
        return response
