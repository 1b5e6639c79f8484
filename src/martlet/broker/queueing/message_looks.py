"""Looking at messages for the queues of one partition: what the frontier of each wants to see is read and shown to it.

How it works: each pass of the pair takes a step for every queue that looks: what is due or has expired first, then a
part of the messages that the queue wants to see. Bytes in the page cache are read at once; others are read by a thread,
and the next pass goes on with them. A queue that wants more asks for another pass, so that the loop is never held long.

Rule: a batch that cannot be opened is no reason to hold up a queue: its messages are delivered as if they said nothing.

Proved by: tests/unit/broker/queueing/test_message_looks.py
"""

import asyncio
import logging
from collections import deque
from collections.abc import Callable
from typing import Final, NamedTuple

from martlet.base.errors import ApiError, StorageFailure
from martlet.base.threads import Workers
from martlet.broker.partitions.partition import Partition
from martlet.broker.partitions.watermarks import READ_COMMITTED
from martlet.broker.queueing.message_reading import Aborted
from martlet.queues.engine import Delivery, QueueEngine
from martlet.queues.features import Features, Seen
from martlet.queues.looking import BatchLook, Look, look_inside
from martlet.wire.batch import iterate_batches

logger = logging.getLogger(__name__)

LOOKED_AT_ONCE: Final = 1_000
"""Messages in one step."""
_READS_AT_ONCE: Final = 128
_FEW: Final = 16
_KEPT_MAX: Final = 32
_KEPT_BYTES_MAX: Final = 256 << 10
_READ_BYTES: Final = 256 << 10
_TERMS_ONLY: Final = Look("")


class _Read(NamedTuple):
    """Bytes that a thread has read for a queue."""

    first: int
    content: bytes


class MessageLooks:
    """Of one partition, for all of its queues."""

    def __init__(self, partition: Partition, readers: Workers, ask_for_pass: Callable[[], None]) -> None:
        self._partition = partition
        self._readers = readers
        self._ask_for_pass = ask_for_pass
        self._reading: dict[str, asyncio.Future[bytes]] = {}
        self._read: dict[str, _Read] = {}
        self._kept: deque[BatchLook] = deque(maxlen=_KEPT_MAX)
        self._fault_at = -1

    def step(self, name: str, engine: QueueEngine, isolation: int, *, wall_ms: int, now_ms: int) -> None:
        """Do what is due in one queue, and show it some of the messages that it wants to see."""
        if engine.frontier is None:
            return
        try:
            if engine.pass_wall_time(wall_ms, now_ms):
                self._ask_for_pass()
            if not self._look(name, engine, engine.frontier.features, isolation, wall_ms):
                return
        except (ApiError, StorageFailure) as error:
            if self._fault_at != engine.ledger.window.frontier:  # one line for each place
                self._fault_at = engine.ledger.window.frontier
                logger.error("a queue of %s cannot look at its messages: %s", self._partition.name, error)
            return
        if engine.look_wanted(LOOKED_AT_ONCE) is not None:
            self._ask_for_pass()

    def _look(self, name: str, engine: QueueEngine, features: Features, isolation: int, wall_ms: int) -> bool:
        """Show it what it wants to see, up to a limit. Whether it can go on at once."""
        looked = 0
        for _ in range(_READS_AT_ONCE):
            wanted = engine.look_wanted(LOOKED_AT_ONCE)
            if wanted is None or looked >= LOOKED_AT_ONCE:
                return True
            if name in self._reading:
                return False
            first, end = wanted
            if isolation != READ_COMMITTED and (opened := self._opened(first, end)) is not None:
                look = Look.for_features(self._partition.name.topic, features)
                looked += engine.take_seen(first, end, opened.seen(first, end, look), wall_ms) - first
                continue
            content = self._content(name, first, end)
            if content is None:
                return False
            taken = self._show(engine, features, isolation, first, end, content, wall_ms)
            if taken <= first:
                return False
            looked += taken - first
        return True

    async def due_ms(self, engine: QueueEngine, offset: int) -> int:
        """When a message is due for a queue, by its own headers; 0 for one that is not delayed, or not there."""
        log = self._partition.log
        frontier = engine.frontier
        if (
            frontier is None
            or frontier.features.schedule is None
            or not log.log_start_offset <= offset < log.end_offset
        ):
            return 0
        piece = log.locate(offset, max_bytes=1, end_offset=log.end_offset, at_least_one=True)
        content = piece.read_now()
        return _due_ms(await self._readers.run(piece.read) if content is None else content, offset)

    def scheduled_until(self, engine: QueueEngine, offset: int) -> int | None:
        """When a message is due that is scheduled; None for others, and for one that is not in the page cache."""
        log = self._partition.log
        frontier = engine.frontier
        if frontier is None or frontier.features.schedule is None:
            return None
        if not log.log_start_offset <= offset < log.end_offset:
            return None
        piece = log.locate(offset, max_bytes=1, end_offset=log.end_offset, at_least_one=True)
        content = piece.read_now()
        due_ms = 0 if content is None else _due_ms(content, offset)
        return due_ms if frontier.releases.is_pending(due_ms, offset) else None

    def _opened(self, first: int, end: int) -> BatchLook | None:
        """The batch that holds a few messages, when it can be had at once: what is due together lies here and there."""
        if end - first > _FEW:
            return None
        for opened in self._kept:
            if opened.first <= first and end - 1 <= opened.last:
                return opened
        log = self._partition.log
        if not log.log_start_offset <= first < log.end_offset:
            return None
        content = log.locate(first, max_bytes=1, end_offset=log.end_offset, at_least_one=True).read_now()
        header = next((header for _, header in iterate_batches(content or b"")), None)
        if content is None or header is None or header.is_control:
            return None
        if not header.base_offset <= first <= end - 1 <= header.last_offset:
            return None
        opened = BatchLook(memoryview(content)[: header.size], header)
        if opened.size <= _KEPT_BYTES_MAX:
            self._kept.append(opened)
        return opened

    def _content(self, name: str, first: int, end: int) -> bytes | None:
        """Batches from this offset on; None while a thread reads them."""
        read = self._read.pop(name, None)
        if read is not None and read.first == first:
            return read.content
        log = self._partition.log
        at = max(first, log.log_start_offset)
        if at >= min(end, log.end_offset):
            return b""
        max_bytes = _READ_BYTES if end - first > 1 else 1
        piece = log.locate(at, max_bytes=max_bytes, end_offset=log.end_offset, at_least_one=True)
        content = piece.read_now()
        if content is not None:
            return content
        reading = self._reading[name] = asyncio.ensure_future(self._readers.run(piece.read))
        reading.add_done_callback(lambda done: self._was_read(name, first, done))
        return None

    def _was_read(self, name: str, first: int, done: "asyncio.Future[bytes]") -> None:
        self._reading.pop(name, None)
        if done.cancelled():
            return
        failure = done.exception()
        if failure is None:
            self._read[name] = _Read(first, done.result())
            self._ask_for_pass()
        elif isinstance(failure, StorageFailure):
            self._partition.owner.damage.read_failed(self._partition, failure)
        else:
            logger.error("%s cannot be read: %s", self._partition.name, failure)

    def _show(
        self,
        engine: QueueEngine,
        features: Features,
        isolation: int,
        first: int,
        end: int,
        content: bytes,
        wall_ms: int,
    ) -> int:
        """Up to where the queue has taken what is in these bytes."""
        headers = [header for _, header in iterate_batches(content)]
        if headers:
            end = min(end, max(first + 1, headers[-1].next_offset))
        skipped: set[int] = set()
        if isolation == READ_COMMITTED:
            aborted = Aborted(self._partition, [Delivery(first, end - 1, 0)], engine.end)
            skipped = {header.base_offset for header in headers if aborted.has(header)}
        look = Look.for_features(self._partition.name.topic, features)
        try:
            seen = look_inside(content, first, end, look, skipped)
        except ApiError as error:
            logger.warning("messages of %s from offset %d on cannot be looked into: %s", self._partition.name, first,
                           error.detail)  # fmt: skip
            seen = [Seen(offset) for offset in range(first, end)]
        return engine.take_seen(first, end, seen, wall_ms)


def _due_ms(content: bytes, offset: int) -> int:
    """Of one message in these batches; 0 for none, and for one that is not delayed."""
    return next((seen.due_ms for seen in look_inside(content, offset, offset + 1, _TERMS_ONLY)), 0)
