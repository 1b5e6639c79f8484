"""Sends a group member's heartbeats in the background, whenever the membership says that one is due.

Rules: only this task calls `heartbeat`, `answered`, `refused` and `unanswered` of the membership; who changes the
membership otherwise calls `reschedule` afterwards.
"""

import asyncio
import contextlib
from collections.abc import Iterator

from martlet.base.errors import ApiError
from martlet.client.apis import CONSUMER_GROUP_HEARTBEAT
from martlet.client.cluster import Cluster
from martlet.client.consumer.membership import Membership, MemberState
from martlet.client.errors import ClientError
from martlet.client.groups import Groups
from martlet.wire.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest


class Heartbeats:
    """Between `start` and `stop`; ends by itself when the membership does."""

    def __init__(self, cluster: Cluster, groups: Groups, group_id: str, membership: Membership) -> None:
        self._cluster = cluster
        self._groups = groups
        self._group_id = group_id
        self._membership = membership
        self._changed = asyncio.Event()
        self._waiters: set[asyncio.Future[None]] = set()
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        self._task = asyncio.create_task(self._run(), name="martlet-group-heartbeats")

    async def stop(self) -> None:
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)

    def reschedule(self) -> None:
        """The membership has changed: the next heartbeat may be due at another time."""
        self._changed.set()

    def check(self) -> None:
        """Raise what ended the task, if anything did."""
        if self._task is None:
            raise RuntimeError("the consumer was not started")
        if self._task.done():
            self._task.result()

    @contextlib.contextmanager
    def wake_up(self) -> Iterator["asyncio.Future[None]"]:
        """A future that is done when the next heartbeat has been answered."""
        wake: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiters.add(wake)
        try:
            yield wake
        finally:
            self._waiters.discard(wake)

    async def answered(self) -> None:
        """Wait until the next heartbeat has been answered."""
        self.check()
        with self.wake_up() as wake:
            await wake
        self.check()

    async def _run(self) -> None:
        try:
            while self._membership.state not in (MemberState.LEFT, MemberState.FAILED):
                self._changed.clear()
                due_ms = self._membership.due_at_ms()
                pause_s = None if due_ms is None else (due_ms - now_ms()) / 1000
                if pause_s is None or pause_s > 0:
                    with contextlib.suppress(TimeoutError):
                        async with asyncio.timeout(pause_s):
                            await self._changed.wait()
                    continue
                request = self._membership.heartbeat(now_ms())
                if request is not None:
                    await self._send(request)
                self._wake_all()
        finally:
            self._wake_all()

    async def _send(self, request: ConsumerGroupHeartbeatRequest) -> None:
        try:
            connection = await self._groups.coordinator(self._group_id)
            response = await connection.call(CONSUMER_GROUP_HEARTBEAT, request)
        except ApiError as error:
            self._membership.refused(error, now_ms())
        except ClientError:
            self._membership.unanswered(now_ms())
        else:
            self._membership.answered(response, now_ms())
        if self._membership.coordinator_lost:
            self._membership.coordinator_lost = False
            self._groups.forget_coordinator(self._group_id)
            with contextlib.suppress(ApiError, ClientError):
                await self._cluster.refresh(())

    def _wake_all(self) -> None:
        for waiter in self._waiters:
            complete(waiter)


def complete(future: "asyncio.Future[None]") -> None:
    if not future.done():
        future.set_result(None)


def now_ms() -> float:
    return asyncio.get_running_loop().time() * 1000
