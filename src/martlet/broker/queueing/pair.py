"""The queues of one partition on the broker that leads both it and its state log: loading, passes, what is committed.

How it works: whatever happens to a queue happens at once in memory and asks for a *pass*. A pass comes once per turn of
the event loop: it moves the queues' ends to what readers may see, appends all changes as one batch to the state log,
and wakes who waits for messages. What a holder has said is answered when that batch is committed. One timer stands for
everything that ends by time.

Rule: nothing is served before the whole state is loaded and committed, and nothing once either leadership is over.

Invariants:
QPA-1 a queue is served only while this process leads the data in the epoch, and the state in the epoch, in which it was
   loaded;
QPA-2 what is answered as settled is committed in the state log;
QPA-3 no two deliveries of a message have the same lease epoch and attempt: the epoch rises with either leadership.

Proved by: tests/unit/broker/queueing/test_queue_host.py, tests/sim/test_queues.py
"""

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Iterable
from typing import Final, NamedTuple, Protocol

from martlet.base.errors import ApiError, ErrorCode, StorageFailure
from martlet.base.ids import TopicId
from martlet.base.randomness import Randomness
from martlet.base.threads import Workers
from martlet.broker.coordinators.shard_log import PartitionShardLog
from martlet.broker.partitions.partition import Partition
from martlet.broker.queueing.message_looks import MessageLooks
from martlet.broker.queueing.message_reading import MessageReader
from martlet.broker.queueing.reasons import Reasons
from martlet.broker.queueing.state_loading import load_queues
from martlet.broker.queueing.subscription_settings import SubscriptionSettings, features_of
from martlet.cluster.records import SubscriptionRecord
from martlet.queues.delay_index import DelayIndex
from martlet.queues.engine import QueueEngine
from martlet.queues.partition_queues import PartitionQueues, SubscriptionDeadLetter

logger = logging.getLogger(__name__)

_RETRY_SECONDS: Final = 1.0
"""After a change could not be stored."""

_WALL_CLOCK_MS: Final = 1_000
"""How long at most what is due by the wall clock waits when that clock was set forward."""
Committed = asyncio.Future[None]


class PairHost(Protocol):
    """What a pair needs of the broker."""

    randomness: Randomness
    readers: Workers

    def now_ms(self) -> int: ...

    def wall_ms(self) -> int:
        """The wall clock, which may jump."""
        ...

    def check_acting(self) -> None: ...

    def settings_of(self, record: SubscriptionRecord) -> SubscriptionSettings: ...

    def subscriptions_of(self, topic: str) -> Iterable[SubscriptionRecord]: ...

    def dead_letters(self, pair: "QueuePair", letters: Iterable[SubscriptionDeadLetter]) -> None: ...

    def closed(self, pair: "QueuePair") -> None: ...


class _Batch(NamedTuple):
    """Changes on their way to being committed, and who waits for them."""

    next_offset: int
    waiting: list[Committed]


class Served(NamedTuple):
    """A subscription as it is served here."""

    record: SubscriptionRecord
    settings: SubscriptionSettings


class QueuePair:
    """Good for one leadership of both; owned by the host."""

    def __init__(self, host: PairHost, topic: str, topic_id: TopicId, data: Partition, log: PartitionShardLog) -> None:
        self.topic = topic
        self.topic_id = topic_id
        self.index = data.name.partition
        self.data = data
        self.log = log
        self.leader_epoch = data.leader_epoch
        self.reader = MessageReader(data, host.readers)
        self.looks = MessageLooks(data, host.readers, self.ask_for_pass)
        self.queues = PartitionQueues(topic_id, self.index, self._make_engine)
        self.served: dict[str, Served] = {}
        """By the id of the subscription."""
        self.is_loaded = False
        self.is_closed = False
        self._host = host
        self._pass_is_due = False
        self._waiting: list[Committed] = []
        """For the next batch."""
        self._batches: deque[_Batch] = deque()
        self._receivers: dict[str, dict[Callable[[], None], None]] = {}
        self._alarm: asyncio.TimerHandle | None = None
        self._alarm_at_ms = 0
        self._refuses = False
        self.reasons = Reasons()
        self._looked: object = None
        """The features of the topic as the queues have them."""

    # --- whether it serves

    @property
    def lease_epoch(self) -> int:
        """Of all leases given here (QPA-3): either leader epoch may rise alone, so it is the sum of both."""
        state = self.log.partition
        return self.leader_epoch + (state.leader_epoch if state is not None else 0)

    @property
    def has_ended(self) -> bool:
        """Whether either leadership is over, for good (QPA-1)."""
        data = self.data
        return (
            self.is_closed
            or self.log.closed
            or data.offline
            or data.leader is None
            or data.leader_epoch != self.leader_epoch
        )

    def check_served(self) -> None:
        """Raise unless it serves."""
        if self.has_ended:
            raise ApiError(ErrorCode.NOT_LEADER_OR_FOLLOWER, f"the queues of {self.data.name} are served elsewhere")
        if not self.is_loaded:
            raise ApiError(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, f"the queues of {self.data.name} are being loaded")
        self._host.check_acting()

    async def load(self) -> int:
        """Read the state and serve; how many records there were. Raises ApiError and StorageFailure."""
        partition = self.log.partition
        count = await load_queues(self.queues, self.log, partition) if partition is not None else 0
        if self.has_ended:
            return count
        self.is_loaded = True
        self.refresh()
        self._host.dead_letters(self, self.queues.loaded())
        self.data.watermarks.readers.add(self.ask_for_pass)
        self.ask_for_pass()
        return count

    def close(self) -> None:
        """Serve no more: those who wait find out."""
        if self.is_closed:
            return
        self.is_closed = True
        self.data.watermarks.readers.remove(self.ask_for_pass)
        if self._alarm is not None:
            self._alarm.cancel()
        over = ApiError(ErrorCode.NOT_LEADER_OR_FOLLOWER, f"the queues of {self.data.name} are served elsewhere")
        for waiting in (self._waiting, *(batch.waiting for batch in self._batches)):
            _fail(waiting, over)
        self._waiting, self._batches = [], deque()
        self.wake_all()
        self._host.closed(self)

    # --- its subscriptions

    def refresh(self) -> None:
        """Have a queue for each subscription of the topic with the settings of now, and none for others."""
        if not self.is_loaded:
            return
        wanted = {record.id: record for record in self._host.subscriptions_of(self.topic)}
        for name in [name for name, _ in self.queues if name not in wanted]:
            self.queues.remove(name)
            self._wake(name)
        for record in wanted.values():
            before, now = self.served.get(record.id), Served(record, self._host.settings_of(record))
            self.served[record.id] = now
            engine = self.queues.get(record.id)
            if engine is None:
                self.queues.add(record.id, self._start(now.settings))
                continue
            if before is None or before.settings.queue != now.settings.queue:
                engine.alter(now.settings.queue)
            if before is None or before.settings.look != now.settings.look or self._looked != self._look_key():
                engine.use(features_of(now.settings.look, self.data.features))
            if before is not None and before.record.is_paused != record.is_paused:
                self._wake(record.id)
        self._looked = self._look_key()
        self.served = {name: served for name, served in self.served.items() if name in wanted}
        self.ask_for_pass()

    def _make_engine(self, name: str) -> QueueEngine:
        known = {record.id: record for record in self._host.subscriptions_of(self.topic)}.get(name)
        record = known if known is not None else SubscriptionRecord("", name)
        settings = self._host.settings_of(record)
        features = features_of(settings.look, self.data.features)
        return QueueEngine(0, settings.queue, self._host.randomness, features)

    def _look_key(self) -> object:
        """What of the partition the queues' features depend on."""
        features = self.data.features
        return None if features is None else (features.topic.features, features.schedule is None)

    def _start(self, settings: SubscriptionSettings) -> int:
        """Where a new queue begins: what was published before its subscription was made does not belong to it."""
        log = self.data.log
        if settings.starts_at_ms is None:
            return log.log_start_offset
        end = self.data.high_watermark
        try:
            found = log.times_below(end).first_at(settings.starts_at_ms)
        except StorageFailure as failure:
            logger.error("the start of a queue of %s is not found by time: %s", self.data.name, failure)
            return log.log_start_offset
        return end if found is None else max(found.offset, log.log_start_offset)

    # --- passes

    def ask_for_pass(self) -> None:
        if not self._pass_is_due and not self.is_closed:
            self._pass_is_due = True
            asyncio.get_running_loop().call_soon(self._pass)

    def _pass(self) -> None:
        self._pass_is_due = False
        if self.has_ended:
            self.close()
            return
        if self.is_loaded:
            self.move_ends()
            self._look()
            self._store()
            for name in tuple(self._receivers):
                if self.is_deliverable(name):
                    self._wake(name)
            self.set_alarm()

    def move_ends(self) -> None:
        """What can be delivered ends where readers of now have to stop."""
        start = self.data.log.log_start_offset
        for name, engine in self.queues:
            served = self.served.get(name)
            if served is not None:
                engine.end = max(engine.end, self.data.watermarks.readable_end(served.settings.isolation))
            if engine.ledger.low_mark < start:
                engine.log_begins_at(start)
            engine.ledger.log_start = max(engine.ledger.log_start, start)

    def _look(self) -> None:
        """Show the queues their messages, where they look at them; what is missing of the schedule is read first."""
        features = self.data.features
        if features is not None and features.mend():
            self.ask_for_pass()
        for name, engine in self.queues:
            if engine.frontier is not None:
                self.look(name, engine)
        if features is not None and features.schedule is not None:
            self._forget_released(features.schedule)

    def look(self, name: str, engine: QueueEngine) -> None:
        served = self.served.get(name)
        if served is not None:
            wall_ms, now_ms = self._host.wall_ms(), self._host.now_ms()
            self.looks.step(name, engine, served.settings.isolation, wall_ms=wall_ms, now_ms=now_ms)

    def _forget_released(self, schedule: DelayIndex) -> None:
        """What every queue has had for good need not be kept in the schedule."""
        released = [engine.ledger.released_stored for _, engine in self.queues]
        if released and all(upto is not None for upto in released):
            schedule.forget(min(upto.due_ms for upto in released if upto is not None) - 1)

    def _store(self) -> None:
        """Append what has changed."""
        entries = self.queues.take()
        if not entries:
            if self._waiting and self._batches:
                self._batches[-1].waiting.extend(self._waiting)
            else:
                _resolve(self._waiting)
            self._waiting = []
            return
        try:
            next_offset = self.log.append(entries, self._host.now_ms())
        except ApiError as error:
            self._refused(error)
            return
        if self._refuses:
            self._refuses = False
            logger.info("the queues of %s can store changes again", self.data.name)
        self.queues.stored(next_offset - len(entries), next_offset)
        self._batches.append(_Batch(next_offset, self._waiting))
        self._waiting = []
        if not self.log.when_committed(next_offset, lambda: self._committed(next_offset)):
            self._committed(next_offset)

    def _refused(self, error: ApiError) -> None:
        self.queues.refused(self._host.now_ms())
        _fail(self._waiting, error)
        self._waiting = []
        if not self._refuses:  # one line, however often it is tried
            self._refuses = True
            logger.warning("the queues of %s cannot store changes: %s", self.data.name, error)
        asyncio.get_running_loop().call_later(_RETRY_SECONDS, self.ask_for_pass)

    def _committed(self, next_offset: int) -> None:
        """The state log is committed up to there, or the role has ended."""
        partition = self.log.partition
        if self.has_ended or partition is None or partition.high_watermark < next_offset:
            self.ask_for_pass()
            return
        letters = self.queues.committed(next_offset)
        while self._batches and self._batches[0].next_offset <= next_offset:
            _resolve(self._batches.popleft().waiting)
        if letters:
            self._host.dead_letters(self, letters)
        self._cut_log(partition)
        self.ask_for_pass()

    def _cut_log(self, partition: Partition) -> None:
        """What lies before every snapshot that counts is needless; only whole segments of it go."""
        needed = self.queues.needed_from
        if needed is None:
            return
        log = partition.log
        if needed > log.log_start_offset and needed >= log.segments.active.base_offset:
            log.advance_log_start(min(needed, log.high_watermark))
            partition.watermarks.wake()  # the followers learn of it
        elif len(log.segments) > 1:
            self.queues.carry_forward(log.segments.active.base_offset)

    def when_committed(self) -> Committed:
        """Ends when everything that has happened until now is committed."""
        future: Committed = asyncio.get_running_loop().create_future()
        self._waiting.append(future)
        self.ask_for_pass()
        return future

    # --- time

    def set_alarm(self) -> None:
        """Wake up when something ends by time, and not later."""
        due_ms = self._next_due_ms()
        if due_ms is None or (self._alarm is not None and self._alarm_at_ms <= due_ms):
            return
        if self._alarm is not None:
            self._alarm.cancel()
        self._alarm_at_ms = due_ms
        wait = max(0, due_ms - self._host.now_ms()) / 1000
        self._alarm = asyncio.get_running_loop().call_later(wait, self._rang)

    def _next_due_ms(self) -> int | None:
        """On the clock of the queues; what goes by the wall clock is asked again soon, since that may jump."""
        due = [self.queues.next_due_ms()]
        wall = [at_ms for _, engine in self.queues if (at_ms := engine.next_wall_ms()) is not None]
        if wall:
            due.append(self._host.now_ms() + min(_WALL_CLOCK_MS, max(0, min(wall) - self._host.wall_ms())))
        return min((at_ms for at_ms in due if at_ms is not None), default=None)

    def _rang(self) -> None:
        self._alarm = None
        if self.has_ended:
            self.close()
            return
        self.queues.pass_time(self._host.now_ms())
        self.ask_for_pass()  # which sets the next alarm, at once if there is more to end

    # --- who waits for messages

    def is_deliverable(self, name: str) -> bool:
        engine, served = self.queues.get(name), self.served.get(name)
        return engine is not None and served is not None and not served.record.is_paused and engine.has_deliverable

    def add_receiver(self, name: str, callback: Callable[[], None]) -> None:
        self._receivers.setdefault(name, {})[callback] = None

    def remove_receiver(self, name: str, callback: Callable[[], None]) -> None:
        receivers = self._receivers.get(name)
        if receivers is not None:
            receivers.pop(callback, None)
            if not receivers:
                del self._receivers[name]

    def wake_all(self) -> None:
        for name in tuple(self._receivers):
            self._wake(name)

    def _wake(self, name: str) -> None:
        for callback in tuple(self._receivers.get(name, ())):
            callback()


def _resolve(waiting: Iterable[Committed]) -> None:
    for future in waiting:
        if not future.done():
            future.set_result(None)


def _fail(waiting: Iterable[Committed], error: ApiError) -> None:
    for future in waiting:
        if not future.done():
            future.set_exception(error)
            future.exception()  # the caller may have gone: that is no mistake of ours
