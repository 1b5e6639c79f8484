"""The asyncio shell around log-backed machines: a shard for every partition of an internal topic led by this broker.

What a shard does is decided in `coordinator/` and by its machine. Here shards come and go with the metadata, are loaded
from their logs, are woken for their timers and notified of changed topics, and requests find theirs.

How a coordinator is added: its machine (`HostedMachine`) and `RecordCodec` in a pure package; one file here with its
`MachineKind`, its `InternalTopicSpec` and, when results have effects, an `EffectExecutor`, which does the work on tasks
of its own and reports each outcome once; `app.py` starts the host after the partition table and adds `follow` to the
metadata feed; handlers go through `call`. An effect may be started again by the next leader, so it must bear that.

Invariants:
HOST-1 There is a shard for every partition of the topic that this process leads, and no other.
HOST-2 One timer of the event loop stands for all timers of all shards, and is never later than the earliest of them.

Proved by: tests/unit/broker/coordinators/test_coordinator_host.py,
tests/unit/broker/coordinators/test_group_coordinator.py, tests/broker/test_group_apis.py
"""

import asyncio
import logging
from collections.abc import Callable, Coroutine, Sequence
from dataclasses import dataclass
from typing import Any, Final, Generic, TypeVar

from martlet.base.clock import Clock
from martlet.base.errors import ApiError, ErrorCode
from martlet.base.ids import BrokerId
from martlet.base.invariant import invariant
from martlet.broker.coordinators.hosted_shard import HostedMachine, HostedShard
from martlet.broker.coordinators.internal_topic import BATCH_BYTES_MAX, InternalTopic
from martlet.broker.coordinators.shard_loading import load_shard
from martlet.broker.coordinators.shard_log import PartitionShardLog
from martlet.broker.coordinators.shard_snapshots import take_snapshot
from martlet.broker.partitions.partition_table import PartitionTable
from martlet.cluster.image import ImageDelta
from martlet.coordinator.ports import EffectExecutor
from martlet.coordinator.result import RecordCodec, Result
from martlet.coordinator.snapshots import DEFAULT_SNAPSHOTS, SnapshotRule
from martlet.observe.metrics import NO_API, BrokerMetrics

logger = logging.getLogger(__name__)

M = TypeVar("M", bound=HostedMachine[Any])
S = TypeVar("S")

_TIMERS_PER_TURN: Final = 10
"""Of each shard, so that a thousand sessions that end together do not hold up all requests."""
_LOADS_AT_ONCE: Final = 2
_LONGEST_SLEEP_MS: Final = 3_600_000
_CHECK_INTERVAL_MS: Final = 1_000
"""How often shards are checked: whether those that should serve do."""
_RETRY_MS_MAX: Final = 60_000
"""The longest pause between two attempts to open one of them."""
_NAMED_MAX: Final = 5


@dataclass(frozen=True, slots=True)
class MachineKind(Generic[M]):
    """What a host must know of the machines it hosts."""

    served: str
    """What they serve, in the plural, for people: "groups"."""
    make_machine: Callable[[], M]
    """Called with the first shard: a broker that leads none starts sooner without the code of its machines."""
    make_codec: Callable[[], RecordCodec[Any]]
    on_stored: Callable[[Sequence[Any]], None] = lambda records: None
    """Sees the records of every result that were appended, and the volatile ones among them; for counting."""
    effects: EffectExecutor | None = None
    snapshots: SnapshotRule = DEFAULT_SNAPSHOTS
    are_deltas: bool = False
    """Whether records add to older ones of their key; their topic must not be compacted then."""


class CoordinatorHost(Generic[M]):
    """Owner of the shards; lives on the broker's event loop from `start` to `aclose`."""

    def __init__(
        self,
        kind: MachineKind[M],
        topic: InternalTopic,
        table: PartitionTable,
        clock: Clock,
        metrics: BrokerMetrics,
        fail: Callable[[BaseException], None],
    ) -> None:
        self._kind = kind
        self.topic = topic
        self._table = table
        self._clock = clock
        self._metrics = metrics
        self._fail = fail
        self._shards: dict[int, HostedShard[M]] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._snapshot: asyncio.Task[None] | None = None
        self._alarm: asyncio.TimerHandle | None = None
        self._alarm_at_ms = 0
        self._next_check: asyncio.TimerHandle | None = None
        self._attempts: dict[int, tuple[int, int]] = {}
        """Of shards that had ended: when to open each again, and how long to wait after that."""
        self._load_turn = asyncio.Semaphore(_LOADS_AT_ONCE)
        self._stopping: ApiError | None = None
        self._closed = False

    # --- requests

    async def call(self, key: str, operation: Callable[[M, int], Result[Any, S | ApiError]]) -> S:
        """Run one operation on the shard of a key and wait for its answer; raises ApiError."""
        await self.topic.ensure()
        hosted = self._shards.get(self.topic.partition_of(key))
        if hosted is None or not self._table.may_act():
            raise ApiError(ErrorCode.NOT_COORDINATOR, f"another broker coordinates {key[:100]!r}")
        return await hosted.call(operation)

    async def call_shard(self, index: int, operation: Callable[[M, int], Result[Any, S | ApiError]]) -> S:
        """The same on the shard of a partition."""
        hosted = self._shards.get(index)
        if hosted is None or not self._table.may_act():
            raise ApiError(ErrorCode.NOT_LEADER_OR_FOLLOWER, f"another broker leads {self.topic.name}-{index}")
        return await hosted.call(operation)

    async def call_all(self, operation: Callable[[M, int], Result[Any, S | ApiError]]) -> list[S]:
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

    async def coordinator_of(self, key: str) -> BrokerId:
        """The broker that coordinates a key; raises COORDINATOR_NOT_AVAILABLE while there is none."""
        await self.topic.ensure()
        index = self.topic.partition_of(key)
        leader = self.topic.leader_of(index)
        if leader is None:
            raise ApiError(ErrorCode.COORDINATOR_NOT_AVAILABLE, f"{self.topic.name}-{index} has no leader now")
        return leader

    def machine_of(self, key: str) -> M | None:
        """The machine of a key's shard, to be read only; None where it is not served here."""
        hosted = self._shards.get(self.topic.partition_of(key)) if self.topic.partition_count else None
        return hosted.machine if hosted is not None and hosted.is_active else None

    def machines(self) -> list[M]:
        """The machines of all shards that serve, to be read only."""
        return [hosted.machine for hosted in self._shards.values() if hosted.is_active]

    def unserved(self) -> list[int]:
        """The partitions led here that are not served and will not be by waiting."""
        if self._closed:
            return []
        indexes, name = range(self.topic.partition_count), self.topic.name
        return [index for index in indexes if not self._is_served(index) and self._table.leads(name, index)]

    def reason_not_ready(self) -> str:
        """Why some keys cannot be served, for people; empty when all can."""
        unserved = self.unserved()
        if not unserved:
            return ""
        named = ", ".join(f"{self.topic.name}-{index}" for index in unserved[:_NAMED_MAX])
        rest = f" and {len(unserved) - _NAMED_MAX} more" if len(unserved) > _NAMED_MAX else ""
        return f"{self._kind.served} are not served, those of {named}{rest}"

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
        """Open the shards led by this broker; those with a log are loaded in the background."""
        for index in range(self.topic.partition_count):
            self._follow_partition(index)
        self._check_later()

    def stop_parking(self) -> None:
        """The broker is about to stop: answer the parked requests, so that their connections can close."""
        self._stopping = ApiError(ErrorCode.NOT_COORDINATOR, "the broker is stopping")
        for hosted in self._shards.values():
            hosted.shard.stop_parking(self._stopping)

    async def aclose(self) -> None:
        """Drop every shard; what is in the logs is all there is to keep."""
        self._closed = True
        await self.topic.aclose()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        for index in tuple(self._shards):
            self._drop(index)
        for timer in (self._alarm, self._next_check):
            if timer is not None:
                timer.cancel()

    # --- following the metadata

    def follow(self, delta: ImageDelta) -> None:
        """A listener of the metadata feed, after the partition table."""
        if self._closed:
            return
        for change in delta.partitions:
            if change.topic == self.topic.name:
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
        """Have a shard, or none, as leadership wants (HOST-1)."""
        hosted = self._shards.get(index)
        is_led = self._table.leads(self.topic.name, index)
        if hosted is not None and (not is_led or hosted.log.closed):
            self._drop(index)
            hosted = None
        if hosted is None and is_led:
            self._open(index)

    def _open(self, index: int) -> None:
        kind, name = self._kind, self.topic.name
        log = PartitionShardLog(self._table, name, index, batch_bytes_max=BATCH_BYTES_MAX, snapshots=kind.snapshots)
        hosted = HostedShard(kind.make_machine(), log, kind.make_codec(), self._clock, self)
        self._shards[index] = hosted
        if self._stopping is not None:
            hosted.shard.stop_parking(self._stopping)
        if self._table.log_failed(name, index) or log.closed:
            reason = f"the log of {log.name} cannot be used"
            hosted.shard.close(ApiError(ErrorCode.COORDINATOR_NOT_AVAILABLE, reason))
        elif log.partition is None:
            hosted.shard.activate()
        else:
            self._run(self._load(hosted), f"martlet-load-{log.name}")

    def _drop(self, index: int) -> None:
        self._shards.pop(index).close()

    # --- once a second

    def _check_later(self) -> None:
        self._next_check = asyncio.get_running_loop().call_later(_CHECK_INTERVAL_MS / 1000, self._check)

    def _check(self) -> None:
        """Open again what should serve and does not, log when one that had ended serves; write snapshots."""
        self._check_later()
        self._take_snapshots()
        now_ms = self._clock.monotonic_ms()
        unserved = self.unserved()
        for index in unserved:
            at_ms, pause_ms = self._attempts.get(index, (now_ms, _CHECK_INTERVAL_MS))
            if at_ms <= now_ms:
                self._attempts[index] = (now_ms + pause_ms, min(2 * pause_ms, _RETRY_MS_MAX))
                self._open_again(index)
        for index in [index for index in self._attempts if index not in unserved]:
            hosted = self._shards.get(index)
            if hosted is None or hosted.is_active:  # else it is being loaded, and that may fail
                del self._attempts[index]
                if hosted is not None:
                    logger.warning("the %s of %s are served again", self._kind.served, hosted.shard.name)

    def _take_snapshots(self) -> None:
        """Begin with one that is due, if none is being written."""
        if self._snapshot is None or self._snapshot.done():
            due = next((one for one in self._shards.values() if one.is_active and one.log.growth.is_due), None)
            if due is not None:
                self._snapshot = self._run(take_snapshot(due), f"martlet-snapshot-{due.log.name}")

    def _open_again(self, index: int) -> None:
        hosted = self._shards.get(index)
        reason = "there is no shard" if hosted is None else hosted.shard.closed_with or "its leadership is over"
        name, served = self.topic.name, self._kind.served
        logger.error("%s-%d is led here and its %s are not served, trying again: %s", name, index, served, reason)
        if hosted is not None:
            self._drop(index)
        self._open(index)

    # --- loading

    async def _load(self, hosted: HostedShard[M]) -> None:
        started_at_ms = self._clock.monotonic_ms()
        are_deltas = self._kind.are_deltas
        count = await load_shard(hosted.shard, hosted.log, hosted.codec, self._load_turn, are_deltas=are_deltas)
        elapsed_ms = self._clock.monotonic_ms() - started_at_ms
        if hosted.is_active:
            self._metrics.coordinator_load_seconds.observe(elapsed_ms / 1000)
            level = logging.INFO if count else logging.DEBUG
            logger.log(level, "%s is loaded: %d records replayed in %d ms", hosted.shard.name, count, elapsed_ms)
            missing = {name for name in hosted.machine.topic_names() if not self.topic.has_topic(name)}
            hosted.topics_changed((), missing)  # deleted while the shard was led by no broker; and what came meanwhile

    def _run(self, work: Coroutine[Any, Any, None], name: str) -> asyncio.Task[None]:
        task = asyncio.create_task(work, name=name)
        self._tasks.add(task)
        task.add_done_callback(self._ended)
        return task

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            self._fail(error)

    # --- the host of every shard

    def wake_at(self, at_ms: int) -> None:
        """See to it that `_fire_due` runs by then (HOST-2)."""
        if self._alarm is not None:
            if at_ms >= self._alarm_at_ms:
                return
            self._alarm.cancel()
        self._alarm_at_ms = at_ms
        delay_ms = min(max(0, at_ms - self._clock.monotonic_ms()), _LONGEST_SLEEP_MS)
        self._alarm = asyncio.get_running_loop().call_later(delay_ms / 1000, self._fire_due)

    def stored(self, records: Sequence[Any]) -> None:
        self._kind.on_stored(records)

    def start_effect(self, effect: object, done: Callable[[object], None]) -> None:
        executor = self._kind.effects
        invariant(executor is not None, "a machine with effects has an executor")
        if executor is not None:
            executor.start_effect(effect, done)

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
