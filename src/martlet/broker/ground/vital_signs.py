"""Whether this broker is in a state to serve: its event loop turns and its disk answers.

A lease that is renewed in the background would outlive a broker that does nothing any more. So the renewal asks
here first (see `lease_keeper.py`): the loop shows that it turns by a tick now and then, the disk by a small write that
is synced. A disk that is full still answers; one that fails ends the broker. A broker that is alone in its cluster
keeps its lease in any case: no broker could do better.

Proved by: tests/unit/broker/membership/test_lease_keeper.py, tests/unit/broker/membership/test_membership.py
"""

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Final

from martlet.base.clock import Clock
from martlet.base.disk import Disk
from martlet.base.errors import DiskFull, StorageFailure

PROBE_FILE: Final = "martlet.probe"

_TICKS_PER_LEASE: Final = 4
_PROBES_PER_LEASE: Final = 2
_DISK_LEASES_MAX: Final = 2
_DISK_MS_MIN: Final = 10_000
"""A disk may take longer than an event loop: flushes of others stand before ours."""


class VitalSigns:
    """Written on the event loop, read in the background; lives from `start` to `aclose`."""

    def __init__(
        self, clock: Clock, disk: Disk, directory: str, lease_ms: int, on_failure: Callable[[BaseException], None]
    ) -> None:
        self._clock = clock
        self._disk = disk
        self._path = f"{directory}/{PROBE_FILE}"
        self._lease_ms = lease_ms
        self._on_failure = on_failure
        self._worker = ThreadPoolExecutor(1, thread_name_prefix="martlet-disk-probe")
        self._loop_seen_ms = clock.monotonic_ms()
        self._disk_asked_ms: int | None = None
        self._tasks: list[asyncio.Task[None]] = []
        self.is_alone = True
        """Whether no other broker is alive."""

    def start(self) -> None:
        self._loop_seen_ms = self._clock.monotonic_ms()
        self._tasks = [
            asyncio.create_task(self._tick(), name="martlet-loop-tick"),
            asyncio.create_task(self._probe(), name="martlet-disk-probe"),
        ]

    async def aclose(self) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        # Not waited for: it may hang in a disk that does not answer.
        self._worker.shutdown(wait=False)

    def complaint(self, now_ms: int) -> str:
        """What is wrong, for an operator; empty while all is well."""
        if self.is_alone:
            return ""
        if now_ms - self._loop_seen_ms > self._lease_ms:
            return f"the event loop has not turned for {now_ms - self._loop_seen_ms} ms"
        asked_ms = self._disk_asked_ms
        if asked_ms is not None and now_ms - asked_ms > max(self._lease_ms * _DISK_LEASES_MAX, _DISK_MS_MIN):
            return f"the disk has not answered for {now_ms - asked_ms} ms"
        return ""

    async def _tick(self) -> None:
        while True:
            self._loop_seen_ms = self._clock.monotonic_ms()
            await asyncio.sleep(self._lease_ms / _TICKS_PER_LEASE / 1000)

    async def _probe(self) -> None:
        loop = asyncio.get_running_loop()
        while True:
            await asyncio.sleep(self._lease_ms / _PROBES_PER_LEASE / 1000)
            if self.is_alone:
                continue
            self._disk_asked_ms = self._clock.monotonic_ms()
            try:
                await loop.run_in_executor(self._worker, self._touch)
            except DiskFull:
                pass  # housekeeping sees to it
            except StorageFailure as failure:
                self._on_failure(failure)
                return
            self._disk_asked_ms = None

    def _touch(self) -> None:
        file = self._disk.open(self._path, create=True)
        try:
            file.pwrite(b"martlet\n", 0)
            file.sync()
        finally:
            file.close()
