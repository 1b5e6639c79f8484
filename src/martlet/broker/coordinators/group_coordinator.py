"""The asyncio shell around the groups machine: a shard for every partition of `__consumer_offsets` led by this broker.

What a shard does is decided in `coordinator/` and `groups/`. Here shards come and go with the metadata, are loaded from
their logs, are woken for their timers and told of changed topics, and requests find theirs.

Invariants: (G1) there is a shard for every partition of the offsets topic that this process leads, and no other;
(G2) one timer of the event loop stands for all timers of all shards, and is never later than the earliest of them.

Proved by: tests/unit/broker/test_group_coordinator.py, tests/broker/test_group_apis.py
"""

import asyncio
import logging
from collections.abc import Callable
from typing import TYPE_CHECKING, Final, TypeVar

from martlet.base.clock import Clock
from martlet.base.errors import ApiError, ErrorCode, InvariantViolation
from martlet.base.ids import BrokerId
from martlet.broker.coordinators.hosted_shard import HostedShard
from martlet.broker.coordinators.offsets_topic import BATCH_BYTES_MAX, OffsetsTopic
from martlet.broker.coordinators.shard_loading import load_shard
from martlet.broker.coordinators.shard_log import PartitionShardLog
from martlet.broker.partitions.partition_table import PartitionTable
from martlet.cluster.image import ImageDelta
from martlet.coordinator.result import RecordCodec, Result
from martlet.observe.metrics import NO_API, BrokerMetrics

if TYPE_CHECKING:
    from martlet.groups.machine import GroupsMachine

logger = logging.getLogger(__name__)

S = TypeVar("S")

_TIMERS_PER_TURN: Final = 10
"""Of each shard, so that a thousand sessions that end together do not hold up everybody else."""
_LOADS_AT_ONCE: Final = 2
_LONGEST_SLEEP_MS: Final = 3_600_000
_LOOK_MS: Final = 1_000
"""How often shards that should serve are looked for that do not."""
_RETRY_MS_MAX: Final = 60_000
"""The longest pause between two attempts to take one of them up."""
_NAMED_MAX: Final = 5


class GroupCoordinator:
    """Owner of the shards; lives on the broker's event loop from `start` to `aclose`."""

    def __init__(
        self,
        topic: OffsetsTopic,
        table: PartitionTable,
        make_machine: "Callable[[], GroupsMachine]",
        clock: Clock,
        metrics: BrokerMetrics,
        fail: Callable[[BaseException], None],
    ) -> None:
        self._topic = topic
        self._table = table
        self._make_machine = make_machine
        self._clock = clock
        self._metrics = metrics
        self._fail = fail
        self._shards: dict[int, HostedShard] = {}
        self._loading: set[asyncio.Task[None]] = set()
        self._alarm: asyncio.TimerHandle | None = None
        self._alarm_at_ms = 0
        self._next_look: asyncio.TimerHandle | None = None
        self._attempts: dict[int, tuple[int, int]] = {}
        """Of shards that had ended: when to take each up again, and how long to wait after that."""
        self._load_turn = asyncio.Semaphore(_LOADS_AT_ONCE)
        self._stopping: ApiError | None = None
        self._closed = False

    # --- requests

    async def call(self, group_id: str, operation: "Callable[[GroupsMachine, int], Result[object, S]]") -> S:
        """Run one operation on the shard of a group and wait for its answer; raises ApiError."""
        await self._topic.ensure()
        index = self._topic.partition_of(group_id)
        hosted = self._shards.get(index)
        if hosted is None or not self._table.may_act():
            raise ApiError(ErrorCode.NOT_COORDINATOR, f"the coordinator of group {group_id[:100]!r} is another broker")
        return await hosted.call(operation)

    async def call_all(self, operation: "Callable[[GroupsMachine, int], Result[object, S]]") -> list[S]:
        """Run one operation on every shard of this broker, one after another; raises the first ApiError."""
        responses = []
        for hosted in tuple(self._shards.values()):
            try:
                responses.append(await hosted.call(operation))
            except ApiError as error:
                if error.code is ErrorCode.NOT_COORDINATOR:
                    continue  # it went to another broker meanwhile, which will be asked as well
                raise
            await asyncio.sleep(0)
        return responses

    async def coordinator_of(self, group_id: str) -> BrokerId:
        """The broker that coordinates a group; raises COORDINATOR_NOT_AVAILABLE while there is none."""
        await self._topic.ensure()
        leader = self._topic.leader_of(self._topic.partition_of(group_id))
        if leader is None:
            raise ApiError(ErrorCode.COORDINATOR_NOT_AVAILABLE, "the group's partition has no leader at the moment")
        return leader

    def machines(self) -> "list[GroupsMachine]":
        """The machines of all shards that serve, to be read only."""
        return [hosted.machine for hosted in self._shards.values() if hosted.is_active]

    def unserved(self) -> list[int]:
        """The partitions led here whose groups are not served and will not be by waiting."""
        if self._closed:
            return []
        indexes, name = range(self._topic.partition_count), self._topic.name
        return [index for index in indexes if not self._is_served(index) and self._table.leads(name, index)]

    def reason_not_ready(self) -> str:
        """Why some groups cannot be served, for people; empty when all can."""
        unserved = self.unserved()
        if not unserved:
            return ""
        named = ", ".join(f"{self._topic.name}-{index}" for index in unserved[:_NAMED_MAX])
        rest = f" and {len(unserved) - _NAMED_MAX} more" if len(unserved) > _NAMED_MAX else ""
        return f"groups are not served, those of {named}{rest}"

    def _is_served(self, index: int) -> bool:
        """Whether there is a shard that answers, or will when it is loaded."""
        hosted = self._shards.get(index)
        return hosted is not None and not hosted.has_ended

    @property
    def waiting_count(self) -> int:
        """Requests parked now."""
        return sum(hosted.shard.waiting_count for hosted in self._shards.values())

    # --- life

    def start(self) -> None:
        """Take up the partitions led by this broker; those with a log are loaded in the background."""
        for index in range(self._topic.partition_count):
            self._follow_partition(index)
        self._look_later()

    def stop_parking(self) -> None:
        """The broker is about to stop: answer those who wait for others, so that their connections can close."""
        self._stopping = ApiError(ErrorCode.NOT_COORDINATOR, "the broker is stopping")
        for hosted in self._shards.values():
            hosted.shard.stop_parking(self._stopping)

    async def aclose(self) -> None:
        """Drop every shard; what is in the logs is all there is to keep."""
        self._closed = True
        await self._topic.aclose()
        for task in self._loading:
            task.cancel()
        await asyncio.gather(*self._loading, return_exceptions=True)
        for index in tuple(self._shards):
            self._drop(index)
        for timer in (self._alarm, self._next_look):
            if timer is not None:
                timer.cancel()

    # --- following the metadata

    def follow(self, delta: ImageDelta) -> None:
        """A listener of the metadata feed, after the partition table."""
        if self._closed:
            return
        for change in delta.partitions:
            if change.topic == self._topic.name:
                record = change.after or change.before
                if record is not None:
                    self._follow_partition(record.partition)
        deleted = [topic.name for topic in delta.topics_deleted]
        grown = [
            after.name for before, after in delta.topics_changed if before.partition_count != after.partition_count
        ]
        changed = [*grown, *(topic.name for topic in delta.topics_created)]
        if changed or deleted:
            for hosted in tuple(self._shards.values()):
                hosted.topics_changed(changed, deleted)

    def _follow_partition(self, index: int) -> None:
        """Have a shard, or none, as leadership wants (G1)."""
        name = self._topic.name
        hosted = self._shards.get(index)
        is_led = self._table.leads(name, index)
        if hosted is not None and (not is_led or hosted.log.closed):
            self._drop(index)
            hosted = None
        if hosted is None and is_led:
            self._take_up(index)

    def _take_up(self, index: int) -> None:
        log = PartitionShardLog(self._table, self._topic.name, index, batch_bytes_max=BATCH_BYTES_MAX)
        hosted = HostedShard(index, self._make_machine(), log, self._codec(), self._clock, self)
        self._shards[index] = hosted
        if self._stopping is not None:
            hosted.shard.stop_parking(self._stopping)
        if self._table.log_failed(self._topic.name, index) or log.closed:
            reason = f"the log of {log.name} cannot be used"
            hosted.shard.close(ApiError(ErrorCode.COORDINATOR_NOT_AVAILABLE, reason))
        elif log.partition is None:
            hosted.shard.activate()
        else:
            task = asyncio.create_task(self._load(hosted), name=f"martlet-load-{log.name}")
            self._loading.add(task)
            task.add_done_callback(self._loaded)

    def _drop(self, index: int) -> None:
        self._shards.pop(index).close()

    # --- what has ended and should not have

    def _look_later(self) -> None:
        self._next_look = asyncio.get_running_loop().call_later(_LOOK_MS / 1000, self._look)

    def _look(self) -> None:
        """Take up again what should serve and does not; say when one that had ended serves."""
        self._look_later()
        now_ms = self._clock.monotonic_ms()
        unserved = self.unserved()
        for index in unserved:
            at_ms, pause_ms = self._attempts.get(index, (now_ms, _LOOK_MS))
            if at_ms <= now_ms:
                self._attempts[index] = (now_ms + pause_ms, min(2 * pause_ms, _RETRY_MS_MAX))
                self._take_up_again(index)
        for index in [index for index in self._attempts if index not in unserved]:
            hosted = self._shards.get(index)
            if hosted is None or hosted.is_active:  # else it is being loaded, and that may fail
                del self._attempts[index]
                if hosted is not None:
                    logger.warning("the groups of %s are served again", hosted.shard.name)

    def _take_up_again(self, index: int) -> None:
        hosted = self._shards.get(index)
        reason = "there is no shard" if hosted is None else hosted.shard.closed_with or "its leadership is over"
        name = self._topic.name
        logger.error("%s-%d is led here and its groups are not served, trying again: %s", name, index, reason)
        if hosted is not None:
            self._drop(index)
        self._take_up(index)

    def _codec(self) -> RecordCodec[object]:
        # With the first shard: a broker without groups starts sooner without all that belongs to them.
        from martlet.broker.coordinators.group_codec import CountingCodec

        return CountingCodec(self._metrics)

    # --- loading

    async def _load(self, hosted: HostedShard) -> None:
        started_at_ms = self._clock.monotonic_ms()
        count = await load_shard(hosted.shard, hosted.log, self._codec(), self._load_turn)
        elapsed_ms = self._clock.monotonic_ms() - started_at_ms
        if hosted.is_active:
            self._metrics.coordinator_load_seconds.observe(elapsed_ms / 1000)
            level = logging.INFO if count else logging.DEBUG
            logger.log(level, "%s is loaded: %d records replayed in %d ms", hosted.shard.name, count, elapsed_ms)
            self._forget_missing_topics(hosted)
            hosted.deliver_news()

    def _loaded(self, task: "asyncio.Task[None]") -> None:
        self._loading.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            self._fail(error)

    def _forget_missing_topics(self, hosted: HostedShard) -> None:
        """A topic may have been deleted when nobody led this shard."""
        topics = {topic for _, topic, _, _ in hosted.machine.committed_offsets()}
        missing = [topic for topic in topics if not self._topic.has_topic(topic)]
        if missing:
            hosted.topics_changed((), missing)

    # --- timers: the host of every shard

    def wake_at(self, at_ms: int) -> None:
        """See to it that `_fire_due` runs by then (G2)."""
        if self._alarm is not None:
            if at_ms >= self._alarm_at_ms:
                return
            self._alarm.cancel()
        self._alarm_at_ms = at_ms
        delay_ms = min(max(0, at_ms - self._clock.monotonic_ms()), _LONGEST_SLEEP_MS)
        self._alarm = asyncio.get_running_loop().call_later(delay_ms / 1000, self._fire_due)

    def start_effect(self, effect: object, done: Callable[[object], None]) -> None:
        raise InvariantViolation("groups have no effects")

    def failed(self, error: BaseException) -> None:
        """Something in a machine that must always be true is not."""
        self._metrics.count_errors(NO_API, (ErrorCode.UNKNOWN_SERVER_ERROR,))
        self._fail(error)

    def _fire_due(self) -> None:
        self._alarm = None
        now_ms = self._clock.monotonic_ms()
        for hosted in tuple(self._shards.values()):
            at_ms = hosted.shard.next_timer_at_ms()
            if at_ms is None:
                continue
            if at_ms <= now_ms:
                hosted.shard.fire_due(_TIMERS_PER_TURN)
            else:
                self.wake_at(at_ms)
