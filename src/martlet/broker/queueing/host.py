"""The queues that this broker serves: a pair for every partition with subscriptions of which it leads data and state.

How it works: the host follows the metadata. Where this process leads a partition and its companion, and the topic has
subscriptions, it opens a pair and loads it; when either leadership or the last subscription goes, the pair is closed.
What a loading could not read is tried again.

Invariants:
QHO-1 there is a pair for exactly the partitions with subscriptions of which this process leads both logs.

Proved by: tests/unit/broker/queueing/test_queue_host.py, tests/sim/test_queues.py
"""

import asyncio
import logging
from collections.abc import Callable, Iterable, Iterator
from typing import Final

from martlet.base.clock import Clock
from martlet.base.errors import ApiError, ErrorCode, MartletError
from martlet.base.ids import TopicId
from martlet.base.randomness import Randomness
from martlet.broker.coordinators.internal_topic import BATCH_BYTES_MAX
from martlet.broker.coordinators.shard_log import PartitionShardLog
from martlet.broker.partitions.partition_table import PartitionTable
from martlet.broker.partitions.topic_settings import TopicSettings
from martlet.broker.queueing.dead_letters import DeadLetterOffice
from martlet.broker.queueing.doors import PartitionQueue
from martlet.broker.queueing.pair import QueuePair
from martlet.broker.queueing.served_queue import ServedQueue
from martlet.broker.queueing.subscription_admin import SubscriptionAdmin
from martlet.broker.queueing.subscription_settings import SubscriptionSettings, read_settings
from martlet.cluster.image import ImageDelta, MetadataImage
from martlet.cluster.queue_pairs import data_of
from martlet.cluster.records import SubscriptionRecord, TopicRecord
from martlet.cluster.subscriptions import covering, covers
from martlet.cluster.topic_names import queue_state_topic
from martlet.queues.partition_queues import SubscriptionDeadLetter

logger = logging.getLogger(__name__)

_RETRY_SECONDS: Final = 1.0


class QueueHost:
    """Implements `QueueDoors`; lives on the broker's event loop from `start` to `aclose`."""

    def __init__(
        self,
        admin: SubscriptionAdmin,
        table: PartitionTable,
        topic_settings: TopicSettings,
        clock: Clock,
        randomness: Randomness,
        office: DeadLetterOffice,
    ) -> None:
        self.admin = admin
        self.randomness = randomness
        self.readers = table.readers
        self._image: MetadataImage = admin.image
        self._table = table
        self._topic_settings = topic_settings
        self._clock = clock
        self.office = office
        self._began_ms = clock.now_ms() - clock.monotonic_ms()
        self._pairs: dict[tuple[TopicId, int], QueuePair] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._retries: dict[tuple[TopicId, int], asyncio.TimerHandle] = {}
        self._is_closed = False
        self.is_stopping = False
        self._turn = 0
        self.loads = 0
        """Pairs loaded by this process."""

    # --- the doors

    def now_ms(self) -> int:
        return self._began_ms + self._clock.monotonic_ms()

    def wall_ms(self) -> int:
        return self._clock.now_ms()

    def find(self, topic_id: TopicId, partition: int, subscription: str) -> PartitionQueue:
        record = self._image.subscriptions().get(subscription)
        topic = self._image.topic_by_id(topic_id)
        if topic is None:
            raise ApiError(ErrorCode.UNKNOWN_TOPIC_ID)
        if record is None or not covers(record, topic.name):
            detail = f"there is no subscription {subscription[:249]!r} of topic {topic.name}"
            raise ApiError(ErrorCode.GROUP_ID_NOT_FOUND, detail)
        pair = self._pairs.get((topic_id, partition))
        if pair is None:
            raise self._why_not(topic, partition)
        pair.check_served()
        if record.id not in pair.queues:
            raise ApiError(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, f"the queue of {subscription!r} is being made")
        return ServedQueue(pair, record.id, self.now_ms)

    def _why_not(self, topic: TopicRecord, partition: int) -> ApiError:
        if not 0 <= partition < topic.partition_count:
            return ApiError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"there is no partition {topic.name}-{partition}")
        if not self._table.leads(topic.name, partition):
            return ApiError(ErrorCode.NOT_LEADER_OR_FOLLOWER, f"another broker leads {topic.name}-{partition}")
        detail = f"the state of the queues of {topic.name}-{partition} is not led here yet"
        return ApiError(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, detail)

    async def ensure(self, subscription: str, topics: Iterable[TopicId]) -> None:
        names = []
        for topic_id in topics:
            topic = self._image.topic_by_id(topic_id)
            if topic is None:
                raise ApiError(ErrorCode.UNKNOWN_TOPIC_ID)
            names.append(topic.name)
        await self.admin.ensure(subscription, names)

    async def forget(self, subscription: str, topics: Iterable[str] | None) -> None:
        """Forget what a subscription knows of the messages of some topics, or delete it."""
        if topics is None:
            await self.admin.delete(subscription)
        else:
            await self.admin.remove_topics(subscription, topics)

    def next_turn(self) -> int:
        """Another number each time, for requests that ask partitions in turns."""
        self._turn += 1
        return self._turn

    def served(self) -> Iterator[tuple[TopicId, int, str, PartitionQueue]]:
        for (topic_id, index), pair in sorted(self._pairs.items()):
            if pair.is_loaded and not pair.has_ended:
                for name, served in sorted(pair.served.items()):
                    yield topic_id, index, served.record.name, ServedQueue(pair, name, self.now_ms)

    @property
    def pair_count(self) -> int:
        return sum(pair.is_loaded and not pair.has_ended for pair in self._pairs.values())

    def led_here(self, subscription: str) -> list[tuple[TopicRecord, int]]:
        """The partitions of a subscription that this broker leads, served or not."""
        record = self._image.subscriptions().get(subscription)
        if record is None:
            raise ApiError(ErrorCode.GROUP_ID_NOT_FOUND, f"there is no subscription {subscription[:249]!r}")
        return [
            (topic, index)
            for topic in self._image.topics()
            if covers(record, topic.name)
            for index in range(topic.partition_count)
            if self._table.leads(topic.name, index)
        ]

    def low_mark(self, topic_id: TopicId, partition: int) -> int | None:
        """From where on the queues of a partition need its log; None where none is known here."""
        pair = self._pairs.get((topic_id, partition))
        return pair.queues.low_mark if pair is not None and pair.is_loaded and not pair.has_ended else None

    # --- what pairs need

    def check_acting(self) -> None:
        self._table.check_acting()

    def settings_of(self, record: SubscriptionRecord) -> SubscriptionSettings:
        return read_settings(record, self._topic_settings.group_config(record.name))

    def subscriptions_of(self, topic: str) -> Iterable[SubscriptionRecord]:
        return covering(self._image, topic)

    def dead_letters(self, pair: QueuePair, letters: Iterable[SubscriptionDeadLetter]) -> None:
        for letter in letters:
            self.office.take(pair, letter)

    def closed(self, pair: QueuePair) -> None:
        """The pair has noticed that its leadership is over."""
        key = (pair.topic_id, pair.index)
        if self._pairs.get(key) is pair:
            del self._pairs[key]
            if not self._is_closed:
                self._follow_pair(*key)

    # --- life

    def start(self) -> None:
        for topic in self._image.topics():
            self._follow_topic(topic)

    def stop_parking(self) -> None:
        """The broker is about to stop: requests that wait for messages are answered, so that connections can close."""
        self.is_stopping = True
        for pair in self._pairs.values():
            pair.wake_all()

    async def aclose(self) -> None:
        self._is_closed = True
        await self.office.aclose()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        for retry in self._retries.values():
            retry.cancel()
        for pair in tuple(self._pairs.values()):
            pair.close()

    def follow(self, delta: ImageDelta) -> None:
        """A listener of the metadata feed, after the partition table."""
        if self._is_closed:
            return
        if delta.subscriptions or delta.group_configs or delta.broker_configs or delta.topics:
            self.start()
            for pair in tuple(self._pairs.values()):
                pair.refresh()
        for change in delta.partitions:
            record = change.after or change.before
            data = data_of(self._image, change.topic)
            topic_id = data.id if data is not None else record.topic_id if record is not None else None
            if record is not None and topic_id is not None and (topic_id, record.partition) not in self._retries:
                self._follow_pair(topic_id, record.partition)

    def _follow_topic(self, topic: TopicRecord) -> None:
        if self._wanted(topic):
            for index in range(topic.partition_count):
                self._follow_pair(topic.id, index)
        else:
            for key in [key for key in self._pairs if key[0] == topic.id]:
                self._pairs[key].close()

    def _wanted(self, topic: TopicRecord) -> bool:
        """Whether it has queues; one whose last subscription went is served until that is in its state log."""
        return self._image.topic(queue_state_topic(topic.id)) is not None

    def _follow_pair(self, topic_id: TopicId, index: int) -> None:
        """Have a pair, or none, as leadership wants (QHO-1)."""
        key = (topic_id, index)
        pair = self._pairs.get(key)
        if pair is not None and pair.has_ended:
            del self._pairs[key]
            pair.close()
            pair = None
        topic = self._image.topic_by_id(topic_id)
        if pair is not None or topic is None or topic.internal or not self._wanted(topic):
            return
        state = queue_state_topic(topic_id)
        if self._table.leads(topic.name, index) and self._table.leads(state, index):
            self._open(topic, state, index)

    def _open(self, topic: TopicRecord, state: str, index: int) -> None:
        key = (topic.id, index)
        try:
            self._table.get(state, index)
            data = self._table.get(topic.name, index)
        except ApiError as error:
            logger.error("the queues of %s-%d are not served: %s", topic.name, index, error)
            self._retry(key)
            return
        log = PartitionShardLog(self._table, state, index, batch_bytes_max=BATCH_BYTES_MAX)
        pair = self._pairs[key] = QueuePair(self, topic.name, topic.id, data, log)
        task = asyncio.create_task(self._load(pair), name=f"martlet-load-queues-of-{data.name}")
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _load(self, pair: QueuePair) -> None:
        try:
            count = await pair.load()
        except MartletError as error:
            if not pair.has_ended:
                logger.error("the queues of %s cannot be loaded, trying again: %s", pair.data.name, error)
            self._retry((pair.topic_id, pair.index))
            pair.close()
            return
        if pair.is_loaded:
            self.loads += 1
            logger.log(
                logging.INFO if count else logging.DEBUG,
                "the queues of %s are served: %d records were replayed", pair.data.name, count,
            )  # fmt: skip

    def _retry(self, key: tuple[TopicId, int]) -> None:
        if key not in self._retries and not self._is_closed:
            again: Callable[[], None] = lambda: self._try_again(key)  # noqa: E731  # a name for the type checker
            self._retries[key] = asyncio.get_running_loop().call_later(_RETRY_SECONDS, again)

    def _try_again(self, key: tuple[TopicId, int]) -> None:
        self._retries.pop(key, None)
        if not self._is_closed:
            self._follow_pair(*key)
