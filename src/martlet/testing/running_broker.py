"""A real broker for tests: in this process, on a free port, in a background thread with an event loop of its own.

    with RunningBroker() as broker:
        producer = Producer({"bootstrap.servers": broker.bootstrap_servers})

Nothing is faked: real sockets, a real log in a temporary directory, real metadata. Every setting of `BrokerSettings`
can be given as a keyword. Only the defaults differ from a server's: free ports, data that is gone afterwards, and
groups that assign partitions to their first member at once instead of waiting for others.
"""

import asyncio
import contextlib
import dataclasses
import shutil
import tempfile
import threading
from collections.abc import Coroutine, Iterator
from types import TracebackType
from typing import Any, Final, Self, TypeVar

from martlet.broker.app import BrokerApp, new_event_loop
from martlet.broker.ground.settings import BrokerSettings

T = TypeVar("T")

_STOP_SECONDS: Final = 90


class RunningBroker:
    """A broker between `start` and `stop`; also a context manager."""

    def __init__(self, **settings: Any) -> None:
        self._own_directory: str | None = None
        if "data" not in settings:
            self._own_directory = tempfile.mkdtemp(prefix="martlet-test-")
            settings["data"] = self._own_directory
        settings.setdefault("kafka", "127.0.0.1:0")
        settings.setdefault("operations", "127.0.0.1:0")
        settings.setdefault("group_initial_rebalance_delay_ms", 0)
        self.settings = BrokerSettings(**settings)
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None
        self._app: BrokerApp | None = None

    @property
    def app(self) -> BrokerApp:
        """The broker itself; touch it only through `run`."""
        if self._app is None:
            raise RuntimeError("the broker is not running")
        return self._app

    @property
    def bootstrap_servers(self) -> str:
        """Where Kafka clients connect."""
        return str(self.app.kafka_address)

    @property
    def operations_url(self) -> str:
        """Where /healthz, /readyz and /metrics are."""
        return f"http://{self.app.operations_address}"

    def start(self) -> Self:
        """Return when clients can connect; raises what kept the broker from starting."""
        self._loop = new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="martlet-broker", daemon=True)
        self._thread.start()
        self._app = BrokerApp(self.settings)
        try:
            self.run(self._app.start())
        except BaseException:
            self._end_loop()
            raise
        return self

    def stop(self) -> None:
        """Stop cleanly and remove the data if it was temporary."""
        if self._app is not None and self._loop is not None:
            self.run(self._app.stop())
            self._app = None
            self._end_loop()
        if self._own_directory is not None:
            shutil.rmtree(self._own_directory, ignore_errors=True)

    def restart(self) -> None:
        """Stop cleanly and start again on the same data and ports."""
        listeners = self.app.listeners.all
        if self.settings.listeners:
            named = ",".join(f"{one.name}={one.protocol.value}://{one.address}" for one in listeners)
            settings = dataclasses.replace(self.settings, listeners=named)
        else:
            settings = dataclasses.replace(self.settings, kafka=str(listeners[0].address))
        own, self._own_directory = self._own_directory, None
        self.stop()
        self._own_directory = own
        self.settings = settings
        self.start()

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        """Run a coroutine on the broker's event loop and wait for its result."""
        if self._loop is None:
            work.close()
            raise RuntimeError("the broker is not running")
        future = asyncio.run_coroutine_threadsafe(work, self._loop)
        try:
            return future.result(_STOP_SECONDS)
        except TimeoutError:
            if future.done():
                raise
            raise TimeoutError(f"not done after {_STOP_SECONDS} s; {_under_way(self._loop)}") from None

    def _end_loop(self) -> None:
        loop, thread = self._loop, self._thread
        self._loop = self._thread = None
        if loop is not None and thread is not None:
            with contextlib.suppress(TimeoutError):
                asyncio.run_coroutine_threadsafe(loop.shutdown_default_executor(), loop).result(_STOP_SECONDS)
            loop.call_soon_threadsafe(loop.stop)
            thread.join(_STOP_SECONDS)
            loop.close()

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()


def _under_way(loop: asyncio.AbstractEventLoop) -> str:
    """What the tasks of a loop wait for, innermost call last."""
    tasks = sorted(asyncio.all_tasks(loop), key=lambda task: task.get_name())
    return "; ".join(f"{task.get_name()} at {' > '.join(_places(task.get_coro()))}" for task in tasks)


def _places(waiting: object) -> Iterator[str]:
    while (frame := getattr(waiting, "cr_frame", None)) is not None:
        yield f"{frame.f_code.co_qualname}:{frame.f_lineno}"
        waiting = getattr(waiting, "cr_await", None)
