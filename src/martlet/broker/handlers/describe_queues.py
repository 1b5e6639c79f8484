"""DescribeQueues 0 (our own): how the queues of a subscription stand here, why they stall, where messages are.

Reads only: a message that is shown is not received, and its attempts do not change.
"""

from typing import Final

from martlet.base.errors import ApiError
from martlet.base.ids import TopicId
from martlet.broker.ground.request import RequestContext
from martlet.broker.queueing.doors import PartitionQueue
from martlet.broker.services import BrokerServices
from martlet.queues.inspection import MessageStatus
from martlet.wire.api_keys import ApiKey
from martlet.wire.messages.describe_queues import (
    DescribedMessage,
    DescribedQueue,
    DescribeQueuesRequest,
    DescribeQueuesResponse,
)

KEY: Final = ApiKey.DESCRIBE_QUEUES
VERSIONS: Final = (0, 0)
REQUEST: Final = DescribeQueuesRequest

_MESSAGES_MAX: Final = 1_000


def handle(broker: BrokerServices, request: DescribeQueuesRequest, context: RequestContext) -> DescribeQueuesResponse:
    """Each partition for itself."""
    doors = broker.queues
    if request.topics is None:
        try:
            places = [(topic.id, index) for topic, index in doors.led_here(request.subscription)]
        except ApiError as error:
            return DescribeQueuesResponse(error_code=error.code, error_message=error.detail)
    else:
        places = [(TopicId(topic.topic_id), index) for topic in request.topics for index in topic.partitions]
    return DescribeQueuesResponse(queues=[_described(broker, request, *place) for place in places])


def _described(broker: BrokerServices, request: DescribeQueuesRequest, topic_id: TopicId, index: int) -> DescribedQueue:
    topic = broker.image.topic_by_id(topic_id)
    name = topic.name if topic is not None else ""
    try:
        queue = broker.queues.find(topic_id, index, request.subscription)
        depth = queue.depth()
        messages = _messages(queue, request)
    except ApiError as error:
        return DescribedQueue(name, topic_id, index, error.code, error.detail)
    return DescribedQueue(
        topic=name,
        topic_id=topic_id,
        partition=index,
        leader_epoch=queue.leader_epoch,
        start=queue.start,
        end=queue.end,
        low_mark=queue.low_mark,
        waiting=depth.waiting,
        leased=depth.leased,
        closing=depth.closing,
        backing_off=depth.backing_off,
        copying=depth.copying,
        scheduled=depth.scheduled,
        parked=depth.parked,
        stalled=queue.why_nothing(),
        messages=messages,
    )


def _messages(queue: PartitionQueue, request: DescribeQueuesRequest) -> list[DescribedMessage]:
    if request.only_that:
        return [_message(request.first, queue.status(request.first))]
    limit = min(request.limit, _MESSAGES_MAX)
    return [_message(*entry) for entry in queue.peek(max(0, request.first), limit)] if limit > 0 else []


def _message(offset: int, status: MessageStatus) -> DescribedMessage:
    return DescribedMessage(offset, status.state, status.attempts, status.holder, status.until_ms or 0)
