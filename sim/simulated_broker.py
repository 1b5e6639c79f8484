"""The broker inside a simulated world: its ports are those of a simulated machine, everything else is as it is."""

import asyncio
import contextlib
import socket
from typing import Any, Final, cast

from martlet.base.addresses import Address
from martlet.base.clock import Clock
from martlet.base.ids import TopicPartition
from martlet.broker.app import BrokerApp
from martlet.broker.ground.ports import BrokerPorts
from martlet.broker.ground.settings import BrokerSettings
from martlet.cluster.store import MetaStore
from sim.host import SimHost
from sim.threads import LoopWorkers, run_as_task

KAFKA_PORT: Final = 9092
_FILES_ALLOWED: Final = 20_000


def simulated_ports(host: SimHost) -> BrokerPorts:
    """What the broker of this machine takes from it."""

    async def open_store(settings: BrokerSettings, clock: Clock) -> MetaStore:
        return host.store()

    def bind(address: Address) -> socket.socket:
        return cast(socket.socket, host.network.bind(address.host, address.port))

    return BrokerPorts(
        clock=host.clock,
        disk=host.disk,
        randomness=host.randomness,
        open_store=open_store,
        run_in_background=run_as_task,
        make_workers=LoopWorkers,
        host_name=lambda: host.name,
        bind=bind,
        # A machine runs one process in these tests.
        hold_directory=lambda path: contextlib.nullcontext(),
        allow_files=lambda: _FILES_ALLOWED,
    )


def broker_settings(host: SimHost, **changes: Any) -> BrokerSettings:
    """Settings for a broker on that host."""
    return BrokerSettings(data="/data", kafka=f"{host.name}:{KAFKA_PORT}", operations=f"{host.name}:9644", **changes)


def log_directory(broker: int, partition: TopicPartition) -> str:
    """Where a broker keeps its replica of a partition."""
    return f"/data/broker-{broker}/{partition}"


class StopRequest:
    """What SIGTERM is to a real process: the code that runs the broker waits for it."""

    def __init__(self, host: SimHost) -> None:
        self._host = host
        self._wanted: asyncio.Event | None = None

    async def wait(self) -> None:
        self._wanted = asyncio.Event()
        await self._wanted.wait()

    def send(self) -> None:
        """Ask the process that runs now, if one does, to stop cleanly."""
        if self._host.is_running and self._host.loop is not None and self._wanted is not None:
            self._host.loop.call_soon(self._wanted.set)


async def run_broker(host: SimHost, settings: BrokerSettings, request: StopRequest | None = None) -> None:
    """The main function of a broker's process: serve until it fails or is asked to stop."""
    app = BrokerApp(settings, simulated_ports(host))
    await app.start()
    endings: list[asyncio.Task[Any]] = [asyncio.create_task(app.wait_failed())]
    if request is not None:
        endings.append(asyncio.create_task(request.wait()))
    await asyncio.wait(endings, return_when=asyncio.FIRST_COMPLETED)
    await app.stop()
