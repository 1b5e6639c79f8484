"""ReceiveMessages 0 (our own): messages of a subscription are leased to a holder, as soon as there are any.

- Partitions are asked in turns, so that one that is always full does not starve the others.
- With `topics` each partition that cannot be served is answered with its error. Without, those that this broker serves
  are asked, and those being loaded are looked at again.
- Waiting ends with the connection: nothing is leased then.
"""

import asyncio
from typing import Final

from martlet.base.errors import ApiError, ErrorCode
from martlet.base.ids import TopicId
from martlet.broker.ground.request import Link, RequestContext
from martlet.broker.queueing.doors import PartitionQueue, Wish
from martlet.broker.services import BrokerServices
from martlet.security.rules import Operation
from martlet.wire.api_keys import ApiKey
from martlet.wire.messages.receive_messages import (
    LeasedRun,
    ReceivedPartition,
    ReceiveMessagesRequest,
    ReceiveMessagesResponse,
)

KEY: Final = ApiKey.RECEIVE_MESSAGES
VERSIONS: Final = (0, 0)
REQUEST: Final = ReceiveMessagesRequest
ENDS_WITH_CONNECTION: Final = True

_HOLDER_LENGTH_MAX: Final = 249
_WAIT_MS_MAX: Final = 300_000
_LOOK_AGAIN_SECONDS: Final = 0.1
"""For queues that are being loaded."""


async def handle(
    broker: BrokerServices, request: ReceiveMessagesRequest, context: RequestContext
) -> ReceiveMessagesResponse:
    """Answer when there is something, or the time is over."""
    try:
        _check(request)
        receiving = _Receiving(broker, request, context.link)
        partitions = await receiving.wait()
    except ApiError as error:
        return ReceiveMessagesResponse(error_code=error.code, error_message=error.detail)
    return ReceiveMessagesResponse(partitions=partitions)


def _check(request: ReceiveMessagesRequest) -> None:
    if not 0 < len(request.holder) <= _HOLDER_LENGTH_MAX:
        raise ApiError(ErrorCode.INVALID_REQUEST, f"a holder has a name of 1 to {_HOLDER_LENGTH_MAX} characters")
    if request.messages_max < 1 or request.bytes_max < 1 or request.lease_ms == 0 or request.lease_ms < -1:
        raise ApiError(ErrorCode.INVALID_REQUEST, "messages_max, bytes_max and lease_ms are at least 1")


class _Receiving:
    """One request while it waits."""

    def __init__(self, broker: BrokerServices, request: ReceiveMessagesRequest, link: Link) -> None:
        self._broker = broker
        self._link = link
        self._request = request
        self._changed = asyncio.Event()
        self._is_loading = False

    async def wait(self) -> list[ReceivedPartition]:
        loop = asyncio.get_running_loop()
        until = loop.time() + min(max(0, self._request.wait_ms), _WAIT_MS_MAX) / 1000
        while True:
            self._changed.clear()
            queues, answers = self._queues()
            for queue in queues.values():
                queue.add_waiter(self._changed.set)
            try:
                answers += await self._receive(queues)
                left = until - loop.time()
                if answers or left <= 0 or self._broker.queues.is_stopping:
                    return answers
                await self._pause(min(left, _LOOK_AGAIN_SECONDS) if self._is_loading else left)
            finally:
                for queue in queues.values():
                    queue.remove_waiter(self._changed.set)

    async def _pause(self, seconds: float) -> None:
        try:
            async with asyncio.timeout(seconds):
                await self._changed.wait()
        except TimeoutError:
            pass

    def _queues(self) -> tuple[dict[tuple[TopicId, int], PartitionQueue], list[ReceivedPartition]]:
        """Those that are served, in another order each time, and the refusals of those that were asked for by name."""
        doors, subscription = self._broker.queues, self._request.subscription
        found: dict[tuple[TopicId, int], PartitionQueue] = {}
        refusals: list[ReceivedPartition] = []
        self._is_loading = False
        if self._request.topics is None:
            places = [(topic.id, index) for topic, index in doors.led_here(subscription)]
        else:
            places = [(TopicId(one.topic_id), index) for one in self._request.topics for index in one.partitions]
        turn = doors.next_turn() % len(places) if places else 0
        for topic_id, index in places[turn:] + places[:turn]:
            try:
                self._check_readable(topic_id)
                found[topic_id, index] = doors.find(topic_id, index, subscription)
            except ApiError as error:
                self._is_loading = self._is_loading or error.code is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
                if self._request.topics is not None and error.code is not ErrorCode.COORDINATOR_LOAD_IN_PROGRESS:
                    refusals.append(ReceivedPartition("", topic_id, index, -1, error.code, error_message=error.detail))
        return found, refusals

    def _check_readable(self, topic_id: TopicId) -> None:
        """The right to a subscription is no right to its topics."""
        rules, topic = self._broker.access.rules, self._broker.image.topic_by_id(topic_id)
        if rules is not None and topic is not None and not rules.may(self._link, Operation.READ, topic.name, KEY.name):
            raise ApiError(ErrorCode.TOPIC_AUTHORIZATION_FAILED)

    async def _receive(self, queues: dict[tuple[TopicId, int], PartitionQueue]) -> list[ReceivedPartition]:
        request = self._request
        messages_left, bytes_left = request.messages_max, request.bytes_max
        received: list[ReceivedPartition] = []
        lease_ms = None if request.lease_ms < 0 else request.lease_ms
        for (topic_id, index), queue in queues.items():
            if messages_left < 1 or bytes_left < 1:
                break
            topic = self._broker.image.topic_by_id(topic_id)
            try:
                got = await queue.hand_out(request.holder, Wish(messages_left, bytes_left, lease_ms))
            except ApiError:
                self._is_loading = True  # it has just moved: look again where it is
                continue
            if got.deliveries:
                runs = [LeasedRun(*delivery) for delivery in got.deliveries]
                name, records = topic.name if topic is not None else "", b"".join(got.batches)
                received.append(
                    ReceivedPartition(
                        name, topic_id, index, queue.lease_epoch, runs=runs, records=records, until_ms=got.until_ms
                    )
                )
                messages_left -= got.message_count
                bytes_left -= len(records)
        return received
