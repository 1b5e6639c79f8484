"""An event loop in a thread of its own, for code that is not asyncio: Spark calls readers and writers as plain
functions.

How it works: every process has at most one such loop, made when first needed and never before: Spark forks its
workers, and a thread does not live on in a fork. Clusters are kept with it, so the tasks of one worker share
connections.

Invariants:
SPK-5 A cluster is only used on the loop it was made on.
SPK-6 A fork starts with neither loop nor clusters, whatever its parent had.
"""

import asyncio
import concurrent.futures
import os
import threading
from collections.abc import Coroutine
from typing import Any, TypeVar

from martlet.base.addresses import parse_bootstrap
from martlet.client.cluster import Cluster
from martlet.client.errors import ClientError
from martlet.client.retrying import Retrying
from martlet.spark.connection_options import ConnectionOptions

T = TypeVar("T")


class BlockingLoop:
    """Runs coroutines for threads that wait for them. Lives as long as its process."""

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._clusters: dict[ConnectionOptions, Cluster] = {}
        self._connecting: dict[ConnectionOptions, asyncio.Lock] = {}
        threading.Thread(target=self._loop.run_forever, name="martlet-spark", daemon=True).start()

    def submit(self, work: Coroutine[Any, Any, T]) -> "concurrent.futures.Future[T]":
        """Start it; the future may be waited for or cancelled from any thread."""
        return asyncio.run_coroutine_threadsafe(work, self._loop)

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        """Wait for its result."""
        future = self.submit(work)
        try:
            return future.result()
        finally:
            # Spark interrupts a task that it no longer wants.
            future.cancel()

    async def cluster(self, connection: ConnectionOptions, *, first_contact_ms: int) -> Cluster:
        """The cluster at these addresses, reached within the time given; raises ConnectionFailed. On the loop only."""
        async with self._connecting.setdefault(connection, asyncio.Lock()):
            known = self._clusters.get(connection)
            if known is not None:
                return known
            made = Cluster(parse_bootstrap(connection.bootstrap), connection.client_options())
            retrying = Retrying(made.options, made.randomness, timeout_ms=first_contact_ms)
            while True:
                try:
                    await made.start()
                except ClientError as error:
                    await retrying.pause(error)
                else:
                    self._clusters[connection] = made
                    return made


_OF_PROCESS: dict[int, BlockingLoop] = {}


def loop_of_process() -> BlockingLoop:
    """The loop of this process (SPK-6)."""
    process = os.getpid()
    if process not in _OF_PROCESS:
        _OF_PROCESS.clear()
        _OF_PROCESS[process] = BlockingLoop()
    return _OF_PROCESS[process]
