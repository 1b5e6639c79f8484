"""One HTTP connection: answers in pieces, without end, or of another kind."""

import asyncio

import pytest

from martlet.stores import etcd_http
from martlet.stores.etcd_http import (
    AnswerCut,
    AnswerLate,
    AnswerLost,
    CannotConnect,
    HttpAnswer,
    HttpConnection,
    NotHttp,
)
from martlet.stores.etcd_options import EtcdEndpoint
from tests.unit.stores.scripted_server import HANG_UP, SILENCE, Raw, ScriptedServer

_CHUNKED = b"HTTP/1.1 200 X\r\nTransfer-Encoding: chunked\r\n\r\n"


async def _connect(server: ScriptedServer) -> HttpConnection:
    return await HttpConnection.open(server.endpoint, None, 1.0)


async def _lines(connection: HttpConnection) -> list[bytes]:
    assert await connection.begin("POST", "/watch", b"{}", [], 1.0) == 200
    return [line async for line in connection.lines()]


async def test_a_connection_is_usable_again_after_a_whole_answer_only() -> None:
    async with ScriptedServer(lambda _: (200, b"hello")) as server:
        connection = await _connect(server)
        for _ in range(3):
            assert await connection.exchange("POST", "/x", b"{}", [], 1.0) == HttpAnswer(200, b"hello")
            assert connection.is_usable
        server.answer = lambda _: SILENCE
        with pytest.raises(AnswerLate, match=r"no answer within 0\.05 s"):
            await connection.exchange("POST", "/x", b"{}", [], 0.05)
        assert not connection.is_usable
        await connection.close()


async def test_lines_are_whole_however_they_are_cut_into_chunks() -> None:
    chunks = [b"on", b"e\ntw", b"o\n\nthree\nfo", b"ur"]
    data = b"".join(b"%x\r\n%s\r\n" % (len(chunk), chunk) for chunk in chunks) + b"0\r\n\r\n"
    async with ScriptedServer(lambda _: Raw(_CHUNKED + data)) as server:
        connection = await _connect(server)
        assert await _lines(connection) == [b"one", b"two", b"", b"three"]
        await connection.close()


async def test_a_stream_cut_in_the_middle_is_lost_not_ended() -> None:
    async with ScriptedServer(lambda _: Raw(_CHUNKED + b"4\r\none\n\r\n")) as server:
        connection = await _connect(server)
        with pytest.raises(AnswerCut):
            await _lines(connection)
        await connection.close()


async def test_a_stream_aborted_from_outside_wakes_its_reader() -> None:
    async with ScriptedServer(lambda _: Raw(_CHUNKED, then_close=False)) as server:
        connection = await _connect(server)
        assert await connection.begin("POST", "/watch", b"{}", [], 1.0) == 200
        waiting = asyncio.ensure_future(anext(connection.lines()))
        await asyncio.sleep(0)
        connection.abort()
        with pytest.raises(AnswerLost):
            await asyncio.wait_for(waiting, 5)
        await connection.close()


async def test_an_answer_without_end_is_cut_off(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(etcd_http, "ANSWER_BYTES_MAX", 1_000)
    async with ScriptedServer(lambda _: (200, b"x" * 1_001)) as server:
        connection = await _connect(server)
        with pytest.raises(AnswerLost, match="longer than any"):
            await connection.exchange("POST", "/x", b"{}", [], 1.0)
        await connection.close()
        server.answer = lambda _: Raw(_CHUNKED + b"3e9\r\n" + b"x" * 1_001 + b"\r\n", then_close=False)
        connection = await _connect(server)
        with pytest.raises(AnswerLost, match="longer than any"):
            await _lines(connection)
        await connection.close()


@pytest.mark.parametrize(
    "data", [b"SSH-2.0-x\r\n\r\n", b"\x16\x03\x01\x00\x01\x02", b"HTTP/1.1 200 X\r\nA: " + b"b" * 70_000]
)
async def test_what_is_no_http_is_told_apart(data: bytes) -> None:
    async with ScriptedServer(lambda _: Raw(data, then_close=False)) as server:
        connection = await _connect(server)
        with pytest.raises(NotHttp):
            await connection.exchange("POST", "/x", b"{}", [], 1.0)
        await connection.close()


async def test_a_peer_that_hangs_up_makes_the_connection_unusable() -> None:
    async with ScriptedServer(lambda _: HANG_UP) as server:
        connection = await _connect(server)
        with pytest.raises(AnswerCut):
            await connection.exchange("POST", "/x", b"{}", [], 1.0)
        assert not connection.is_usable
        await connection.close()


async def test_no_server_there_means_that_nothing_was_sent() -> None:
    async with ScriptedServer(lambda _: HANG_UP) as server:
        endpoint: EtcdEndpoint = server.endpoint
    with pytest.raises(CannotConnect):
        await HttpConnection.open(endpoint, None, 1.0)
