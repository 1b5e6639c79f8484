"""One shard of a coordinator with what belongs to it: its machine, its log, and the topic updates it has not got yet.

Topic updates reach every shard. One that is being loaded, or whose log takes nothing at the moment, gets them later:
what a machine holds of a deleted topic must go, or it would be taken for that of a new topic of the same name.
"""

import asyncio
from collections.abc import Callable, Collection, Iterable
from functools import partial
from typing import Any, Generic, Protocol, TypeVar

from martlet.base.clock import Clock
from martlet.base.errors import ApiError
from martlet.broker.coordinators.shard_log import PartitionShardLog
from martlet.coordinator.ports import ShardHost
from martlet.coordinator.result import Machine, RecordCodec, RestatableMachine, Result
from martlet.coordinator.shard import RETRY_MS, Shard, ShardState

R = TypeVar("R")
S = TypeVar("S")


class HostedMachine(Machine[R], RestatableMachine[R], Protocol[R]):
    """A machine as a coordinator host needs it."""

    def topics_changed(self, changed: Collection[str], deleted: Collection[str], now_ms: int) -> Result[R]:
        """Topics were created or have grown (`changed`), or are gone (`deleted`)."""
        ...

    def topic_names(self) -> Iterable[str]:
        """The topics whose deletion the machine must learn of, also of one while it was not loaded anywhere."""
        ...


M = TypeVar("M", bound=HostedMachine[Any])


class HostedShard(Generic[M]):
    """Owned by a coordinator host."""

    def __init__(
        self, machine: M, log: PartitionShardLog, codec: RecordCodec[Any], clock: Clock, host: ShardHost
    ) -> None:
        self.machine = machine
        self.log = log
        self.codec = codec
        self.shard: Shard[Any] = Shard(log.name, machine, codec, log, clock, host)
        self._changed: set[str] = set()
        self._deleted: set[str] = set()
        self._retry: asyncio.TimerHandle | None = None

    @property
    def is_active(self) -> bool:
        return self.shard.state is ShardState.ACTIVE

    @property
    def has_ended(self) -> bool:
        """Whether it is closed, or its log is: it will never serve again."""
        return self.shard.state is ShardState.CLOSED or self.log.closed

    async def call(self, operation: Callable[[M, int], Result[Any, S | ApiError]]) -> S:
        """Run one operation of the machine and wait for its answer; raises ApiError."""
        future: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self.shard.submit(partial(operation, self.machine), partial(_resolve, future))
        response = await future
        if isinstance(response, ApiError):
            raise response
        answer: S = response
        return answer

    def topics_changed(self, changed: Collection[str], deleted: Collection[str]) -> None:
        """Topics were created or have grown, or are gone."""
        self._changed.update(changed)
        self._deleted.update(deleted)
        self.deliver_updates()

    def deliver_updates(self) -> None:
        """Give the machine the updates it has not got, if it serves."""
        self._retry = None
        if not self.is_active or not (self._changed or self._deleted):
            return
        changed, deleted = self._changed, self._deleted
        self._changed, self._deleted = set(), set()
        self.shard.submit(
            lambda now_ms: self.machine.topics_changed(sorted(changed), sorted(deleted), now_ms),
            partial(self._updates_applied, changed, deleted),
        )

    def close(self) -> None:
        """Serve no more."""
        if self._retry is not None:
            self._retry.cancel()
        self.shard.close()

    def _updates_applied(self, changed: set[str], deleted: set[str], response: object) -> None:
        if isinstance(response, ApiError) and self.is_active:
            self._changed |= changed
            self._deleted |= deleted
            if self._retry is None:
                self._retry = asyncio.get_running_loop().call_later(RETRY_MS / 1000, self.deliver_updates)


def _resolve(future: asyncio.Future[Any], response: object) -> None:
    if not future.done():  # the caller may have been cancelled
        future.set_result(response)
