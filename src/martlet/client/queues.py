"""Work queues: subscriptions made and shown, messages received under a lease and settled, one by one or many at once.

A received message carries its lease as a token, with which it can be settled from any connection; the token ends with
the attempt. Without one, a message is settled by topic, partition and offset.
"""

import asyncio
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import IntEnum
from typing import Final, NamedTuple, TypeVar

from martlet.base.errors import ApiError, ErrorCode, error_code
from martlet.base.ids import TopicId, TopicPartition
from martlet.client.answers import check, only
from martlet.client.apis import (
    ALTER_SUBSCRIPTIONS,
    DESCRIBE_QUEUES,
    DESCRIBE_SUBSCRIPTIONS,
    RECEIVE_MESSAGES,
    SEEK_QUEUE,
    SETTLE_MESSAGES,
)
from martlet.client.cluster import Cluster, Purpose
from martlet.client.errors import ClientError
from martlet.wire.lease_token import LeaseToken
from martlet.wire.messages.alter_subscriptions import (
    AlteredSubscription,
    AlterSubscriptionsRequest,
    SubscriptionSetting,
)
from martlet.wire.messages.describe_queues import DescribedQueue, DescribedTopic, DescribeQueuesRequest
from martlet.wire.messages.describe_subscriptions import DescribeSubscriptionsRequest
from martlet.wire.messages.receive_messages import (
    QueuePartitions,
    ReceivedPartition,
    ReceiveMessagesRequest,
    ReceiveMessagesResponse,
)
from martlet.wire.messages.seek_queue import SeekQueueRequest
from martlet.wire.messages.settle_messages import (
    Settled,
    SettledPartition,
    SettleMessagesRequest,
)
from martlet.wire.records.record import Record, read_records

_Topic = TypeVar("_Topic")

_UNPACKED_BYTES_MAX: Final = 256 << 20
_CREATE, _ALTER, _DELETE = 0, 1, 2
_LOOK_AGAIN_SECONDS: Final = 0.2
_ANSWER_MS: Final = 10_000
"""On top of the time that a request waits at the broker."""


class Verdict(IntEnum):
    """What became of a message."""

    ACCEPT = 1
    RELEASE = 2
    REJECT = 3
    RENEW = 4
    CANCEL = 5
    """Of a message that no holder has: it is never delivered."""


@dataclass(frozen=True, slots=True)
class Subscription:
    """What the metadata says of one."""

    name: str
    topics: tuple[str, ...]
    patterns: tuple[str, ...]
    covered: tuple[str, ...]
    settings: Mapping[str, str]
    created_at_ms: int
    is_paused: bool


class Received(NamedTuple):
    """One leased message."""

    partition: TopicPartition
    record: Record
    attempt: int
    lease: LeaseToken
    until_ms: int


class Settling(NamedTuple):
    """What is to be said of one message."""

    lease: LeaseToken
    verdict: Verdict
    delay_ms: int = -1
    """Of a release; -1: as the subscription says."""
    lease_ms: int = -1
    """Of a renewal; -1: as the subscription says."""
    reason: str = ""
    """Of a rejection."""


def message_without_token(topic_id: TopicId, partition: int, offset: int) -> LeaseToken:
    """Stands for the present lease of a message, whose ever it is."""
    return LeaseToken(topic_id, partition, -1, offset, -1, "")


class Queues:
    """Stateless; asks any broker for subscriptions and the leaders of partitions for their queues."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster

    # --- subscriptions

    async def create(
        self,
        name: str,
        topics: Iterable[str] = (),
        *,
        patterns: Iterable[str] = (),
        settings: Mapping[str, str] | None = None,
        is_paused: bool = False,
    ) -> None:
        """Make a subscription; ApiError when it exists or makes no sense."""
        given = [SubscriptionSetting(*item) for item in (settings or {}).items()]
        wish = AlteredSubscription(name, _CREATE, list(topics), list(patterns), given, int(is_paused))
        await self._alter(wish, f"subscription {name!r} was not created")

    async def alter(
        self,
        name: str,
        *,
        topics: Iterable[str] | None = None,
        patterns: Iterable[str] | None = None,
        settings: Mapping[str, str | None] | None = None,
        is_paused: bool | None = None,
    ) -> None:
        """Change what is given; a setting without a value is taken away."""
        given = [SubscriptionSetting(*item) for item in (settings or {}).items()]
        paused = -1 if is_paused is None else int(is_paused)
        named = None if topics is None else list(topics)
        fitting = None if patterns is None else list(patterns)
        wish = AlteredSubscription(name, _ALTER, named, fitting, given, paused)
        await self._alter(wish, f"subscription {name!r} was not altered")

    async def delete(self, name: str) -> None:
        """Forget a subscription and all it knew of its messages; the messages stay in their topics."""
        await self._alter(AlteredSubscription(name, _DELETE), f"subscription {name!r} was not deleted")

    async def _alter(self, wish: AlteredSubscription, what: str) -> None:
        connection = await self._cluster.any_connection()
        answer = await connection.call(ALTER_SUBSCRIPTIONS, AlterSubscriptionsRequest([wish]))
        check(answer.error_code, answer.error_message, what)
        result = only(answer.results)
        check(result.error_code, result.error_message, what)

    async def subscriptions(self, names: Sequence[str] | None = None) -> list[Subscription]:
        """Those named, or all; ApiError GROUP_ID_NOT_FOUND for one that does not exist."""
        connection = await self._cluster.any_connection()
        request = DescribeSubscriptionsRequest(None if names is None else list(names))
        answer = await connection.call(DESCRIBE_SUBSCRIPTIONS, request)
        check(answer.error_code, answer.error_message, "the subscriptions cannot be listed")
        found = []
        for one in answer.subscriptions:
            check(one.error_code, one.error_message, f"subscription {one.name!r}", named=one.name)
            settings = {setting.name: setting.value for setting in one.settings}
            found.append(
                Subscription(
                    one.name,
                    tuple(one.topics),
                    tuple(one.patterns),
                    tuple(one.covered),
                    settings,
                    one.created_at_ms,
                    one.is_paused,
                )
            )
        return found

    async def subscription(self, name: str) -> Subscription:
        return only(await self.subscriptions([name]))

    # --- queues

    async def leaders(self, name: str) -> dict[int, list[tuple[TopicId, int]]]:
        """The partitions of a subscription by the broker that leads them; those without a leader are left out."""
        by_leader: dict[int, list[tuple[TopicId, int]]] = defaultdict(list)
        for topic in (await self.subscription(name)).covered:
            info = await self._cluster.topic(topic)
            for index, partition in info.partitions.items():
                if partition.leader in self._cluster.metadata.brokers:
                    by_leader[partition.leader].append((TopicId(info.id), index))
        return by_leader

    async def describe(
        self, name: str, *, first: int = 0, limit: int = 0, only_that: bool = False
    ) -> list[DescribedQueue]:
        """How the queues of a subscription stand, by topic and partition, with up to `limit` messages of each."""
        described = []
        for broker, places in (await self.leaders(name)).items():
            request = DescribeQueuesRequest(name, _topics(places, DescribedTopic), first, limit, only_that)
            connection = await self._cluster.connection(broker)
            answer = await connection.call(DESCRIBE_QUEUES, request)
            check(answer.error_code, answer.error_message, f"the queues of {name!r} cannot be shown")
            described += answer.queues
        return sorted(described, key=lambda queue: (queue.topic, queue.partition))

    async def seek(self, name: str, partition: TopicPartition, offset: int) -> None:
        """Have a queue go on at another offset; leases and counts are forgotten."""

        async def attempt() -> None:
            info = await self._cluster.topic(partition.topic)
            leader = await self._cluster.leader(partition)
            connection = await self._cluster.connection(leader.broker_id)
            request = SeekQueueRequest(name, info.id, partition.partition, offset)
            answer = await connection.call(SEEK_QUEUE, request)
            check(answer.error_code, answer.error_message, f"{partition} was not moved to offset {offset}")

        await self._cluster.retry(attempt, topics=[partition.topic])

    # --- settling

    async def cancel(self, name: str, partition: TopicPartition, offset: int) -> None:
        """Never deliver a message, delayed or waiting; ApiError when it was handed out already or is finished."""
        topic_id = TopicId((await self._cluster.topic(partition.topic)).id)
        lease = message_without_token(topic_id, partition.partition, offset)
        (refused,) = await self.settle(name, [Settling(lease, Verdict.CANCEL)])
        if refused is not None:
            raise refused

    async def settle(self, name: str, settlings: Sequence[Settling]) -> list[ApiError | None]:
        """Say what became of messages, all at once; for each None, or why it was refused.

        What a broker could not be asked for is tried again; settling a message twice does no harm with a token: the
        second time is refused.
        """
        results: list[ApiError | None] = [None] * len(settlings)
        waiting = list(range(len(settlings)))

        async def attempt() -> None:
            nonlocal waiting
            topics = {TopicId(info.id): info for info in self._cluster.metadata.topics.values()}
            by_leader: dict[int, list[int]] = defaultdict(list)
            for number in waiting:
                lease = settlings[number].lease
                info = topics.get(lease.topic_id)
                if info is None:
                    await self._cluster.refresh_all()
                    raise ApiError(ErrorCode.UNKNOWN_TOPIC_ID, "a message is of a topic that is not known")
                leader = await self._cluster.leader(TopicPartition(info.name, lease.partition))
                by_leader[leader.broker_id].append(number)
            again: list[int] = []
            refusal: ApiError | None = None
            for broker, numbers in by_leader.items():
                for number, error in zip(numbers, await self._ask(broker, name, settlings, numbers), strict=True):
                    results[number] = error
                    if error is not None and error.retriable:
                        again.append(number)
                        refusal = error
            waiting = again
            if refusal is not None:
                raise refusal

        names = [info.name for info in self._cluster.metadata.topics.values()]
        try:
            await self._cluster.retry(attempt, topics=names)
        except ApiError as error:
            for number in waiting:
                results[number] = error
        return results

    async def _ask(
        self, broker: int, name: str, settlings: Sequence[Settling], numbers: Sequence[int]
    ) -> list[ApiError | None]:
        partitions: list[SettledPartition] = []
        for number in numbers:
            lease, verdict, delay_ms, lease_ms, reason = settlings[number]
            holder = lease.holder or None
            one = Settled(
                lease.offset, lease.offset, verdict, holder, lease.attempt, delay_ms, lease_ms, reason or None
            )
            last = partitions[-1] if partitions else None
            place = (lease.topic_id, lease.partition, lease.lease_epoch)
            if last is not None and (last.topic_id, last.partition, last.lease_epoch) == place:
                last.settlements.append(one)
            else:
                partitions.append(SettledPartition(*place, [one]))
        connection = await self._cluster.connection(broker)
        answer = await connection.call(SETTLE_MESSAGES, SettleMessagesRequest(name, partitions))
        check(answer.error_code, answer.error_message, "the messages were not settled")
        return [
            ApiError(error_code(result.error_code), result.error_message or "") if result.error_code else None
            for partition in answer.partitions
            for result in partition.results
        ]


class Receiver:
    """Receives messages of one subscription for one holder; asks all leaders at once and keeps asking.

    Close it when done: what was handed to it and not taken comes back when its lease ends.
    """

    def __init__(
        self, cluster: Cluster, name: str, holder: str, *, messages_max: int = 100, lease_ms: int | None = None
    ) -> None:
        self._cluster = cluster
        self._queues = Queues(cluster)
        self._name = name
        self._holder = holder
        self._messages_max = messages_max
        self._lease_ms = -1 if lease_ms is None else lease_ms
        self._asking: dict[int, asyncio.Task[ReceiveMessagesResponse]] = {}

    async def receive(self, wait_ms: int) -> list[Received]:
        """What comes first, within this time; none when there is nothing. Raises ApiError for what will not pass."""
        loop = asyncio.get_running_loop()
        until = loop.time() + wait_ms / 1000
        while True:
            received = await self._round(max(0.0, until - loop.time()))
            if received or loop.time() >= until:
                return received

    async def _round(self, seconds: float) -> list[Received]:
        leaders = await self._queues.leaders(self._name)
        for broker, places in leaders.items():
            if broker not in self._asking:
                self._asking[broker] = asyncio.create_task(self._ask(broker, places, int(seconds * 1000)))
        if not self._asking:
            await asyncio.sleep(min(seconds, _LOOK_AGAIN_SECONDS))
            return []
        done, _ = await asyncio.wait(self._asking.values(), timeout=seconds + 1, return_when=asyncio.FIRST_COMPLETED)
        received: list[Received] = []
        for broker, task in list(self._asking.items()):
            if task in done:
                del self._asking[broker]
                received += await self._messages(task)
        return received

    async def _ask(self, broker: int, places: list[tuple[TopicId, int]], wait_ms: int) -> ReceiveMessagesResponse:
        connection = await self._cluster.connection(broker, Purpose.FETCH)
        request = ReceiveMessagesRequest(
            self._name,
            self._holder,
            self._messages_max,
            wait_ms=wait_ms,
            lease_ms=self._lease_ms,
            topics=_topics(places, QueuePartitions),
        )
        return await connection.call(RECEIVE_MESSAGES, request, timeout_ms=wait_ms + _ANSWER_MS)

    async def _messages(self, task: "asyncio.Task[ReceiveMessagesResponse]") -> list[Received]:
        try:
            answer = task.result()
            check(answer.error_code, answer.error_message, f"nothing is received of {self._name!r}")
            failed = next((one for one in answer.partitions if one.error_code), None)
            received = [message for one in answer.partitions for message in _received(one, self._holder)]
            if failed is not None and not received:
                raise ApiError(error_code(failed.error_code), failed.error_message or "")
        except (ApiError, ClientError) as error:
            if isinstance(error, ApiError) and not error.retriable:
                raise
            await self._cluster.refresh_all()
            await asyncio.sleep(_LOOK_AGAIN_SECONDS)
            return []
        return received

    async def aclose(self) -> None:
        tasks, self._asking = list(self._asking.values()), {}
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


def _received(partition: ReceivedPartition, holder: str) -> list[Received]:
    if partition.error_code or not partition.runs:
        return []
    attempts = {offset: run.attempts for run in partition.runs for offset in range(run.first, run.last + 1)}
    name = TopicPartition(partition.topic, partition.partition)
    return [
        Received(
            name,
            record,
            attempts[record.offset],
            LeaseToken(
                TopicId(partition.topic_id),
                partition.partition,
                partition.lease_epoch,
                record.offset,
                attempts[record.offset],
                holder,
            ),
            partition.until_ms,
        )
        for record in read_records(partition.records, _UNPACKED_BYTES_MAX)
        if record.offset in attempts
    ]


def _topics(places: Iterable[tuple[TopicId, int]], made: Callable[[bytes, list[int]], _Topic]) -> list[_Topic]:
    by_topic: dict[TopicId, list[int]] = defaultdict(list)
    for topic_id, index in places:
        by_topic[topic_id].append(index)
    return [made(topic_id, indexes) for topic_id, indexes in by_topic.items()]
