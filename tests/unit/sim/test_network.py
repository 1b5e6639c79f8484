"""The simulated network: bytes in order whatever happens, and every fault does what a real one does."""

import asyncio
import contextlib
import socket
from collections.abc import Callable, Coroutine
from typing import Any, cast

import pytest
from sim.host import SimHost
from sim.world import SimTimeout, SimWorld

PORT = 7000


class Recorder(asyncio.Protocol):
    """Keeps what happens to one end of a connection."""

    def __init__(self) -> None:
        self.transport: asyncio.Transport
        self.data = b""
        self.events: list[str] = []
        self.lost = False
        self.error: Exception | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self.transport = transport
        self.events.append("made")

    def data_received(self, data: bytes) -> None:
        self.data += data
        self.events.append("data")

    def eof_received(self) -> bool:
        self.events.append("end")
        return False

    def connection_lost(self, exc: Exception | None) -> None:
        self.lost, self.error = True, exc
        self.events.append("lost")

    def pause_writing(self) -> None:
        self.events.append("pause")

    def resume_writing(self) -> None:
        self.events.append("resume")


class BufferedRecorder(asyncio.BufferedProtocol):
    """Receives into a buffer of its own, a few bytes at a time."""

    def __init__(self, size: int) -> None:
        self._buffer = bytearray(size)
        self.data = b""

    def get_buffer(self, sizehint: int) -> bytearray:
        return self._buffer

    def buffer_updated(self, nbytes: int) -> None:
        self.data += self._buffer[:nbytes]


class Pair:
    """A server and a client host in one world, with one connection between them."""

    def __init__(self, world: SimWorld, make_server_end: Callable[[], Any] = Recorder) -> None:
        self.world = world
        self.server = world.add_host("server")
        self.client = world.add_host("client")
        self.accepted: list[Any] = []
        self.connected: list[Recorder] = []
        self.failures: list[OSError] = []
        self._make_server_end = make_server_end
        self.server.start(self.serve)
        self.client.start(self.connect)
        world.run_for(100)

    async def serve(self) -> None:
        def accept() -> Any:
            self.accepted.append(self._make_server_end())
            return self.accepted[-1]

        await asyncio.get_running_loop().create_server(accept, "server", PORT)
        await asyncio.Event().wait()

    async def connect(self) -> None:
        try:
            _, protocol = await asyncio.get_running_loop().create_connection(Recorder, "server", PORT)
            self.connected.append(protocol)
        except OSError as error:
            self.failures.append(error)
        await asyncio.Event().wait()

    @property
    def near(self) -> Recorder:
        return self.connected[0]

    @property
    def far(self) -> Any:
        return self.accepted[0]

    def in_client(self, action: Callable[[], object]) -> None:
        """Have the client's process do something."""
        assert self.client.loop is not None
        self.client.loop.call_soon(action)

    def client_writes(self, data: bytes) -> None:
        self.in_client(lambda: self.near.transport.write(data))

    def in_server(self, action: Callable[[], object]) -> None:
        assert self.server.loop is not None
        self.server.loop.call_soon(action)


@pytest.fixture
def world() -> Any:
    with SimWorld("network") as made:
        yield made


def connecting(world: SimWorld, host: SimHost, name: str, port: int) -> Coroutine[Any, Any, object]:
    async def connect() -> object:
        return await asyncio.get_running_loop().create_connection(Recorder, name, port)

    return connect()


@pytest.mark.parametrize("seed", range(10))
def test_bytes_arrive_in_order_however_they_are_cut_up(seed: int) -> None:
    content = bytes(range(256)) * 4_000
    with SimWorld(seed) as world:
        pair = Pair(world)
        for start in range(0, len(content), 9_999):
            pair.client_writes(content[start : start + 9_999])
        world.run_until(lambda: len(pair.far.data) == len(content))
        assert pair.far.data == content


def test_a_buffered_protocol_gets_its_bytes_through_its_buffer(world: SimWorld) -> None:
    pair = Pair(world, lambda: BufferedRecorder(7))
    pair.in_client(lambda: pair.near.transport.writelines([b"one ", bytearray(b"two "), memoryview(b"three")]))
    world.run_for(100)
    assert pair.far.data == b"one two three"


def test_both_ends_know_their_names(world: SimWorld) -> None:
    pair = Pair(world)
    assert pair.near.transport.get_extra_info("peername") == ("server", PORT)
    assert pair.far.transport.get_extra_info("peername") == pair.near.transport.get_extra_info("sockname")


def test_a_port_without_listener_refuses_and_an_unknown_name_is_not_found(world: SimWorld) -> None:
    host = world.add_host("a")
    with pytest.raises(ConnectionRefusedError):
        world.run_process(host, lambda: connecting(world, host, "a", 1))
    with pytest.raises(OSError, match="no simulated machine"):
        world.run_process(host, lambda: connecting(world, host, "nowhere", 1))


def test_a_port_can_be_listened_on_only_once_and_only_on_a_machine_of_ones_own(world: SimWorld) -> None:
    host = world.add_host("a")

    async def listen() -> None:
        # As with SO_REUSEADDR: several may hold the port while none listens.
        first, second = host.network.bind("a", 5), host.network.bind("a", 5)
        server = await asyncio.get_running_loop().create_server(Recorder, sock=cast(socket.socket, second))
        with pytest.raises(OSError, match="already in use"):
            host.network.bind("0.0.0.0", 5)
        server.close()
        first.close()
        host.network.bind("0.0.0.0", 5)

    world.run_process(host, listen)
    with pytest.raises(OSError, match="cannot assign"):
        host.network.bind("b", 6)


def test_a_bound_port_refuses_until_it_is_served(world: SimWorld) -> None:
    server, client = world.add_host("server"), world.add_host("client")

    async def serve() -> None:
        made = await asyncio.get_running_loop().create_server(Recorder, "server", PORT, start_serving=False)
        await asyncio.sleep(1)
        await made.start_serving()
        await asyncio.Event().wait()

    server.start(serve)
    with pytest.raises(ConnectionRefusedError):
        world.run_process(client, lambda: connecting(world, client, "server", PORT))
    world.run_for(1_000)
    assert world.run_process(client, lambda: connecting(world, client, "server", PORT))


def test_a_refused_port_answers_as_if_none_listened(world: SimWorld) -> None:
    world.network.refuse("server", PORT)
    pair = Pair(world)
    assert isinstance(pair.failures[0], ConnectionRefusedError)


def test_an_orderly_close_says_so_to_the_other_side_after_all_bytes(world: SimWorld) -> None:
    pair = Pair(world)

    def say_goodbye() -> None:
        pair.near.transport.write(b"last words")
        pair.near.transport.close()

    pair.in_client(say_goodbye)
    world.run_for(100)
    assert (pair.far.data, pair.far.lost, pair.far.error) == (b"last words", True, None)
    assert pair.far.events[-2:] == ["end", "lost"]
    assert (pair.near.lost, pair.near.error) == (True, None)


def test_closing_with_bytes_unread_resets_the_connection(world: SimWorld) -> None:
    pair = Pair(world)
    pair.in_server(lambda: pair.far.transport.pause_reading())
    world.run_for(10)
    pair.client_writes(b"unread")
    world.run_for(100)
    pair.in_server(lambda: pair.far.transport.abort())
    world.run_for(100)
    assert isinstance(pair.near.error, ConnectionResetError)


def test_a_half_closed_connection_still_carries_the_other_direction(world: SimWorld) -> None:
    class Answering(Recorder):
        def eof_received(self) -> bool:
            self.transport.write(b"answer to " + self.data)
            self.transport.close()
            return True

    pair = Pair(world, Answering)

    def ask() -> None:
        pair.near.transport.write(b"question")
        pair.near.transport.write_eof()

    pair.in_client(ask)
    world.run_for(100)
    assert (pair.near.data, pair.near.error) == (b"answer to question", None)
    assert pair.near.lost


def test_a_paused_reader_holds_the_writer_back_and_loses_nothing(world: SimWorld) -> None:
    pair = Pair(world)
    content = bytes(1_000_000)
    pair.in_server(lambda: pair.far.transport.pause_reading())
    pair.client_writes(content)
    world.run_for(1_000)
    assert pair.near.events[-1] == "pause"
    assert pair.near.transport.get_write_buffer_size() > 500_000
    assert pair.far.data == b""
    pair.in_server(lambda: pair.far.transport.resume_reading())
    world.run_until(lambda: len(pair.far.data) == len(content))
    world.run_for(100)
    assert pair.near.events[-1] == "resume"
    assert pair.near.transport.get_write_buffer_size() == 0


@pytest.mark.parametrize("way", [("client", "server"), ("server", "client")])
def test_a_one_way_cut_stops_one_direction_only_until_it_heals(world: SimWorld, way: tuple[str, str]) -> None:
    pair = Pair(world)
    world.network.cut_one_way(*way)
    pair.client_writes(b"there")
    pair.in_server(lambda: pair.far.transport.write(b"back"))
    world.run_for(5_000)
    reached = (pair.far.data, pair.near.data)
    assert reached == ((b"", b"back") if way[0] == "client" else (b"there", b""))
    world.network.heal("client", "server")
    world.run_for(5_000)
    assert (pair.far.data, pair.near.data) == (b"there", b"back")


@pytest.mark.parametrize("seed", range(20))
def test_what_is_sent_during_a_cut_arrives_once_and_in_order_after_it(seed: int) -> None:
    with SimWorld(seed) as world:
        pair = Pair(world)
        words = [b"%d," % number for number in range(30)]
        for number, word in enumerate(words):
            pair.client_writes(word)
            if number % 10 == 3:
                world.network.cut("client", "server")
            if number % 10 == 8:
                world.network.heal_all()
            world.run_for(world.workload.below(300))
        world.run_for(10_000)
        assert pair.far.data == b"".join(words)


def test_connecting_over_a_cut_link_hangs_and_succeeds_after_it() -> None:
    with SimWorld(1) as world:
        world.add_host("other")
        world.network.add_machine("server")
        world.network.cut_one_way("server", "client")
        pair = Pair(world)
        world.run_for(20_000)
        assert (pair.connected, pair.failures, pair.accepted) == ([], [], [])
        world.network.heal_all()
        world.run_for(10_000)
        assert pair.connected


def test_the_kernel_gives_up_on_a_connection_that_stays_cut(world: SimWorld) -> None:
    pair = Pair(world)
    world.network.cut("client", "server")
    pair.client_writes(b"anybody?")
    world.run_for(300_000)
    assert isinstance(pair.near.error, TimeoutError)
    assert not pair.far.lost


def test_a_connection_attempt_ends_with_the_kernels_patience(world: SimWorld) -> None:
    world.network.add_machine("server")
    world.network.cut("client", "server")
    pair = Pair(world)
    world.run_for(300_000)
    assert isinstance(pair.failures[0], TimeoutError)


def test_a_cancelled_attempt_leaves_no_connection(world: SimWorld) -> None:
    server, client = world.add_host("server"), world.add_host("client")
    accepted: list[Recorder] = []

    async def serve() -> None:
        def accept() -> Recorder:
            accepted.append(Recorder())
            return accepted[-1]

        await asyncio.get_running_loop().create_server(accept, "server", PORT)
        await asyncio.Event().wait()

    async def hurry(patience_ms: int) -> None:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(patience_ms / 1000):
                await asyncio.get_running_loop().create_connection(Recorder, "server", PORT)
                await asyncio.Event().wait()
        await asyncio.sleep(5)

    server.start(serve)
    world.run_for(100)
    for patience_ms in range(10):
        world.run_process(client, lambda patience_ms=patience_ms: hurry(patience_ms))  # type: ignore[misc]
    world.run_for(1_000)
    assert accepted
    assert all(end.lost for end in accepted)


def test_a_reset_breaks_both_ends(world: SimWorld) -> None:
    pair = Pair(world)
    world.network.reset("client", "server")
    world.run_for(10)
    assert isinstance(pair.near.error, ConnectionResetError)
    assert isinstance(pair.far.error, ConnectionResetError)


def test_a_drip_brings_few_bytes_at_a_time(world: SimWorld) -> None:
    pair = Pair(world)
    world.network.slow_drip("client", "server", 3, interval_ms=100)
    pair.client_writes(bytes(30))
    world.run_for(500)
    assert 0 < len(pair.far.data) < 30
    world.run_for(1_000)
    assert len(pair.far.data) == 30
    assert pair.far.events.count("data") == 10


def test_a_killed_process_ends_its_connections_towards_the_others(world: SimWorld) -> None:
    pair = Pair(world)
    pair.server.crash(power_loss=False)
    world.run_for(100)
    assert (pair.near.lost, pair.near.error) == (True, None)
    assert not pair.far.lost, "nothing runs in a killed process"


def test_a_machine_without_power_leaves_its_peers_waiting_until_it_is_back(world: SimWorld) -> None:
    pair = Pair(world)
    pair.server.crash(power_loss=True)
    pair.client_writes(b"still there?")
    world.run_for(30_000)
    assert not pair.near.lost
    pair.server.start(pair.serve)
    world.run_for(5_000)
    assert isinstance(pair.near.error, ConnectionResetError)


def test_a_half_open_connection_is_found_out_by_sending(world: SimWorld) -> None:
    pair = Pair(world)
    pair.server.crash(power_loss=True)
    world.run_for(1_000)
    pair.server.start(pair.serve)
    world.run_for(60_000)
    assert not pair.near.lost, "who sends nothing learns nothing"
    pair.client_writes(b"still there?")
    world.run_for(1_000)
    assert isinstance(pair.near.error, ConnectionResetError)


def test_connecting_to_a_machine_without_power_hangs_until_it_is_back(world: SimWorld) -> None:
    pair = Pair(world)
    pair.server.crash(power_loss=True)
    pair.client.crash(power_loss=False)
    pair.client.start(pair.connect)
    world.run_for(10_000)
    assert len(pair.connected) == 1
    pair.server.start(pair.serve)
    world.run_for(5_000)
    assert len(pair.connected) == 2


def test_a_stopped_process_is_connected_to_and_sent_to_by_its_kernel(world: SimWorld) -> None:
    pair = Pair(world)
    pair.server.pause(5_000)
    pair.client_writes(b"hello")
    world.run_for(1_000)
    assert pair.far.data == b""
    world.run_for(5_000)
    assert pair.far.data == b"hello"


def test_a_protocol_that_raises_loses_its_connection_and_is_reported(world: SimWorld) -> None:
    class Clumsy(Recorder):
        def data_received(self, data: bytes) -> None:
            raise ValueError("dropped it")

    pair = Pair(world, Clumsy)
    pair.client_writes(b"catch")
    world.run_for(100)
    assert pair.far.lost
    assert pair.near.lost
    assert any("dropped it" in line for line in world.unhandled())


def test_waiting_too_long_names_who_waits(world: SimWorld) -> None:
    Pair(world)
    with pytest.raises(SimTimeout, match=r"client/main at Pair\.connect:\d+ > Event\.wait"):
        world.run_until(lambda: False, 1_000)
