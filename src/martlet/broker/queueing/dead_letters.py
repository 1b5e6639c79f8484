"""Copies messages to the dead-letter topics of their subscriptions; a message is finished when its copy is committed.

How it works: for each pair one task takes what the queues hand over, reads the messages, adds headers that say why and
from where, and publishes them to the partition of the target that has the source's number, modulo its count; so the
letters of one partition stay in their order. What fails is tried again, as long as the pair is served here: the
messages wait, are counted, and do not hold up others. The next leader makes the copies that were not surely made.

Rule: at least once. A copy may come twice after a change of leader, never not at all.

Proved by: tests/unit/broker/queueing/test_queue_host.py
"""

import asyncio
import logging
from collections.abc import Sequence
from typing import Final

from martlet.base.clock import Clock
from martlet.base.errors import ApiError, ErrorCode, InvariantViolation, MartletError, error_code
from martlet.base.ids import BrokerId, TopicPartition
from martlet.broker.partitions.partition_table import PartitionTable
from martlet.broker.partitions.watermarks import READ_UNCOMMITTED
from martlet.broker.queueing.pair import QueuePair
from martlet.broker.routing.peers import Peers
from martlet.client.apis import WRITE_DEAD_LETTERS
from martlet.cluster.image import MetadataImage
from martlet.log.validation import check_client_batch
from martlet.queues.cells import NAMES
from martlet.queues.engine import Delivery
from martlet.queues.partition_queues import SubscriptionDeadLetter
from martlet.wire.batch import build_batch
from martlet.wire.messages.write_dead_letters import WriteDeadLettersRequest
from martlet.wire.records.record import Record, read_records

logger = logging.getLogger(__name__)

_PRODUCE_VERSION: Final = 13
_AT_ONCE: Final = 200
_BATCH_BYTES_MAX: Final = 512 << 10
_UNPACKED_BYTES_MAX: Final = 256 << 20
_PAUSE_SECONDS: Final = 0.1
_PAUSE_SECONDS_MAX: Final = 5.0

_Copy = tuple[int, bytes | None, bytes | None, list[tuple[str, bytes | None]]]

HEADER_PREFIX: Final = "martlet-dead-"
"""Of the headers that a copy has besides those of its message; a message that dies again gets new ones."""


class DeadLetterWriter:
    """Publishes copies to a partition of any leader, and returns when they are committed."""

    def __init__(self, me: BrokerId, image: MetadataImage, table: PartitionTable, peers: Peers, clock: Clock) -> None:
        self._me = me
        self._image = image
        self._table = table
        self._peers = peers
        self._clock = clock

    def target(self, topic: str, source: int) -> TopicPartition | None:
        """Where the letters of a partition go; None while there is no such topic."""
        record = self._image.topic(topic)
        return TopicPartition(topic, source % record.partition_count) if record is not None else None

    async def write(self, target: TopicPartition, batch: bytes) -> None:
        record = self._image.partition(*target)
        if record is None or record.leader is None:
            raise ApiError(ErrorCode.LEADER_NOT_AVAILABLE, f"{target} has no leader now")
        if record.leader == self._me:
            await self.append(target, batch)
            return
        request = WriteDeadLettersRequest(target.topic, target.partition, batch)
        answer = await self._peers.call(record.leader, WRITE_DEAD_LETTERS, request)
        if answer.error_code:
            raise ApiError(error_code(answer.error_code), answer.error_message or "")

    async def append(self, target: TopicPartition, batch: bytes) -> None:
        """Append to a partition led here; returns when it is committed."""
        self._table.check_acting()
        partition = self._table.get(*target)
        if partition.internal:
            raise ApiError(ErrorCode.INVALID_TOPIC_EXCEPTION, f"{target.topic} is internal")
        partition.check_enough_in_sync()
        view, now_ms = memoryview(bytearray(batch)), self._clock.now_ms()
        header = check_client_batch(view, partition.log.options, now_ms=now_ms, produce_version=_PRODUCE_VERSION)
        appended = partition.append(view, header, now_ms=now_ms)
        await partition.committed(appended.last_offset + 1)


class DeadLetterOffice:
    """One task for each pair that has letters; lives until `aclose`."""

    def __init__(self, writer: DeadLetterWriter, clock: Clock) -> None:
        self.writer = writer
        self._clock = clock
        self._waiting: dict[QueuePair, list[SubscriptionDeadLetter]] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self.copied = 0
        """Messages copied by this process."""

    def take(self, pair: QueuePair, letter: SubscriptionDeadLetter) -> None:
        """Have a copy made."""
        if pair in self._waiting:
            self._waiting[pair].append(letter)
            return
        self._waiting[pair] = [letter]
        task = asyncio.create_task(self._copy_all(pair), name=f"martlet-dead-letters-of-{pair.data.name}")
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def aclose(self) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _copy_all(self, pair: QueuePair) -> None:
        pause, is_reported = _PAUSE_SECONDS, False
        try:
            while not pair.has_ended and (waiting := self._waiting[pair]):
                some = waiting[:_AT_ONCE]
                name = some[0].subscription
                some = [one for one in some if one.subscription == name]
                try:
                    done = await self._copy(pair, name, some)
                except InvariantViolation:
                    raise
                except MartletError as error:
                    if not is_reported and not pair.has_ended:
                        logger.warning("dead letters of %s wait for their topic: %s", pair.data.name, error)
                        is_reported = True
                    await asyncio.sleep(pause)
                    pause = min(2 * pause, _PAUSE_SECONDS_MAX)
                    continue
                pause, is_reported = _PAUSE_SECONDS, False
                self._finish(pair, name, done)
        finally:
            del self._waiting[pair]

    def _finish(self, pair: QueuePair, name: str, done: Sequence[SubscriptionDeadLetter]) -> None:
        engine = pair.queues.get(name)
        for one in done:
            self._waiting[pair].remove(one)
            if engine is not None and not pair.has_ended:
                engine.dead_letter_copied(one.letter.offset)
        pair.ask_for_pass()

    async def _copy(
        self, pair: QueuePair, name: str, letters: Sequence[SubscriptionDeadLetter]
    ) -> Sequence[SubscriptionDeadLetter]:
        """Copy the first of these letters, as many as one batch takes; those that are done with."""
        served = pair.served.get(name)
        if served is None:
            return letters  # the subscription is gone, and its messages with it
        topic = served.settings.dead_letter_topic
        target = self.writer.target(topic, pair.index) if topic else None
        if topic and target is None:
            raise ApiError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"there is no topic {topic!r}")
        if target is None:
            logger.warning("%d dead letters of %s are dropped: none are wanted any more", len(letters), pair.data.name)
            return letters
        done: list[SubscriptionDeadLetter] = []
        records: list[_Copy] = []
        size = 0
        for one in letters:
            record = await self._read(pair, one.letter.offset)
            if record is not None:
                made = self._letter(pair, served.record.name, one, record)
                size += len(record.value or b"") + len(record.key or b"")
                if records and size > _BATCH_BYTES_MAX:
                    break
                records.append(made)
            done.append(one)
        if records:
            await self.writer.write(target, build_batch(records))
            self.copied += len(records)
        return done

    async def _read(self, pair: QueuePair, offset: int) -> Record | None:
        """The message; None when it is no longer in the log."""
        found = await pair.reader.read([Delivery(offset, offset, 1)], _BATCH_BYTES_MAX, READ_UNCOMMITTED)
        pair.check_served()
        try:
            records = [record for batch in found.batches for record in read_records(batch, _UNPACKED_BYTES_MAX)]
        except ApiError as error:
            # No reader will ever make sense of it; what is left is to say so.
            header = (f"{HEADER_PREFIX}unreadable", str(error).encode())
            return Record(offset, self._clock.now_ms(), None, None, [header])
        return next((record for record in records if record.offset == offset), None)

    def _letter(self, pair: QueuePair, subscription: str, one: SubscriptionDeadLetter, record: Record) -> _Copy:
        letter, now_ms = one.letter, self._clock.now_ms()
        detail = pair.reasons.take(one.subscription, letter.offset)
        trail = {
            "reason": NAMES[letter.reason],
            "attempts": str(letter.attempts),
            "subscription": subscription,
            "topic": pair.topic,
            "partition": str(pair.index),
            "offset": str(letter.offset),
            "published-ms": str(record.timestamp_ms),
            "at-ms": str(now_ms),
            **({"detail": detail} if detail else {}),
        }
        headers = [
            header
            for header in record.headers
            if not header[0].startswith(HEADER_PREFIX) or header[0].endswith("unreadable")
        ]
        headers += [(HEADER_PREFIX + name, value.encode()) for name, value in trail.items()]
        return now_ms, record.key, record.value, headers
