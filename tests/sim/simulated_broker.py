"""Today's broker inside a simulated world: what it still takes from the real machine is put in its place here.

Every entry of `simulated_parts` stands for a port that the broker lacks; when it has it, the entry goes.
"""

import asyncio
import contextlib
from collections.abc import Callable, Iterator
from concurrent.futures import Executor, Future
from typing import Any, cast

import pytest

from martlet.base.randomness import Randomness
from martlet.broker import app as broker_app
from martlet.broker import flusher
from martlet.broker.app import BrokerApp
from martlet.broker.metadata_feed import MetadataFeed
from martlet.broker.request import Address
from martlet.broker.settings import BrokerSettings
from martlet.cluster.image import MetadataImage
from martlet.testing.sim_host import SimHost
from martlet.testing.sim_loop import SimLoop
from martlet.testing.sim_server import SimServerSocket
from martlet.testing.sim_world import SimWorld

KAFKA_PORT = 9092


class SimPool(Executor):
    """Stands in for a thread pool whose `submit` is called directly: work of the running simulated loop."""

    def __init__(self, *args: object, **options: object) -> None:
        """As many workers as anybody likes."""

    def submit(self, fn: Callable[..., Any], /, *args: Any, **options: Any) -> Future[Any]:
        asyncio.get_running_loop().run_in_executor(None, lambda: fn(*args, **options))
        return Future()

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        """Nothing to wait for."""


class NoLock:
    """A machine runs one process in these tests."""

    def __init__(self, directory: str) -> None: ...

    def acquire(self) -> None: ...

    def release(self) -> None: ...


class SimulatedBroker(BrokerApp):
    """A broker whose metadata store is across the simulated network."""

    def __init__(self, host: SimHost, settings: BrokerSettings) -> None:
        super().__init__(settings, clock=host.clock, disk=host.disk)
        self._host = host

    async def _follow_store(self) -> Any:
        store = self._host.store()
        self._stack.push_async_callback(store.close)
        image = MetadataImage()
        feed = MetadataFeed(store, image, on_failure=self.fail)
        await feed.start()
        self._stack.push_async_callback(feed.aclose)
        return image, feed, store


@contextlib.contextmanager
def simulated_parts(world: SimWorld) -> Iterator[None]:
    """Put the missing ports in place while a world runs."""

    def running_host() -> SimHost:
        return world.hosts[cast(SimLoop, asyncio.get_running_loop()).name]

    def bind(address: Address) -> SimServerSocket:
        return running_host().network.bind(address.host, address.port)

    def randomness() -> Randomness:
        return running_host().randomness

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(broker_app, "bind", bind)
        patch.setattr(broker_app, "DirectoryLock", NoLock)
        patch.setattr(broker_app, "SystemRandomness", randomness)
        patch.setattr(flusher, "ThreadPoolExecutor", SimPool)
        yield


def broker_settings(host: SimHost, **changes: Any) -> BrokerSettings:
    """Settings for a broker on that host."""
    return BrokerSettings(data="/data", kafka=f"{host.name}:{KAFKA_PORT}", operations=f"{host.name}:9644", **changes)


class StopRequest:
    """What SIGTERM is to a real process: whoever runs the broker waits for it."""

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
    app = SimulatedBroker(host, settings)
    await app.start()
    endings: list[asyncio.Task[Any]] = [asyncio.create_task(app.wait_failed())]
    if request is not None:
        endings.append(asyncio.create_task(request.wait()))
    await asyncio.wait(endings, return_when=asyncio.FIRST_COMPLETED)
    await app.stop()
