"""The unchanged broker as a process of a simulated world: it starts, answers, stops and is missed by its clients."""

import asyncio
from functools import partial

import pytest
from sim.host import SimHost
from sim.simulated_broker import KAFKA_PORT, StopRequest, broker_settings, run_broker
from sim.world import SimWorld

from martlet.base.addresses import Address
from martlet.client.cluster import Cluster
from martlet.client.options import ClientOptions
from martlet.client.producer import Producer
from martlet.cluster.store import StoreUnavailable

OPTIONS = ClientOptions(connect_timeout_ms=2_000, request_timeout_ms=3_000)


async def ask(host: str, port: int, path: str) -> str:
    """One HTTP request; returns status line and body."""
    reader, writer = await asyncio.open_connection(host, port)
    writer.write(f"GET {path} HTTP/1.1\r\nHost: {host}\r\n\r\n".encode())
    answer = (await reader.read()).decode()
    writer.close()
    return answer.partition("\r\n")[0] + answer.rpartition("\r\n\r\n")[2].strip()


async def publish(host: SimHost, count: int) -> list[int]:
    """Publish numbered messages and return their offsets."""
    async with (
        Cluster([Address("broker", KAFKA_PORT)], OPTIONS, host.randomness) as cluster,
        Producer(cluster, clock=host.clock) as producer,
    ):
        deliveries = [await producer.send("t", b"%d" % number) for number in range(count)]
        return [(await delivery).offset for delivery in deliveries]


def test_a_broker_answers_on_both_its_ports_and_stops_when_asked() -> None:
    with SimWorld(1) as world:
        broker, client = world.add_host("broker"), world.add_host("client")
        request = StopRequest(broker)
        broker.start(partial(run_broker, broker, broker_settings(broker), request))
        world.run_for(1_000)
        assert world.run_process(client, lambda: ask("broker", 9644, "/readyz")) == "HTTP/1.1 200 OKready"
        assert world.run_process(client, lambda: publish(client, 10)) == list(range(10))
        assert "martlet_partitions" in world.run_process(client, lambda: ask("broker", 9644, "/metrics"))
        request.send()
        world.run_until(lambda: not broker.is_running, 15_000)
        with pytest.raises(ConnectionRefusedError):
            world.run_process(client, lambda: ask("broker", 9644, "/healthz"))
        assert world.unhandled() == []


def test_offsets_go_on_where_they_were_over_restarts_of_every_kind() -> None:
    with SimWorld(2) as world:
        broker, client = world.add_host("broker"), world.add_host("client")
        request = StopRequest(broker)
        for round_ in range(4):
            broker.start(partial(run_broker, broker, broker_settings(broker), request))
            world.run_for(3_000)
            offsets = world.run_process(client, lambda: publish(client, 5))
            assert offsets == list(range(5 * round_, 5 * round_ + 5))
            if round_ == 0:
                request.send()
                world.run_until(lambda: not broker.is_running, 15_000)
            else:
                broker.crash(power_loss=round_ == 2)


def test_a_broker_that_cannot_reach_its_store_says_so_instead_of_waiting_for_ever() -> None:
    with SimWorld(3) as world:
        broker = world.add_host("broker")
        world.store_server.stop()
        with pytest.raises(StoreUnavailable):
            world.run_process(broker, partial(run_broker, broker, broker_settings(broker)), 60_000)


def test_a_stopped_broker_is_waited_for_and_goes_on_where_it_was() -> None:
    with SimWorld(4) as world:
        broker, client = world.add_host("broker"), world.add_host("client")
        broker.start(partial(run_broker, broker, broker_settings(broker)))
        world.run_for(1_000)

        async def publish_around_a_pause() -> list[int]:
            async with (
                Cluster([Address("broker", KAFKA_PORT)], OPTIONS, client.randomness) as cluster,
                Producer(cluster, clock=client.clock) as producer,
            ):
                before = await (await producer.send("t", b"before"))
                broker.pause(20_000)
                after = await (await producer.send("t", b"after"))
                return [before.offset, after.offset]

        assert world.run_process(client, publish_around_a_pause, 120_000) == [0, 1]
        assert world.now_ms > 20_000
