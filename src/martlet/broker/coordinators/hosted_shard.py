"""One shard of the group coordinator with what belongs to it: its machine, its log, and the news it has not taken yet.

News of topics reaches every shard. One that is being loaded, or whose log takes nothing at the moment, gets it later:
a deleted topic's offsets must go, or they would be taken for those of a new topic of the same name.
"""

import asyncio
from collections.abc import Callable, Collection
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

from martlet.base.clock import Clock
from martlet.base.errors import ApiError
from martlet.broker.coordinators.shard_log import PartitionShardLog
from martlet.coordinator.ports import ShardHost
from martlet.coordinator.result import RecordCodec, Result
from martlet.coordinator.shard import RETRY_MS, Shard, ShardState

if TYPE_CHECKING:
    from martlet.groups.machine import GroupsMachine

S = TypeVar("S")


class HostedShard:
    """Owned by the group coordinator."""

    def __init__(
        self,
        index: int,
        machine: "GroupsMachine",
        log: PartitionShardLog,
        codec: RecordCodec[object],
        clock: Clock,
        host: ShardHost,
    ) -> None:
        self.index = index
        self.machine = machine
        self.log = log
        self.shard: Shard[object] = Shard(log.name, machine, codec, log, clock, host)
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

    async def call(self, operation: "Callable[[GroupsMachine, int], Result[object, S]]") -> S:
        """Run one operation of the machine and wait for its answer; raises ApiError."""
        future: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self.shard.submit(partial(operation, self.machine), partial(_settle, future))
        response = await future
        if isinstance(response, ApiError):
            raise response
        answer: S = response
        return answer

    def topics_changed(self, changed: Collection[str], deleted: Collection[str]) -> None:
        """Topics were made or have grown, or are gone."""
        self._changed.update(changed)
        self._deleted.update(deleted)
        self.deliver_news()

    def deliver_news(self) -> None:
        """Tell the machine what it does not know yet, if it can be told."""
        self._retry = None
        if not self.is_active or not (self._changed or self._deleted):
            return
        changed, deleted = self._changed, self._deleted
        self._changed, self._deleted = set(), set()
        self.shard.submit(
            lambda now_ms: self.machine.topics_changed(sorted(changed), sorted(deleted), now_ms),
            partial(self._news_taken, changed, deleted),
        )

    def close(self) -> None:
        """Serve nobody any more."""
        if self._retry is not None:
            self._retry.cancel()
        self.shard.close()

    def _news_taken(self, changed: set[str], deleted: set[str], response: object) -> None:
        if isinstance(response, ApiError) and self.is_active:
            self._changed |= changed
            self._deleted |= deleted
            if self._retry is None:
                self._retry = asyncio.get_running_loop().call_later(RETRY_MS / 1000, self.deliver_news)


def _settle(future: "asyncio.Future[Any]", response: object) -> None:
    if not future.done():  # whoever waited may have been cancelled
        future.set_result(response)
