"""The operations port over real sockets: what it answers, what it refuses, and that it never waits for anybody."""

import asyncio
from collections.abc import AsyncIterator

import pytest

from martlet.broker import operations
from martlet.broker.operations import CONNECTIONS_MAX, HEAD_BYTES_MAX, OperationsServer
from martlet.observe.exposition import MetricsRegistry
from martlet.observe.metrics import BrokerMetrics


class Harness:
    """A server on a free port whose readiness the test sets."""

    def __init__(self) -> None:
        self.metrics = BrokerMetrics(bytes_in=42)
        self.readiness: tuple[bool, str] = (True, "")
        registry = MetricsRegistry(self.metrics, api_names={}, info={"version": "1"})
        self.server = OperationsServer("127.0.0.1", 0, registry, lambda: self.readiness)

    async def exchange(self, request: bytes) -> tuple[int, dict[str, str], bytes]:
        """Send `request` on a connection of its own and read until the server closes."""
        reader, writer = await asyncio.open_connection("127.0.0.1", self.server.port)
        try:
            writer.write(request)
            raw = await asyncio.wait_for(reader.read(), timeout=10)
        finally:
            writer.close()
        head, _, body = raw.partition(b"\r\n\r\n")
        status_line, *header_lines = head.decode().split("\r\n")
        headers = dict(line.lower().split(": ", 1) for line in header_lines)
        return int(status_line.split()[1]), headers, body

    async def get(self, path: str, method: str = "GET") -> tuple[int, dict[str, str], bytes]:
        return await self.exchange(f"{method} {path} HTTP/1.1\r\nHost: localhost\r\n\r\n".encode())

    async def wait_no_connections(self) -> None:
        async with asyncio.timeout(5):
            while self.server._connections:
                await asyncio.sleep(0.005)


async def rest_of(reader: asyncio.StreamReader) -> bytes:
    """What still comes before the server closes, be it politely or by a reset."""
    try:
        return await asyncio.wait_for(reader.read(), timeout=5)
    except ConnectionResetError:
        return b""


@pytest.fixture
async def harness() -> AsyncIterator[Harness]:
    made = Harness()
    await made.server.start()
    yield made
    await made.server.aclose()


async def test_health_is_ok_while_the_loop_turns(harness: Harness) -> None:
    harness.readiness = (False, "loading")
    status, headers, body = await harness.get("/healthz")
    assert (status, body) == (200, b"ok\n")
    assert headers["content-length"] == "3"
    assert headers["connection"] == "close"


async def test_readiness_follows_the_broker_and_gives_its_reason(harness: Harness) -> None:
    harness.readiness = (False, "opening 12 of 40 partitions")
    status, _, body = await harness.get("/readyz")
    assert (status, body) == (503, b"not ready: opening 12 of 40 partitions\n")
    harness.readiness = (True, "")
    status, _, body = await harness.get("/readyz")
    assert (status, body) == (200, b"ready\n")


async def test_metrics_are_rendered_at_each_scrape(harness: Harness) -> None:
    status, headers, body = await harness.get("/metrics?ignored=1")
    assert status == 200
    assert headers["content-type"].startswith("text/plain; version=")
    assert b"martlet_received_bytes_total 42.0" in body
    harness.metrics.bytes_in += 1
    assert b"martlet_received_bytes_total 43.0" in (await harness.get("/metrics"))[2]


async def test_head_gives_the_headers_of_get_without_its_body(harness: Harness) -> None:
    _, get_headers, _ = await harness.get("/healthz")
    status, head_headers, body = await harness.get("/healthz", "HEAD")
    assert (status, head_headers, body) == (200, get_headers, b"")


async def test_an_unknown_path_is_answered_with_what_there_is(harness: Harness) -> None:
    status, _, body = await harness.get("/admin")
    assert status == 404
    assert b"/healthz, /readyz and /metrics" in body


async def test_other_methods_are_refused_with_the_allowed_ones(harness: Harness) -> None:
    body_bytes = b"x" * 100_000
    status, headers, _ = await harness.exchange(
        b"POST /metrics HTTP/1.1\r\nHost: h\r\nContent-Length: 100000\r\n\r\n" + body_bytes
    )
    assert (status, headers["allow"]) == (405, "get, head")


async def test_a_head_that_is_too_long_is_refused(harness: Harness) -> None:
    status, _, _ = await harness.exchange(b"GET / HTTP/1.1\r\nX: " + b"y" * (HEAD_BYTES_MAX * 4))
    assert status == 431


@pytest.mark.parametrize(
    "garbage",
    [b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03\r\n\r\n", b"\x00\x00\x00\x10garbage\r\n\r\n", b"GET\r\n\r\n"],
)
async def test_bytes_that_are_not_http_get_a_bad_request(harness: Harness, garbage: bytes) -> None:
    status, _, _ = await harness.exchange(garbage)
    assert status == 400


async def test_a_head_fed_byte_by_byte_is_understood(harness: Harness) -> None:
    reader, writer = await asyncio.open_connection("127.0.0.1", harness.server.port)
    for byte in b"GET /healthz HTTP/1.1\r\nHost: h\r\n\r\n":
        writer.write(bytes([byte]))
        await writer.drain()
    assert (await reader.read()).startswith(b"HTTP/1.1 200 ")
    writer.close()


async def test_a_slow_head_is_cut_off_at_the_deadline(harness: Harness, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(operations, "READ_SECONDS_MAX", 0.05)
    reader, writer = await asyncio.open_connection("127.0.0.1", harness.server.port)
    writer.write(b"GET /healthz")
    assert await rest_of(reader) == b""
    writer.close()


async def test_a_client_that_does_not_leave_is_cut_off(harness: Harness, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(operations, "WRITE_SECONDS_MAX", 0.05)
    reader, writer = await asyncio.open_connection("127.0.0.1", harness.server.port)
    writer.write(b"GET /healthz HTTP/1.1\r\nHost: h\r\n\r\n")
    assert (await reader.read()).endswith(b"ok\n")
    await harness.wait_no_connections()
    writer.close()


async def test_connections_past_the_limit_are_closed_and_room_comes_back(harness: Harness) -> None:
    idle = [await asyncio.open_connection("127.0.0.1", harness.server.port) for _ in range(CONNECTIONS_MAX)]
    extra_reader, extra_writer = await asyncio.open_connection("127.0.0.1", harness.server.port)
    assert await rest_of(extra_reader) == b""
    extra_writer.close()
    for _, writer in idle:
        writer.close()
    await harness.wait_no_connections()
    assert (await harness.get("/healthz"))[0] == 200


async def test_a_failing_request_is_logged_and_leaves_the_server_up(
    harness: Harness, caplog: pytest.LogCaptureFixture
) -> None:
    def broken() -> tuple[bool, str]:
        raise RuntimeError("no answer")

    harness.server._readiness = broken
    reader, writer = await asyncio.open_connection("127.0.0.1", harness.server.port)
    writer.write(b"GET /readyz HTTP/1.1\r\nHost: h\r\n\r\n")
    assert await rest_of(reader) == b""
    writer.close()
    assert "an operations request failed" in caplog.text
    assert (await harness.get("/healthz"))[0] == 200


async def test_closing_cuts_open_connections_and_frees_the_port() -> None:
    first = Harness()
    await first.server.aclose()
    await first.server.start()
    reader, writer = await asyncio.open_connection("127.0.0.1", first.server.port)
    await asyncio.wait_for(first.server.aclose(), timeout=2)
    await first.server.aclose()
    assert await rest_of(reader) == b""
    writer.close()
    second = OperationsServer("127.0.0.1", first.server.port, first.server._registry, lambda: (True, ""))
    await second.start()
    await second.aclose()


async def test_a_taken_port_is_reported_to_the_caller(harness: Harness) -> None:
    second = OperationsServer("127.0.0.1", harness.server.port, harness.server._registry, lambda: (True, ""))
    with pytest.raises(OSError, match="address already in use"):
        await second.start()
