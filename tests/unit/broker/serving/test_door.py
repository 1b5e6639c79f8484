"""A broker that its cluster goes on without sends its clients away, and takes them again when it is back."""

import asyncio
import contextlib
import logging
import socket
from collections.abc import Callable
from typing import Any, Self, cast

import pytest
import uvloop
from sim.remote_store import STORE_NAME
from sim.simulated_broker import KAFKA_PORT
from sim.world import SimWorld

from martlet.base.addresses import Address
from martlet.base.clock import SystemClock
from martlet.broker.ground.listeners import ListenerOptions, configured_listeners
from martlet.broker.ground.settings import BrokerSettings
from martlet.broker.partitions.topic_settings import static_configs
from martlet.broker.serving.dispatch import Dispatcher
from martlet.broker.serving.door import Door
from martlet.broker.serving.server import KafkaServer, bind, bind_all
from martlet.configs.effective import BrokerLayers, effective_broker_config
from martlet.observe.metrics import BrokerMetrics, DropReason
from tests.unit.broker.serving.test_connection import ScriptedDispatcher
from tests.unit.broker.simulated_members import LEASE_MS, SimMember, start_members

AWAY_MS = 1_000
"""From the end of the lease until no client is left; others can have taken over not much before."""


class Visitor:
    """A client that connects whenever it is not connected."""

    def __init__(self, world: SimWorld, member: SimMember) -> None:
        self.is_connected = False
        self.visits = 0
        self.refusals = 0
        self._member = member
        world.add_host(f"visitor of {member.number}").start(self._main)
        world.run_until(lambda: self.is_connected, 1_000)

    async def _main(self) -> None:
        while True:
            try:
                reader, writer = await asyncio.open_connection(self._member.host.name, KAFKA_PORT)
            except ConnectionError:
                self.refusals += 1
                await asyncio.sleep(0.1)
                continue
            self.is_connected = True
            self.visits += 1
            with contextlib.suppress(ConnectionError):
                await reader.read()
            self.is_connected = False
            writer.close()


def shut_out(world: SimWorld, member: SimMember) -> None:
    """Cut it off from the store and wait until it has acted on it."""
    world.network.cut(member.host.name, STORE_NAME)
    world.run_until(lambda: not member.may_act(), LEASE_MS)
    world.run_for(AWAY_MS)


def test_a_broker_that_lost_its_cluster_is_left_by_its_clients_until_it_is_back(
    caplog: pytest.LogCaptureFixture,
) -> None:
    with SimWorld(1) as world, caplog.at_level(logging.WARNING):
        member, other = start_members(world, 2)
        visitor, others_visitor = Visitor(world, member), Visitor(world, other)
        shut_out(world, member)
        assert not visitor.is_connected
        assert visitor.refusals > 0, "no other connection is taken meanwhile"
        world.run_for(20_000)
        assert visitor.visits == 1
        assert member.app is not None
        assert "lost touch" in member.app.readiness()[1]
        world.network.heal(member.host.name, STORE_NAME)
        world.run_until(lambda: visitor.is_connected, 10_000)
        assert member.may_act()
        assert (others_visitor.visits, others_visitor.is_connected) == (1, True)
        assert member.services.metrics.connections_dropped[DropReason.LOST_CLUSTER] > 0
        assert other.services.metrics.connections_dropped[DropReason.LOST_CLUSTER] == 0
        messages = [record.getMessage() for record in caplog.records if record.name.endswith(".door")]
        assert len(messages) == 2
        assert "connections are closed and no others taken" in messages[0]
        assert "clients are welcome again" in messages[1]


def test_a_broker_that_is_alone_keeps_its_clients_though_it_may_not_act() -> None:
    with SimWorld(2) as world:
        (member,) = start_members(world, 1)
        visitor = Visitor(world, member)
        shut_out(world, member)
        world.run_for(20_000)
        assert not member.may_act()
        assert (visitor.visits, visitor.is_connected) == (1, True)


def test_a_broker_stops_cleanly_while_it_is_shut() -> None:
    with SimWorld(4) as world:
        member, _ = start_members(world, 2)
        shut_out(world, member)
        member.stop()
        assert member.stopped_cleanly


class RealDoor:
    """A door with a real server on a free port."""

    def __init__(self) -> None:
        self.is_lost = False
        self.failures: list[BaseException] = []
        self.place = bind(Address("127.0.0.1", 0))
        self.port: int = self.place.getsockname()[1]
        dispatcher = ScriptedDispatcher()
        self.metrics: BrokerMetrics = dispatcher.metrics
        settings = BrokerSettings()
        static = static_configs(settings, configured_listeners(settings), log_directory="")
        config = effective_broker_config(BrokerLayers(static=static))
        self.server = KafkaServer(settings, cast(Dispatcher, dispatcher), SystemClock(), lambda: config, 100)
        listener = ListenerOptions("kafka", Address("127.0.0.1", self.port))
        self.door = Door(self.server, lambda: bind_all([listener], bind), lambda: self.is_lost, self.failures.append)

    async def __aenter__(self) -> Self:
        await self.door.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.door.aclose()
        await self.server.aclose(1_000)
        self.place.close()

    async def is_open(self) -> bool:
        try:
            _, writer = await asyncio.open_connection("127.0.0.1", self.port)
        except ConnectionError:  # refused, or reset because the door was just shutting
            return False
        writer.close()
        return True

    async def until(self, is_open: bool) -> None:
        async with asyncio.timeout(10):
            while await self.is_open() is not is_open:
                await asyncio.sleep(0.02)


loops = pytest.mark.parametrize("new_loop", [asyncio.new_event_loop, uvloop.new_event_loop], ids=["asyncio", "uvloop"])


@loops
def test_a_shut_broker_keeps_its_port_and_has_it_again(new_loop: Callable[[], asyncio.AbstractEventLoop]) -> None:
    async def shut_and_open() -> None:
        async with RealDoor() as real:
            for _ in range(2):
                reader, writer = await asyncio.open_connection("127.0.0.1", real.port)
                real.is_lost = True
                assert await reader.read() == b"", "the connection is closed"
                writer.close()
                await real.until(is_open=False)
                with socket.socket() as stranger, pytest.raises(OSError, match="in use"):
                    stranger.bind(("127.0.0.1", real.port))
                real.is_lost = False
                await real.until(is_open=True)
            assert real.metrics.connections_dropped[DropReason.LOST_CLUSTER] == 2
            assert real.failures == []

    run(shut_and_open, new_loop)


def test_a_moment_without_the_lease_sends_no_client_away() -> None:
    async def be_lost_now_and_then() -> None:
        async with RealDoor() as real:
            reader, writer = await asyncio.open_connection("127.0.0.1", real.port)
            for _ in range(4):
                real.is_lost = True
                await asyncio.sleep(0.3)
                real.is_lost = False
                await asyncio.sleep(0.3)
            assert not reader.at_eof()
            writer.close()

    run(be_lost_now_and_then, asyncio.new_event_loop)


@loops
def test_a_port_that_was_taken_meanwhile_is_waited_for(
    new_loop: Callable[[], asyncio.AbstractEventLoop], caplog: pytest.LogCaptureFixture
) -> None:
    async def wait_for_it() -> None:
        async with RealDoor() as real:
            real.is_lost = True
            await real.until(is_open=False)
            with bind(Address("127.0.0.1", real.port)) as stranger:
                stranger.listen()
                real.is_lost = False
                async with asyncio.timeout(10):
                    while "takes no clients" not in caplog.text:
                        await asyncio.sleep(0.02)
                await asyncio.sleep(0.6)
            await real.until(is_open=True)
            assert real.failures == []

    run(wait_for_it, new_loop)
    messages = [record.getMessage() for record in caplog.records if "takes no clients" in record.getMessage()]
    assert len(messages) == 1, "it is said once, however often it is tried"


def run(work: Callable[[], Any], new_loop: Callable[[], asyncio.AbstractEventLoop]) -> None:
    with asyncio.Runner(loop_factory=new_loop) as runner:
        runner.run(asyncio.wait_for(work(), 30))
