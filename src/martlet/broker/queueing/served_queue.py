"""One subscription in one partition, as the doors use it: `doors.PartitionQueue` on the pair that serves it.

Proved by: tests/unit/broker/queueing/test_queue_host.py
"""

from collections.abc import Awaitable, Callable, Sequence
from typing import Final

from martlet.base.errors import ApiError, ErrorCode, StorageFailure
from martlet.broker.queueing.doors import NOTHING, Handout, Wish
from martlet.broker.queueing.message_reading import Found
from martlet.broker.queueing.pair import QueuePair
from martlet.queues import inspection
from martlet.queues.engine import Delivery, QueueEngine, Settlement, Verdict
from martlet.queues.inspection import Depth, MessageStatus
from martlet.wire.lease_token import LeaseToken

_MESSAGES_MAX: Final = 10_000
"""That one call hands out, whatever is asked for."""
_TRIES: Final = 16
"""Calls that met holes only."""


class ServedQueue:
    """Made for each request; holds nothing of its own."""

    __slots__ = ("_name", "_now_ms", "_pair")

    def __init__(self, pair: QueuePair, name: str, now_ms: Callable[[], int]) -> None:
        self._pair = pair
        self._name = name
        self._now_ms = now_ms

    @property
    def _engine(self) -> QueueEngine:
        self._pair.check_served()
        engine = self._pair.queues.get(self._name)
        if engine is None:
            raise ApiError(ErrorCode.GROUP_ID_NOT_FOUND, "the subscription has been deleted")
        return engine

    @property
    def leader_epoch(self) -> int:
        return self._pair.leader_epoch

    @property
    def lease_epoch(self) -> int:
        return self._pair.lease_epoch

    @property
    def has_deliverable(self) -> bool:
        self._pair.move_ends()
        engine = self._pair.queues.get(self._name)
        # The most urgent may have come in this very turn; otherwise what was seen already will do.
        if engine is not None and (engine.is_by_priority or not engine.has_deliverable):
            self._pair.look(self._name, engine)
        return self._pair.is_deliverable(self._name)

    # --- handing out

    async def hand_out(self, holder: str, wish: Wish) -> Handout:
        for _ in range(_TRIES):
            engine = self._engine
            if not self.has_deliverable:
                return NOTHING
            now_ms = self._now_ms()
            limit = min(wish.messages_max, _MESSAGES_MAX)
            deliveries = engine.acquire(holder, limit, now_ms, wish.lease_ms)
            if not deliveries:
                return NOTHING
            found = await self._read(engine, holder, deliveries, wish)
            self._finish_gaps(engine, holder, found)
            if found.left:
                engine.take_back(holder, found.left)
            self._pair.ask_for_pass()
            if found.deliveries:
                until_ms = now_ms + (wish.lease_ms or engine.options.lease_ms)
                return Handout(tuple(found.deliveries), tuple(found.batches), until_ms)
        return NOTHING

    async def _read(self, engine: QueueEngine, holder: str, deliveries: Sequence[Delivery], wish: Wish) -> Found:
        pair = self._pair
        isolation = pair.served[self._name].settings.isolation
        try:
            found = await pair.reader.read(deliveries, wish.bytes_max, isolation)
            pair.check_served()
        except StorageFailure as failure:
            self._undo(engine, holder, deliveries)
            code = pair.data.owner.damage.read_failed(pair.data, failure)
            raise ApiError(code, str(failure)) from failure
        except BaseException:
            self._undo(engine, holder, deliveries)
            raise
        return found

    def _undo(self, engine: QueueEngine, holder: str, deliveries: Sequence[Delivery]) -> None:
        if self._pair.queues.get(self._name) is engine and not self._pair.is_closed:
            engine.take_back(holder, deliveries)
            self._pair.ask_for_pass()

    def _finish_gaps(self, engine: QueueEngine, holder: str, found: Found) -> None:
        gaps = [Settlement(first, last, Verdict.GAP) for first, last in found.gaps]
        if gaps:
            try:
                engine.settle(holder, gaps, self._now_ms())
            except ApiError:
                return  # leased again or moved on meanwhile: the next holder meets the same holes

    # --- settling

    def settle(
        self,
        holder: str | None,
        settlements: Sequence[Settlement],
        *,
        attempt: int | None = None,
        lease_ms: int | None = None,
        delay_ms: int | None = None,
        reason: str = "",
    ) -> Awaitable[None]:
        engine = self._engine
        engine.settle(holder, settlements, self._now_ms(), attempt, lease_ms=lease_ms, delay_ms=delay_ms)
        if reason:
            self._pair.reasons.note(self._name, settlements, reason)
        return self._pair.when_committed()

    def release_holder(self, holder: str, *, was_delivered: bool = True) -> Awaitable[None]:
        self._engine.release(holder, self._now_ms(), was_delivered=was_delivered)
        return self._pair.when_committed()

    def add_waiter(self, callback: Callable[[], None]) -> None:
        self._pair.add_receiver(self._name, callback)

    def remove_waiter(self, callback: Callable[[], None]) -> None:
        self._pair.remove_receiver(self._name, callback)

    def token(self, offset: int, attempt: int, holder: str) -> str:
        pair = self._pair
        return LeaseToken(pair.topic_id, pair.index, pair.lease_epoch, offset, attempt, holder).text()

    # --- looking

    def depth(self) -> Depth:
        self._pair.move_ends()
        return inspection.depth(self._engine)

    @property
    def start(self) -> int:
        return self._engine.ledger.window.start

    @property
    def end(self) -> int:
        return self._engine.end

    @property
    def low_mark(self) -> int:
        return self._engine.low_mark

    def why_nothing(self) -> str | None:
        engine = self._engine
        if self._pair.served[self._name].record.is_paused:
            return "the subscription is paused"
        return inspection.why_nothing_is_delivered(engine, self._now_ms())

    def status(self, offset: int) -> MessageStatus:
        self._pair.move_ends()
        status = inspection.status(self._engine, offset)
        if status.state == inspection.FINISHED_EARLIER:
            # Only its header tells a message that is due later from one that is finished.
            due_ms = self._pair.looks.scheduled_until(self._engine, offset)
            if due_ms is not None:
                return MessageStatus(inspection.SCHEDULED, until_ms=due_ms)
        return status

    def peek(self, first: int, limit: int) -> list[tuple[int, MessageStatus]]:
        self._pair.move_ends()
        return inspection.peek(self._engine, first, limit)

    # --- changing by hand

    async def cancel(self, offset: int) -> None:
        self._pair.move_ends()
        due_ms = await self._pair.looks.due_ms(self._engine, offset)
        self._engine.cancel(offset, due_ms)
        await self._pair.when_committed()

    def seek(self, offset: int) -> Awaitable[None]:
        log, engine = self._pair.data.log, self._engine
        if not log.log_start_offset <= offset <= self._pair.data.high_watermark:
            detail = f"offset {offset} is not in {self._pair.data.name}: {log.log_start_offset} to {log.high_watermark}"
            raise ApiError(ErrorCode.OFFSET_OUT_OF_RANGE, detail)
        engine.reset(offset)
        return self._pair.when_committed()
