"""Connections in the simulation behave as real ones: the same programs over the loopback and over simulated wires."""

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

import pytest
from sim.world import SimWorld

Program = Callable[[], Coroutine[Any, Any, object]]
HOST = "127.0.0.1"


class Story(asyncio.Protocol):
    """Writes down what the transport calls, bytes put together."""

    def __init__(self, *, stays_open: bool = False) -> None:
        self.transport: asyncio.Transport
        self.events: list[str] = []
        self.data = bytearray()
        self.ended = asyncio.Event()
        self._stays_open = stays_open

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self.transport = transport
        self.events.append("made")

    def data_received(self, data: bytes) -> None:
        self.data += data

    def eof_received(self) -> bool:
        self.events.append(f"end after {len(self.data)}")
        return self._stays_open

    def pause_writing(self) -> None:
        self.events.append("pause")

    def resume_writing(self) -> None:
        self.events.append("resume")

    def connection_lost(self, exc: Exception | None) -> None:
        self.events.append(f"lost {type(exc).__name__}")
        self.ended.set()


async def connected(make_server_end: Callable[[], Story] = Story) -> tuple[asyncio.Server, Story, Story]:
    """A server, and the two ends of one connection to it: the client's and the server's."""
    loop = asyncio.get_running_loop()
    far = make_server_end()
    server = await loop.create_server(lambda: far, HOST, 0)
    port = server.sockets[0].getsockname()[1]
    _, near = await loop.create_connection(Story, HOST, port)
    await asyncio.sleep(0.05)
    return server, near, far


async def streams_echo_and_close() -> object:
    async def echo(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while line := await reader.readline():
            writer.write(line.upper())
            await writer.drain()
        writer.close()

    server = await asyncio.start_server(echo, HOST, 0)
    reader, writer = await asyncio.open_connection(HOST, server.sockets[0].getsockname()[1])
    writer.writelines([b"one\n", b"two\n"])
    lines = [await reader.readline(), await reader.readline()]
    writer.write_eof()
    lines.append(await reader.read())
    writer.close()
    await writer.wait_closed()
    server.close()
    return lines


async def a_large_message_arrives_whole() -> object:
    content = bytes(range(256)) * 8_192
    server, near, far = await connected()
    near.transport.write(content)
    near.transport.close()
    await far.ended.wait()
    server.close()
    return far.data == content, far.events, near.events[-1]


async def closing_flushes_and_aborting_does_not_wait() -> object:
    server, near, far = await connected()
    near.transport.write(b"last")
    near.transport.close()
    closing = near.transport.is_closing()
    near.transport.close()
    await far.ended.wait()
    await near.ended.wait()
    other_server, other_near, other_far = await connected()
    other_near.transport.abort()
    await other_near.ended.wait()
    await other_far.ended.wait()
    server.close()
    other_server.close()
    return closing, far.data, far.events, near.events, other_near.events, other_far.events


async def a_half_closed_connection_carries_an_answer() -> object:
    server, near, far = await connected(lambda: Story(stays_open=True))
    near.transport.write(b"question")
    near.transport.write_eof()
    await asyncio.sleep(0.05)
    far.transport.write(b"answer")
    far.transport.close()
    await near.ended.wait()
    await far.ended.wait()
    server.close()
    return near.data, near.events, far.data, far.events


async def a_reader_that_pauses_holds_the_writer_back() -> object:
    server, near, far = await connected()
    far.transport.pause_reading()
    near.transport.set_write_buffer_limits(high=1_000)
    near.transport.write(bytes(20_000_000))
    await asyncio.sleep(0.2)
    seen: list[object] = [near.transport.get_write_buffer_size() > 1_000, len(far.data), far.transport.is_reading()]
    far.transport.resume_reading()
    while len(far.data) < 20_000_000:
        await asyncio.sleep(0.05)
    await asyncio.sleep(0.05)
    seen += [near.transport.get_write_buffer_size(), near.transport.get_write_buffer_limits()]
    near.transport.close()
    await far.ended.wait()
    server.close()
    return seen, near.events[:3]


async def a_paused_reader_does_not_learn_of_the_end() -> object:
    server, near, far = await connected()
    far.transport.pause_reading()
    near.transport.write(b"unread")
    near.transport.close()
    await asyncio.sleep(0.1)
    before = list(far.events)
    far.transport.resume_reading()
    await far.ended.wait()
    server.close()
    return before, far.data, far.events


async def writing_to_a_closed_peer_breaks_the_connection() -> object:
    server, near, far = await connected(lambda: Story(stays_open=True))
    near.transport.close()
    await near.ended.wait()
    await asyncio.sleep(0.05)
    for _ in range(3):
        far.transport.write(b"anybody?")
        await asyncio.sleep(0.05)
    lost = far.ended.is_set()
    far.transport.abort()
    server.close()
    return lost


async def a_server_that_listens_no_more() -> object:
    server, near, far = await connected()
    port = server.sockets[0].getsockname()[1]
    server.close()
    await asyncio.sleep(0.05)
    seen: list[object] = [server.is_serving(), list(far.events)]
    try:
        await asyncio.get_running_loop().create_connection(Story, HOST, port)
    except OSError as error:
        seen.append(type(error).__name__)
    near.transport.close()
    await far.ended.wait()
    return seen


async def a_port_is_taken_before_it_is_served() -> object:
    loop = asyncio.get_running_loop()
    server = await loop.create_server(Story, HOST, 0, start_serving=False)
    port = server.sockets[0].getsockname()[1]
    seen: list[object] = [server.is_serving()]
    try:
        await loop.create_connection(Story, HOST, port)
    except OSError as error:
        seen.append(type(error).__name__)
    await server.start_serving()
    _, near = await loop.create_connection(Story, HOST, port)
    seen += [server.is_serving(), near.events]
    near.transport.close()
    await near.ended.wait()
    server.close()
    await asyncio.sleep(0.05)
    return seen


PROGRAMS: list[Program] = [
    streams_echo_and_close,
    a_large_message_arrives_whole,
    closing_flushes_and_aborting_does_not_wait,
    a_half_closed_connection_carries_an_answer,
    a_reader_that_pauses_holds_the_writer_back,
    a_paused_reader_does_not_learn_of_the_end,
    writing_to_a_closed_peer_breaks_the_connection,
    a_server_that_listens_no_more,
    a_port_is_taken_before_it_is_served,
]


@pytest.mark.parametrize("program", PROGRAMS, ids=lambda program: program.__name__)
def test_connections_do_the_same_in_the_simulation_as_on_real_sockets(program: Program) -> None:
    with asyncio.Runner(loop_factory=asyncio.SelectorEventLoop) as runner:
        real = runner.run(program())
    for seed in range(5):
        with SimWorld(seed) as world:
            assert world.run_process(world.add_host("a"), program) == real
            assert world.unhandled() == []
